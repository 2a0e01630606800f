"""Numbers of one training run, a `RunView`: learning curves, DECE against ECE, and what was learned."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.evaluation.predictions import Predictions
from metacal.reporting.reliability import finite

PARTS = {"train": "training", "val": "validation", "test": "test"}
MOST_LINES = 100
MOST_CLASSES = 100
"""Classes that the smoothing matrix shows: ten thousand cells are as many as an eye and a page can hold."""
DROP = 0.5
"""A learning rate that falls to this share of the last epoch's or less has dropped, not decayed."""
L2_BINS = 40


@dataclass(frozen=True, eq=False)
class RunView:
    """One training run as a report shows it; shapes are checked when it is made, and what is None is not shown.

    Attributes:
        name: what to call the run.
        method: how it was trained.
        dataset: what it was trained on.
        class_names: K names.
        epochs: columns by name, one value an epoch: ``train_loss``, ``train_error``, ``train_ece``, ``val_error``,
            ``val_ece``, ``val_dece``, ``lr``; any may be missing, and a value that was not measured is NaN.
        strengths: smoothing strength of each class after each epoch, ``(epochs, K)``, or ``(epochs, 1)`` when the
            classes share one.
        smoothing: learned share that each class (row) gives to each other (column), ``(K, K)``, at the best checkpoint.
        l2: learned L2 coefficients by parameter name.
        superclasses: the superclass of each class.
        predictions: of the best checkpoint on the test set.
        shifts: what was measured of it under shifts.

    Examples:
        >>> run = RunView("first", "MC", "CIFAR-10", ("cat", "dog"), {"val_ece": [0.20, 0.05]})
        >>> run.num_epochs, run.num_classes
        (2, 2)
    """

    name: str
    method: str
    dataset: str
    class_names: tuple[str, ...]
    epochs: Mapping[str, Sequence[float]]
    strengths: Tensor | None = None
    smoothing: Tensor | None = None
    l2: Mapping[str, Tensor] | None = None
    superclasses: tuple[int, ...] | None = None
    predictions: Predictions | None = None
    shifts: Sequence[Mapping[str, Any]] = ()

    def __post_init__(self) -> None:
        lengths = {name: len(column) for name, column in self.epochs.items()}
        if len(set(lengths.values())) > 1:
            raise InvalidValueError(f"`epochs` must have columns of one length, got {lengths}.")
        for name in ("strengths", "smoothing"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, Tensor):
                raise InvalidTypeError(f"`{name}` must be a tensor or None, got {type(value).__name__}.")
        size = self.num_classes
        if self.strengths is not None and (self.strengths.ndim != 2 or self.strengths.shape[1] not in (1, size)):
            raise InvalidValueError(
                f"`strengths` must have shape (epochs, {size}) or (epochs, 1), got {tuple(self.strengths.shape)}."
            )
        if self.smoothing is not None and self.smoothing.shape != (size, size):
            raise InvalidValueError(f"`smoothing` must have shape ({size}, {size}), got {tuple(self.smoothing.shape)}.")
        if self.superclasses is not None and len(self.superclasses) != size:
            raise InvalidValueError(
                f"`superclasses` must give one superclass to each of {size} classes, got {len(self.superclasses)}."
            )

    @property
    def num_epochs(self) -> int:
        """Epochs that the columns hold."""
        return len(next(iter(self.epochs.values()), ()))

    @property
    def num_classes(self) -> int:
        """K."""
        return len(self.class_names)


@dataclass(frozen=True)
class Line:
    """One named line; None where it was not measured."""

    name: str
    values: list[float | None]


@dataclass(frozen=True)
class Curves:
    """Lines over epochs 1, 2, ...; ``drops`` are the first epochs with a lower learning rate."""

    epochs: list[int]
    error: list[Line]
    ece: list[Line]
    loss: list[Line]
    drops: list[int]


@dataclass(frozen=True)
class Agreement:
    """DECE against ECE on a part of the data, one point an epoch.

    ``correlation`` is Pearson's; None with fewer than three points or without spread.
    """

    part: str
    epochs: list[int]
    ece: list[float]
    dece: list[float]
    correlation: float | None


@dataclass(frozen=True)
class Strengths:
    """Smoothing strength over epochs: a line a class, and mean, lowest and highest over all classes.

    Beyond `MOST_LINES` of ``num_classes``, so many lines from the weakest to the strongest class at the end.
    """

    epochs: list[int]
    classes: list[Line]
    mean: list[float]
    lowest: list[float]
    highest: list[float]
    num_classes: int
    drops: list[int]


@dataclass(frozen=True)
class SmoothingMatrix:
    """Share that each class (row) gives to each other (column); the diagonal is 0.

    Beyond `MOST_CLASSES` of ``num_classes``, only those that give and get the most are shown.
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
    """Mean share given to one other class of the same and of another superclass, over all classes and row by row.

    A share is None where there are no such pairs.
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


def prepare_curves(run: RunView) -> Curves | None:
    """Learning curves of whatever the run measured; None if it measured nothing.

    Examples:
        >>> run = RunView("r", "MC", "d", ("a", "b"), {"val_ece": [0.2, 0.1], "lr": [0.1, 0.01]})
        >>> curves = prepare_curves(run)
        >>> curves.ece, curves.drops
        ([Line(name='validation', values=[0.2, 0.1])], [2])
    """
    error, ece, loss = (_lines(run, measure) for measure in ("error", "ece", "loss"))
    if not (error or ece or loss):
        return None
    return Curves(list(range(1, run.num_epochs + 1)), error, ece, loss, learning_rate_drops(run))


def prepare_agreement(run: RunView) -> Agreement | None:
    """DECE against ECE on the validation data, or on another part if only that has both."""
    for part in ("val", "test", "train"):
        ece, dece = run.epochs.get(f"{part}_ece"), run.epochs.get(f"{part}_dece")
        if ece is None or dece is None:
            continue
        both = [
            (epoch, float(x), float(y))
            for epoch, (x, y) in enumerate(zip(ece, dece, strict=True), start=1)
            if math.isfinite(x) and math.isfinite(y)
        ]
        if both:
            epochs, x, y = (list(column) for column in zip(*both, strict=True))
            return Agreement(PARTS[part], epochs, x, y, _correlation(x, y))
    return None


def prepare_strengths(run: RunView) -> Strengths | None:
    """Smoothing strength over training; None if the run learned none."""
    if run.strengths is None or not len(run.strengths):
        return None
    values = run.strengths.detach().double()
    names = run.class_names if values.shape[1] == run.num_classes else ("all classes",)
    shown = list(range(len(names)))
    if len(shown) > MOST_LINES:
        ranked = values[-1].argsort(stable=True)
        shown = sorted(ranked[torch.linspace(0, len(ranked) - 1, MOST_LINES).round().long()].tolist())
    lines = values.T.tolist()
    return Strengths(
        epochs=list(range(1, len(values) + 1)),
        classes=[Line(names[number], lines[number]) for number in shown],
        mean=values.mean(dim=1).tolist(),
        lowest=values.amin(dim=1).tolist(),
        highest=values.amax(dim=1).tolist(),
        num_classes=len(names),
        drops=[epoch for epoch in learning_rate_drops(run) if epoch <= len(values)],
    )


def prepare_smoothing(
    smoothing: Tensor, class_names: Sequence[str], superclasses: Sequence[int] | None = None
) -> SmoothingMatrix:
    """A learned smoothing matrix ``(K, K)``; classes of one superclass are side by side."""
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
    within = same & ~torch.eye(len(groups), dtype=torch.bool, device=values.device)
    rows = []
    for group in sorted(set(superclasses)):
        own = groups == group
        members = [name for name, number in zip(class_names, superclasses, strict=True) if number == group]
        rows.append(SuperclassRow(members, _mean(values[own], within[own]), _mean(values[own], ~same[own])))
    return SuperclassSmoothing(_mean(values, within), _mean(values, ~same), rows)


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
        counts = torch.bincount(torch.bucketize(values, edges[1:-1], right=True), minlength=L2_BINS)
        negative = float((values < 0).double().mean())
        histograms.append(Histogram(name, edges.tolist(), counts.tolist(), float(values.mean()), negative))
    return histograms


def learning_rate_drops(run: RunView) -> list[int]:
    """First epochs (from 1) whose learning rate is at most half the one before; a smooth decay has none."""
    rates = list(run.epochs.get("lr", ()))
    return [epoch for epoch, (last, rate) in enumerate(pairwise(rates), start=2) if rate <= DROP * last]


def correlation(first: Tensor, second: Tensor) -> Tensor:
    """Pearson's over the last dimension; 0 where one of them does not vary."""
    a, b = (values - values.mean(dim=-1, keepdim=True) for values in (first, second))
    spread = a.square().sum(dim=-1).sqrt() * b.square().sum(dim=-1).sqrt()
    return (a * b).sum(dim=-1) / spread.clamp(min=1e-30)


def _lines(run: RunView, measure: str) -> list[Line]:
    columns = ((name, run.epochs.get(f"{part}_{measure}")) for part, name in PARTS.items())
    lines = [Line(name, finite(column)) for name, column in columns if column is not None]
    return [line for line in lines if any(value is not None for value in line.values)]


def _correlation(x: list[float], y: list[float]) -> float | None:
    if len(x) < 3:
        return None
    both = torch.tensor([x, y], dtype=torch.float64)
    return correlation(*both).item() if bool((both.std(dim=1) > 0).all()) else None


def _off_diagonal(smoothing: Tensor) -> Tensor:
    return smoothing.detach().double().clone().fill_diagonal_(0.0)


def _mean(values: Tensor, mask: Tensor) -> float | None:
    return float(values[mask].mean()) if bool(mask.any()) else None
