"""Questions that have caught libraries out: very many samples, edges, odd inputs, ties, fits, tiny batches."""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from benchmarks import definitions, peers
from benchmarks.data import one_bin_events
from benchmarks.verdicts import Case
from metacal import functional

NUM_BINS = 15
LOOP = "float64 loop over the definition"
NO_ANSWER = "no value would mean anything"
LEFT_CLOSED = "in which bins are [a, b)"
EXACT_EDGES = "in which a float32 m/15 is compared with m/15 itself, above or below which it was rounded"
RECIPE = "L-BFGS recipe"
SHUFFLES = 20


def size_cases() -> list[Case]:
    """Millions of samples in one bin."""
    cases = []
    for samples in (4_000_000, 20_000_000):
        probs, targets, exact = one_bin_events(samples)
        cases.append(
            Case(
                f"{samples:,} samples in one bin",
                "exact rational: float32 probabilities above 1/2 are multiples of 2^-24, summed as integers",
                "A float32 sum of ones cannot pass 2^24 = 16,777,216 and rounds every addend long before.",
                peers.event_ece(probs, targets, NUM_BINS),
                exact,
            )
        )
    return cases


def edge_cases() -> list[Case]:
    """Confidences exactly 0, exactly 1 and on the edges between bins."""
    edges = torch.arange(1, NUM_BINS + 1, dtype=torch.float64) / NUM_BINS
    pairs = torch.cat((edges, edges - 0.5 / NUM_BINS))
    yes = torch.cat((torch.ones(NUM_BINS), torch.zeros(NUM_BINS))).long()
    return [
        _events("0 and 0.05, 10 bins", [0.0, 0.05], [1, 0], 10, "A confidence of exactly 0 belongs to the first bin."),
        _events("1 and 0.95, 10 bins", [1.0, 0.95], [0, 1], 10, "A confidence of exactly 1 belongs to the last bin."),
        _event_case(
            "0.2 and 0.15, 10 bins, float64",
            torch.tensor([0.2, 0.15], dtype=torch.float64),
            torch.tensor([1, 0]),
            10,
            "Bins are (a, b], so 0.2 and 0.15 share (0.1, 0.2].",
        ),
        _event_case(
            "every m/15 with the middle of its bin, float32",
            pairs.float(),
            yes,
            NUM_BINS,
            "Bins are (a, b]: an edge shares the bin below it, whichever way float32 rounds m/15.",
        ),
        _event_case(
            "every m/15 with the middle of its bin, float64",
            pairs,
            yes,
            NUM_BINS,
            "The same bins in float64: a dtype must not move samples between bins.",
        ),
    ]


def input_cases() -> list[Case]:
    """Logits that look like probabilities, and values, labels and shapes that should not be there."""
    probs, targets = _three_classes()
    logits = torch.rand(1000, 3, generator=torch.Generator().manual_seed(1))
    beyond = probs.clone()
    beyond[0] = torch.tensor([np.nextafter(np.float32(1.0), np.float32(2.0)), 0.0, 0.0])
    loop = f"{LOOP}, softmax in float64"
    return [
        Case(
            "logits that lie in [0, 1], said to be logits",
            loop,
            "What the scores are is the caller's to say, not the values'.",
            peers.top_label_ece_of_logits(logits, targets, NUM_BINS),
            _top_label_ece(definitions.softmax(logits.numpy()), targets),
        ),
        Case(
            "probabilities, one of them 1.0000001",
            f"{LOOP}, that one counted as 1",
            "A rounding in one entry does not turn 1,000 rows of probabilities into logits.",
            peers.top_label_ece(beyond, targets, NUM_BINS),
            _top_label_ece(beyond.clamp(max=1.0).numpy(), targets),
        ),
        _refused(
            "a NaN among the probabilities", _with(probs, float("nan")), targets, "One NaN row has no confidence."
        ),
        _refused(
            "an infinity among the probabilities", _with(probs, float("inf")), targets, "No probability is infinite."
        ),
        Case(
            "an infinity among the logits",
            NO_ANSWER,
            "The softmax of an infinite logit is NaN.",
            peers.top_label_ece_of_logits(_with(logits, float("inf")), targets, NUM_BINS),
            error_is_right=True,
        ),
        _refused(
            "a label of 3 among classes 0, 1, 2", probs, _labelled(targets, 3), "Such a label is a mistake upstream."
        ),
        _refused("a label of -1", probs, _labelled(targets, -1), "What -1 means has to be said (`ignore_index`)."),
        _refused("no samples", probs[:0], targets[:0], "A mean over nothing is no figure."),
        Case(
            "one class (K = 1)",
            "the definition: always right, with confidence 1",
            "With one class nothing is predicted; 0 follows from the definition, an error tells the caller more.",
            peers.top_label_ece(torch.ones(100, 1), torch.zeros(100, dtype=torch.long), NUM_BINS),
            0.0,
            error_is_right=True,
        ),
        Case(
            "3 samples, 15 bins",
            LOOP,
            "Empty bins count for nothing.",
            peers.top_label_ece(probs[:3], torch.tensor([0, 1, 2]), NUM_BINS),
            _top_label_ece(probs[:3].numpy(), torch.tensor([0, 1, 2])),
        ),
    ]


def class_cases() -> list[Case]:
    """A class that never occurs among the labels."""
    probs, targets = _three_classes()
    present = targets.clamp(max=1)
    return [
        Case(
            "ECE, class 2 of 3 absent from the labels",
            LOOP,
            "K comes from the array; the top label is compared with the target as ever.",
            peers.top_label_ece(probs, present, NUM_BINS),
            _top_label_ece(probs.numpy(), present),
        ),
        Case(
            "classwise ECE, class 2 of 3 absent from the labels",
            LOOP,
            "The probability given to a class that never came is an error like any other.",
            peers.classwise_ece(probs, present, NUM_BINS),
            definitions.classwise_error(probs.numpy(), present.numpy(), NUM_BINS),
        ),
    ]


def equal_mass_cases() -> list[Case]:
    """Equal-mass bins with ties, and with fewer samples than bins."""
    probs, targets = _three_classes()
    top = (probs.amax(1) * 10).ceil() / 10
    order = torch.arange(3).repeat(len(top), 1) == probs.argmax(1, keepdim=True)
    tied = torch.where(order, top.unsqueeze(1), ((1.0 - top) / 2).unsqueeze(1))
    few, labels = probs[:5], torch.tensor([0, 1, 2, 0, 1])
    confidences, correct = definitions.top_label(few.numpy(), labels.numpy())
    groups = definitions.equal_mass(confidences, correct, NUM_BINS)
    return [
        Case(
            f"tied confidences: spread of the value over {SHUFFLES} shuffles",
            "the definition knows no order of samples",
            "Tied confidences have to share a bin, or the value depends on the order of the file.",
            _spread_over_shuffles(tied, targets),
            0.0,
            tolerance=1e-6,
        ),
        Case(
            "5 samples, 15 bins",
            LOOP,
            "Every sample has a bin of its own, the other bins are empty.",
            peers.equal_mass_ece(few, labels, NUM_BINS),
            definitions.binned_error(groups),
        ),
    ]


def smooth_cases() -> list[Case]:
    """SmoothECE away from the ends of [0, 1], and with confidences at the very end."""
    probs, targets = _three_classes()
    inside = probs.amax(1) < 0.9
    inner, labels = probs[inside], targets[inside]
    at_end = inner.clone()
    at_end[::3] = torch.nn.functional.one_hot(inner[::3].argmax(1), 3).float()
    known = "quadrature of the definition in float64, bandwidth by bisection; within 0.001"
    return [
        Case(
            asked,
            known,
            rule,
            peers.smooth_ece(scores, labels),
            definitions.smooth_error(*definitions.top_label(scores.numpy(), labels.numpy())),
            tolerance=1e-3,
        )
        for asked, scores, rule in (
            ("confidences below 0.9", inner, "Away from the ends no reflection matters."),
            (
                "a third of the confidences exactly 1",
                at_end,
                "A sample at 1 and its mirror image coincide there, and both count.",
            ),
        )
    ]


def temperature_cases() -> list[Case]:
    """Temperature of over-confident logits whose true temperature is 3."""
    generator = torch.Generator().manual_seed(0)
    calibrated = 2.5 * torch.randn(5000, 10, generator=generator, dtype=torch.float64)
    targets = torch.multinomial(torch.softmax(calibrated, dim=1), 1, generator=generator).squeeze(1)
    logits = 3.0 * calibrated
    best = definitions.best_temperature(logits.numpy(), targets.numpy())
    cases = []
    for given, dtype in ((logits.float(), "float32"), (logits, "float64")):
        cases.append(
            Case(
                f"best temperature, true T = 3, {dtype}",
                "bisection of the likelihood's slope in float64; within 0.01",
                "The likelihood has one maximum in 1 / T; a fit that stops elsewhere has to say so.",
                peers.temperature(given, targets) | {RECIPE: _recipe(given, targets)},
                best,
                tolerance=1e-2,
                libraries=(peers.METACAL, peers.NETCAL, RECIPE),
            )
        )
    return cases


def mmce_cases() -> list[Case]:
    """MMCE, and its weighted form where a batch has no right or no wrong prediction."""
    probs, targets = _three_classes()
    logits = probs[:100].log()
    top = logits.argmax(1)
    pair, labels = torch.tensor([[4.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 0])
    finite = "A training loss must not turn a lucky batch into NaN."
    columns = (peers.METACAL, peers.NETCAL)
    return [
        Case(
            "MMCE of 100 predictions",
            LOOP,
            "The root of the mean over pairs.",
            peers.root_mmce(logits, targets[:100]),
            definitions.mmce(definitions.softmax(logits.numpy()), targets[:100].numpy()),
            libraries=columns,
        ),
        Case(
            "weighted MMCE, every prediction right",
            "the loss must be finite",
            finite,
            _weighted(logits, top),
            any_finite=True,
            libraries=columns,
        ),
        Case(
            "weighted MMCE, every prediction wrong",
            "the loss must be finite",
            finite,
            _weighted(logits, (top + 1) % 3),
            any_finite=True,
            libraries=columns,
        ),
        Case(
            "weighted MMCE, n = 2",
            LOOP,
            "One right and one wrong prediction are enough for every term.",
            _weighted(pair, labels),
            definitions.mmce_weighted(definitions.softmax(pair.numpy()), labels.numpy()),
            libraries=columns,
        ),
    ]


def _three_classes() -> tuple[Tensor, Tensor]:
    """1,000 over-confident predictions among 3 classes."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(1000, 3, generator=generator)
    targets = torch.multinomial(torch.softmax(logits, dim=1), 1, generator=generator).squeeze(1)
    return torch.softmax(2.0 * logits, dim=1), targets


def _top_label_ece(probs: definitions.Array, targets: Tensor) -> float:
    confidences, correct = definitions.top_label(probs, targets.numpy())
    return definitions.binned_error(definitions.equal_width(confidences, correct, NUM_BINS))


def _events(asked: str, probs: list[float], targets: list[int], num_bins: int, rule: str) -> Case:
    return _event_case(asked, torch.tensor(probs), torch.tensor(targets), num_bins, rule)


def _event_case(asked: str, probs: Tensor, targets: Tensor, num_bins: int, rule: str) -> Case:
    array, yes = probs.numpy(), targets.bool().numpy()
    right = definitions.binned_error(definitions.equal_width(array, yes, num_bins))
    readings = {
        EXACT_EDGES: definitions.binned_error(definitions.equal_width(array.astype(np.float64), yes, num_bins)),
        LEFT_CLOSED: definitions.binned_error(definitions.left_closed(array, yes, num_bins)),
    }
    return Case(asked, LOOP, rule, peers.event_ece(probs, targets, num_bins), right, readings=readings)


def _refused(asked: str, probs: Tensor, targets: Tensor, rule: str) -> Case:
    return Case(asked, NO_ANSWER, rule, peers.top_label_ece(probs, targets, NUM_BINS), error_is_right=True)


def _with(scores: Tensor, value: float) -> Tensor:
    changed = scores.clone()
    changed[7, 0] = value
    return changed


def _labelled(targets: Tensor, label: int) -> Tensor:
    changed = targets.clone()
    changed[7] = label
    return changed


def _spread_over_shuffles(probs: Tensor, targets: Tensor) -> peers.Calls:
    """Largest minus smallest value over shuffles of the samples, for every library with equal-mass bins."""
    generator = torch.Generator().manual_seed(0)
    orders = [torch.randperm(len(targets), generator=generator) for _ in range(SHUFFLES)]
    shuffled = [peers.equal_mass_ece(probs[order], targets[order], NUM_BINS) for order in orders]

    def spread(name: str) -> float:
        values = [calls[name]() for calls in shuffled]
        return max(values) - min(values)

    return {name: partial(spread, name) for name in shuffled[0]}


def _recipe(logits: Tensor, targets: Tensor) -> Callable[[], float]:
    """The popular one: L-BFGS on T itself from 1.5, learning rate 0.01, 50 iterations."""

    def run() -> float:
        temperature = torch.full((1,), 1.5, dtype=logits.dtype, requires_grad=True)
        optimizer = torch.optim.LBFGS([temperature], lr=0.01, max_iter=50)

        def loss() -> Tensor:
            optimizer.zero_grad()
            value = torch.nn.functional.cross_entropy(logits / temperature, targets)
            (temperature.grad,) = torch.autograd.grad(value, temperature)
            return value

        optimizer.step(loss)  # type: ignore[no-untyped-call]
        return temperature.item()

    return run


def _weighted(logits: Tensor, targets: Tensor) -> peers.Calls:
    return {peers.METACAL: lambda: float(functional.mmce_weighted(logits=logits, targets=targets))}
