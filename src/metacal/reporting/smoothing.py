"""Numbers of what a run has learned: the smoothing matrix, how it treats superclasses, and L2 coefficients."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

L2_BINS = 40
MOST_CLASSES = 100
"""Classes that the matrix shows: ten thousand cells are as many as an eye and a page can hold."""


@dataclass(frozen=True)
class SmoothingMatrix:
    """Share that each class (row) gives to each other (column); the diagonal is 0.

    Attributes:
        class_names: of rows and columns, in the order shown.
        values: K rows of K.
        highest: the largest of them.
        num_classes: K in all; beyond `MOST_CLASSES`, only those that give and get the most are shown.
    """

    class_names: list[str]
    values: list[list[float]]
    highest: float
    num_classes: int


@dataclass(frozen=True)
class SuperclassRow:
    """One superclass: its classes, and the mean share its classes give to one class within and one outside it."""

    classes: list[str]
    within: float | None
    across: float | None


@dataclass(frozen=True)
class SuperclassSmoothing:
    """Within- against across-superclass smoothing: the mean share given to one other class.

    Attributes:
        within: over pairs of the same superclass; None without such pairs.
        across: over pairs of different superclasses; None without such pairs.
        rows: the same for each superclass, in order of its number.
    """

    within: float | None
    across: float | None
    rows: list[SuperclassRow]


@dataclass(frozen=True)
class Histogram:
    """How often learned L2 coefficients of one parameter fall into bins of equal width."""

    name: str
    edges: list[float]
    counts: list[int]
    mean: float
    negative: float


def prepare_smoothing(
    smoothing: Tensor, class_names: Sequence[str], superclasses: Sequence[int] | None = None
) -> SmoothingMatrix:
    """A learned smoothing matrix ``(K, K)``; classes of one superclass are side by side.

    Examples:
        >>> import torch
        >>> prepare_smoothing(torch.tensor([[0.0, 0.05], [0.02, 0.0]]), ("a", "b")).highest
        0.05000000074505806
    """
    matrix = _off_diagonal(smoothing)
    busiest = (matrix.sum(dim=0) + matrix.sum(dim=1)).argsort(descending=True, stable=True)[:MOST_CLASSES]
    groups = superclasses or (0,) * len(class_names)
    order = sorted(busiest.tolist(), key=lambda number: (groups[number], number))
    values = matrix[order][:, order]
    names = [class_names[number] for number in order]
    return SmoothingMatrix(names, values.tolist(), float(values.max()), len(class_names))


def prepare_superclasses(
    smoothing: Tensor, class_names: Sequence[str], superclasses: Sequence[int]
) -> SuperclassSmoothing:
    """How much a smoothing matrix ``(K, K)`` gives to classes of the same superclass and to others."""
    values = _off_diagonal(smoothing)
    groups = torch.tensor(superclasses, device=values.device)
    same = groups.unsqueeze(1) == groups
    others = ~torch.eye(len(groups), dtype=torch.bool, device=values.device)
    rows = []
    for group in sorted(set(superclasses)):
        own = groups == group
        members = [name for name, number in zip(class_names, superclasses, strict=True) if number == group]
        rows.append(SuperclassRow(members, _mean(values[own], (same & others)[own]), _mean(values[own], (~same)[own])))
    return SuperclassSmoothing(_mean(values, same & others), _mean(values, ~same), rows)


def prepare_l2(learned: Mapping[str, Tensor]) -> list[Histogram]:
    """A histogram for each parameter with learned L2 coefficients; values that are not finite are left out."""
    histograms = []
    for name, coefficients in learned.items():
        values = coefficients.detach().double().reshape(-1)
        values = values[torch.isfinite(values)]
        if not len(values):
            continue
        low, high = (float(bound) for bound in torch.aminmax(values))
        margin = 0.5 * max(abs(low), 1e-12) if low == high else 0.0
        edges = torch.linspace(low - margin, high + margin, L2_BINS + 1, dtype=torch.float64, device=values.device)
        index = torch.bucketize(values, edges[1:-1], right=True)
        counts = torch.bincount(index, minlength=L2_BINS)
        negative = float((values < 0).double().mean())
        histograms.append(Histogram(name, edges.tolist(), counts.tolist(), float(values.mean()), negative))
    return histograms


def _off_diagonal(smoothing: Tensor) -> Tensor:
    return smoothing.detach().double().clone().fill_diagonal_(0.0)


def _mean(values: Tensor, mask: Tensor) -> float | None:
    return float(values[mask].mean()) if bool(mask.any()) else None
