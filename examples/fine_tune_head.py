"""Fine-tuning: embeddings of a frozen backbone, and a meta-calibrated head on them. How many labels to hold out?

With METACAL_DATA (or METACAL_TEST_DATA) naming a folder with 20 Newsgroups and GloVe vectors, a document's embedding is
the mean and the maximum of its words' frozen vectors. Without, the backbone is a small network that has learned the
digits 0 to 4, frozen; the head learns 5 to 9. All rows have the same labels; what is held out is not trained on.
"""

import os
from pathlib import Path

import numpy as np
import torch
from comparison import Said, arguments, compare
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from torch import nn

from metacal.errors import MissingDataError
from metacal.integrations.sklearn import MetaCalibratedClassifier
from metacal.integrations.sklearn.head_training import Rows, build_network, train
from metacal.lab.data import load_dataset
from metacal.posthoc import TemperatureScaling

HIDDEN, PASSES = (256,), 60


def document_embeddings(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Mean and maximum of frozen GloVe vectors over the words of each document, standardised."""
    dataset = load_dataset("20newsgroups", folder=folder)
    parts = []
    for tokens in torch.split(dataset.train.inputs, 256):
        vectors, is_word = dataset.embeddings[tokens.long()], (tokens > 0).unsqueeze(2)
        mean = (vectors * is_word).sum(dim=1) / is_word.sum(dim=1).clamp(min=1)
        parts.append(torch.cat((mean, vectors.masked_fill(~is_word, -1e3).amax(dim=1).clamp(min=-10.0)), dim=1))
    features = torch.cat(parts)
    return ((features - features.mean(dim=0)) / features.std(dim=0)).numpy(), dataset.train.targets.numpy()


def digit_embeddings() -> tuple[np.ndarray, np.ndarray]:
    """What a network that knows 0 to 4 makes of 5 to 9."""
    X, y = load_digits(return_X_y=True)
    X = (X / 16.0).astype(np.float32)
    known = y < 5
    cpu = torch.device("cpu")
    backbone = build_network([64, 64, 5], 0, cpu)
    rows = Rows(X[known], torch.from_numpy(y[known]), cpu)
    fit(backbone, rows, lr=1e-2, passes=20, seed=0)
    with torch.no_grad():
        return nn.Sequential(*backbone[:-1])(torch.from_numpy(X[~known])).numpy(), y[~known] - 5


def fit(network: nn.Module, rows: Rows, lr: float, passes: int, seed: int) -> None:
    """Train with plain cross-entropy."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=lr, weight_decay=1e-4)
    loss_of = lambda x, y: nn.functional.cross_entropy(network(x), y)  # noqa: E731
    train(network, optimizer, loss_of, rows, batch_size=64, epochs=passes, seed=seed)


def split(X: np.ndarray, y: np.ndarray, labelled: int, seed: int):
    order = np.random.default_rng(seed).permutation(len(y))
    few, rest = order[:labelled], order[labelled:]
    return X[few], y[few], X[rest], y[rest]


def said(classifier, X: np.ndarray, y: np.ndarray) -> Said:
    return torch.from_numpy(np.log(np.clip(classifier.predict_proba(X), 1e-12, 1.0))), torch.from_numpy(y)


def plain(X, y, labelled: int, passes: int, seed: int, held_out: int = 0) -> Said:
    """The same head trained with cross-entropy; then scaled by the best temperature for labels that are held out."""
    X_few, y_few, X_test, y_test = (torch.from_numpy(part) for part in split(X, y, labelled, seed))
    network = build_network([X.shape[1], *HIDDEN, int(y.max()) + 1], seed, torch.device("cpu"))
    rows = Rows(X_few[held_out:].numpy(), y_few[held_out:], torch.device("cpu"))
    fit(network, rows, lr=3e-3, passes=passes, seed=seed)
    with torch.no_grad():
        logits, known = network(X_test), network(X_few[:held_out])
    temperature = TemperatureScaling().fit(logits=known, targets=y_few[:held_out]).temperature_ if held_out else 1.0
    return logits / temperature, y_test


def meta_calibrated(X, y, labelled: int, passes: int, seed: int, held_out: int) -> Said:
    X_few, y_few, X_test, y_test = split(X, y, labelled, seed)
    settings = {"max_iter": passes, "batch_size": 64, "random_state": seed, "validation_fraction": held_out / labelled}
    return said(MetaCalibratedClassifier(HIDDEN, **settings).fit(X_few, y_few), X_test, y_test)


def logistic(X, y, labelled: int, seed: int) -> Said:
    X_few, y_few, X_test, y_test = split(X, y, labelled, seed)
    return said(LogisticRegression(max_iter=2000).fit(X_few, y_few), X_test, y_test)


if __name__ == "__main__":
    options = arguments(__doc__)
    folder = os.environ.get("METACAL_DATA") or os.environ.get("METACAL_TEST_DATA")
    X, y, labelled, title = None, None, 2000, "GloVe embeddings of 20 Newsgroups, 2,000 labels"
    if folder and not options.quick:
        try:
            X, y = document_embeddings(Path(folder))
        except MissingDataError as error:
            print(f"Without 20 Newsgroups: {error}")
    if X is None:
        X, y = digit_embeddings()
        labelled, title = 200, "Embeddings of digits 5 to 9, 200 labels"
    passes = 2 if options.quick else PASSES
    sizes = [labelled // 10] if options.quick else [labelled // part for part in (80, 40, 20, 10, 5, 2)]
    methods = {
        "MLP head, cross-entropy": lambda seed: plain(X, y, labelled, passes, seed),
        f"... + temperature, {labelled // 10} held out": lambda seed: plain(
            X, y, labelled, passes, seed, labelled // 10
        ),
        "LogisticRegression": lambda seed: logistic(X, y, labelled, seed),
    }
    for size in sizes:
        methods[f"meta-calibrated, {size} held out"] = lambda seed, size=size: meta_calibrated(
            X, y, labelled, passes, seed, size
        )
    compare(title, methods, options)
