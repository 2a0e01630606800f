"""Seeded samples in every layout that the functions take, and the same samples as the oracles want them."""

import numpy as np
import torch
from tests import oracles

IGNORED = -100
EVENTS = {"binary": (), "one_column": (1,), "multilabel": (3,), "multilabel_map": (3, 4)}
CLASSES = {"multiclass": (), "segmentation": (3, 2)}
LAYOUTS = [*CLASSES, *EVENTS]
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def multiclass(n=128, num_classes=5, seed=0, dtype=torch.float32, scale=2.0):
    """Logits that are twice too sure of labels drawn from them."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, num_classes, generator=generator, dtype=torch.float64) * scale
    targets = torch.multinomial(torch.softmax(logits / 2.0, 1), 1, generator=generator).squeeze(1)
    return logits.to(dtype), targets


def events(shape, seed=0, dtype=torch.float32):
    """One logit an event, twice too sure of the outcome drawn from it."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(*shape, generator=generator, dtype=torch.float64) * 3.0
    outcomes = torch.bernoulli(torch.sigmoid(logits / 2.0), generator=generator).long()
    return logits.to(dtype), outcomes


def draw(layout, *, n=40, num_classes=4, inputs="logits", dtype=torch.float32, ignore=False, seed=0):
    """Keyword arguments of a calibration error: scores by their keyword, targets, and perhaps ``ignore_index``."""
    if layout in EVENTS:
        scores, targets = events((n, *EVENTS[layout]), seed, dtype=torch.float64)
        probs = torch.sigmoid(scores)
    else:
        places = CLASSES[layout]
        rows, targets = multiclass(n * int(np.prod(places)), num_classes, seed, dtype=torch.float64)
        scores = rows.reshape(n, *places, num_classes).movedim(-1, 1)
        targets = targets.reshape(n, *places)
        probs = torch.softmax(scores, 1)
    if ignore:
        dropped = torch.rand(targets.shape, generator=torch.Generator().manual_seed(seed + 1)) < 0.3
        targets = targets.masked_fill(dropped, IGNORED)
    keywords = {inputs: (scores if inputs == "logits" else probs).to(dtype), "targets": targets}
    if "multilabel" in layout:
        keywords["multilabel"] = True
    return keywords | ({"ignore_index": IGNORED} if ignore else {})


def read(layout, keywords):
    """What the oracles take: ``(confidences, correct, columns)``; a column is one class's ``(probs, came)``."""
    is_logits = "logits" in keywords
    scores = keywords["logits" if is_logits else "probs"]
    scores = (scores if scores.dtype == torch.float64 else scores.float()).numpy()
    targets = keywords["targets"].numpy()
    rows = [(index, label) for index, label in np.ndenumerate(targets) if label != IGNORED]
    if layout in EVENTS:
        probs = 1.0 / (1.0 + np.exp(-scores.astype(np.float64))) if is_logits else scores
        values = np.array([probs[index] for index, _ in rows])
        came = np.array([label == 1 for _, label in rows])
        names = np.array([index[1] if len(index) > 1 else 0 for index, _ in rows])
        return values, came, [(values[names == k], came[names == k]) for k in np.unique(names)]
    table = np.array([scores[(index[0], slice(None), *index[1:])] for index, _ in rows])
    probs = oracles.softmax(table) if is_logits else table
    labels = np.array([label for _, label in rows])
    columns = [(probs[:, k], labels == k) for k in range(probs.shape[1])]
    return *oracles.top_label(probs, labels), columns


def tolerance(keywords):
    """Logits in float32 are worth 1e-6; probabilities are read exactly, to the 2**-32 that sums are kept in."""
    return 1e-6 if keywords.get("logits", torch.zeros(0, dtype=torch.float64)).dtype != torch.float64 else 1e-9


def tied(n=300, num_values=7, seed=0):
    """Confidences with only a few distinct values, and whether each was right."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.rand(num_values, generator=generator)
    confidences = values[torch.randint(num_values, (n,), generator=generator)]
    return confidences, torch.bernoulli(confidences, generator=generator).bool()
