"""Right answers: the definitions, written as plain loops over float64 with correctly rounded sums (`math.fsum`)."""

import math
from bisect import bisect_left, bisect_right

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.floating]
Labels = npt.NDArray[np.int64]
Correct = npt.NDArray[np.bool_]
Group = list[tuple[float, bool]]
"""The samples of one bin: confidence, and whether the prediction was right."""


def softmax(logits: Array) -> Array:
    """Rows of probabilities in float64."""
    exps = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    return np.asarray(exps / exps.sum(axis=1, keepdims=True))


def top_label(probs: Array, targets: Labels) -> tuple[Array, Correct]:
    """Confidence of the top label, and whether it is the target."""
    return probs.max(axis=1), probs.argmax(axis=1) == targets


def equal_width(confidences: Array, correct: Correct, num_bins: int) -> list[Group]:
    """Bins (a, b] of equal width, 0 in the first; an edge m / M is rounded to the dtype of the confidences."""
    edges = [float(confidences.dtype.type(m / num_bins)) for m in range(1, num_bins)]
    groups: list[Group] = [[] for _ in range(num_bins)]
    for confidence, right in zip(confidences.tolist(), correct.tolist(), strict=True):
        groups[bisect_left(edges, confidence)].append((confidence, right))
    return groups


def left_closed(confidences: Array, correct: Correct, num_bins: int) -> list[Group]:
    """Bins [a, b) of equal width, 1 in the last: another convention."""
    edges = [m / num_bins for m in range(1, num_bins)]
    groups: list[Group] = [[] for _ in range(num_bins)]
    for confidence, right in zip(confidences.tolist(), correct.tolist(), strict=True):
        groups[bisect_right(edges, confidence)].append((confidence, right))
    return groups


def equal_mass(confidences: Array, correct: Correct, num_bins: int, extra: str = "spread") -> list[Group]:
    """Bins of equal mass; tied confidences share the lower bin.

    Args:
        confidences: ``(n,)``.
        correct: ``(n,)``.
        num_bins: M.
        extra: where M does not divide n, whether the samples left over are ``"spread"`` evenly (the cuts are at
            ``m * n // M``) or go one each to the ``"first"`` bins.
    """
    pairs = sorted(zip(confidences.tolist(), correct.tolist(), strict=True), key=lambda pair: pair[0])
    ordered = [confidence for confidence, _ in pairs]
    share, rest = divmod(len(pairs), num_bins)
    groups, start = [], 0
    for m in range(1, num_bins + 1):
        cut = m * len(pairs) // num_bins if extra == "spread" else m * share + min(m, rest)
        end = max(start, bisect_right(ordered, ordered[cut - 1]) if cut else 0)
        groups.append(pairs[start:end])
        start = end
    return groups


def interpolated_mass(confidences: Array, correct: Correct, num_bins: int) -> list[Group]:
    """Bins [a, b) between interpolated quantiles, the outermost edges 0 and 1: another reading of equal mass."""
    edges = np.quantile(confidences, np.linspace(0.0, 1.0, num_bins + 1)).tolist()[1:-1]
    groups: list[Group] = [[] for _ in range(num_bins)]
    for confidence, right in zip(confidences.tolist(), correct.tolist(), strict=True):
        groups[bisect_right(edges, confidence)].append((confidence, right))
    return groups


def binned_error(groups: list[Group], norm: str = "l1") -> float:
    """ECE (``l1``) or MCE (``max``) of given bins."""
    total = sum(map(len, groups))
    gaps = [(abs(_gap(group)), len(group) / total) for group in groups if group]
    return max(gap for gap, _ in gaps) if norm == "max" else math.fsum(gap * weight for gap, weight in gaps)


def debiased_error(groups: list[Group]) -> float:
    """Kumar et al. 2019: the l2 error with each bin's sampling variance taken off; bins of one sample left out."""
    total, terms = sum(map(len, groups)), []
    for group in groups:
        if len(group) > 1:
            accuracy = sum(right for _, right in group) / len(group)
            variance = accuracy * (1.0 - accuracy) / (len(group) - 1)
            terms.append(len(group) / total * (_gap(group) ** 2 - variance))
    return math.sqrt(max(math.fsum(terms), 0.0))


def classwise_error(probs: Array, targets: Labels, num_bins: int) -> float:
    """Mean over the columns of the array of the one-against-rest ECE."""
    num_classes = int(probs.shape[1])
    errors = [binned_error(equal_width(probs[:, k], targets == k, num_bins)) for k in range(num_classes)]
    return math.fsum(errors) / num_classes


def smooth_error(confidences: Array, correct: Correct, points: int = 2000) -> float:
    """SmoothECE by quadrature over [0, 1] and bisection for the bandwidth that equals the error."""
    residuals = correct.astype(np.float64) - confidences.astype(np.float64)
    grid = (np.arange(points) + 0.5) / points

    def at(bandwidth: float) -> float:
        total = np.zeros(points)
        for image in (confidences, -confidences, 2.0 - confidences):  # reflections further out do not reach [0, 1]
            for part, weights in zip(np.array_split(image, 20), np.array_split(residuals, 20), strict=True):
                scaled = (grid[:, None] - part.astype(np.float64)) / bandwidth
                total += np.exp(-0.5 * scaled**2) @ weights
        return float(np.abs(total).mean() / (len(residuals) * bandwidth * math.sqrt(2.0 * math.pi)))

    low, high = 1e-3, 0.25
    for _ in range(16):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if at(middle) > middle else (low, middle)
    return at(0.5 * (low + high))


def best_temperature(logits: Array, targets: Labels) -> float:
    """Temperature of the greatest likelihood: bisection of the slope in 1 / T, which never falls."""
    wide = logits.astype(np.float64)
    at_target = wide[np.arange(len(targets)), targets]
    low, high = 1e-3, 1e3
    for _ in range(100):
        inverse = math.sqrt(low * high)
        slope = float(((softmax(wide * inverse) * wide).sum(axis=1) - at_target).mean())
        low, high = (inverse, high) if slope < 0.0 else (low, inverse)
    return 1.0 / math.sqrt(low * high)


def mmce(probs: Array, targets: Labels) -> float:
    """Root of the mean over pairs of r_i r_j exp(-2.5 |c_i - c_j|), with r correctness minus confidence."""
    confidences, correct = top_label(probs, targets)
    samples = list(zip(confidences.tolist(), (correct - confidences).tolist(), strict=True))
    terms = [r * other_r * math.exp(-2.5 * abs(c - other_c)) for c, r in samples for other_c, other_r in samples]
    return math.sqrt(math.fsum(terms)) / len(samples)


def mmce_weighted(probs: Array, targets: Labels) -> float:
    """As published: pairs of right ones over m**4, of wrong ones over w**4, mixed ones over m**2 w**2; both present."""
    confidences, correct = top_label(probs, targets)
    sizes = {True: int(correct.sum()), False: int((~correct).sum())}
    pairs = zip(confidences.tolist(), correct.tolist(), strict=True)
    samples = [(c, (right - c) / sizes[right] ** 2) for c, right in pairs]
    terms = [r * other_r * math.exp(-abs(c - other_c) / 0.4) for c, r in samples for other_c, other_r in samples]
    return math.sqrt(math.fsum(terms))


def _gap(group: Group) -> float:
    return (sum(right for _, right in group) - math.fsum(confidence for confidence, _ in group)) / len(group)
