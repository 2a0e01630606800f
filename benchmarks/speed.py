"""Speed of the calibration errors against every library that computes the same value."""

from functools import partial

from torch import Tensor

from benchmarks import peers
from benchmarks.data import synthetic_predictions
from benchmarks.report import Part, Row, Target
from benchmarks.timing import interleave

SIZES = ((1_000_000, 10), (50_000, 1000))
TOP_LABEL_TARGET = 1.5
AMAX, AMAX_TARGET = "one amax over the classes", 3.0
"""Which has to read every probability once, and checks nothing."""

CLASSWISE_TARGET = 2.0
ROUNDS = 15


def measure_top_label() -> Part:
    """Top-label ECE from float32 probabilities."""
    return _against_peers("Top-label ECE", "top_label", TOP_LABEL_TARGET)


def measure_classwise() -> Part:
    """Classwise ECE from float32 probabilities."""
    return _against_peers("Classwise ECE", "classwise", CLASSWISE_TARGET)


def _amax(probs: Tensor) -> float:
    return float(probs.amax(dim=1)[0])


def _against_peers(title: str, measure: str, bound: float) -> Part:
    rows: list[Row] = []
    targets = []
    for samples, num_classes in SIZES:
        probs, labels = synthetic_predictions(samples, num_classes)
        ask = peers.top_label_ece if measure == "top_label" else peers.classwise_ece
        calls = ask(probs, labels)
        if measure == "top_label":
            calls[AMAX] = partial(_amax, probs)
        timings = interleave(calls, ROUNDS)
        ours = timings[peers.METACAL].seconds
        size = f"{samples:,} x {num_classes:,}"
        for name, timing in timings.items():
            rows.append(
                {
                    "size": size,
                    "library": name,
                    "ms": 1e3 * timing.seconds,
                    "time / ours": timing.seconds / ours,
                    "value": f"{timing.value:.6f}",
                    "rounds": timing.rounds,
                }
            )
        fastest = min(timing.seconds for name, timing in timings.items() if name not in (peers.METACAL, AMAX))
        targets.append(Target(f"{title}, {size}, fastest peer's time / ours", fastest / ours, bound, at_least=True))
        if AMAX in timings:
            times = ours / timings[AMAX].seconds
            targets.append(Target(f"{title}, {size}, our time / {AMAX}", times, AMAX_TARGET, at_least=False))
    return Part(
        f"{title}: best of the rounds, variants taking turns, validation on",
        rows,
        targets,
        notes=(
            "float32 probabilities of scaled normal logits, accuracy about 0.8; arrays are handed to NumPy libraries "
            "beforehand. A library that has used 15 s takes no further turns.",
        ),
    )
