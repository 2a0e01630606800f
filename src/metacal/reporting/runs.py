"""Numbers of one training run, a `RunView`: learning curves and learned hyper-parameters."""

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
MOST_CLASSES = 100  # of a smoothing matrix
DROP = 0.5  # a learning rate that falls to this share of the last epoch's or less has dropped, not decayed
L2_BINS = 40


@dataclass(frozen=True, eq=False)
class RunView:
    """One training run as a report shows it; shapes are checked on construction, and None is not shown.

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
        size = self.num_classes
        rules = {"strengths": f"(epochs, {size}) or (epochs, 1)", "smoothing": f"({size}, {size})"}
        for name, rule in rules.items():
            value = getattr(self, name)
            if value is None:
                continue
            if not isinstance(value, Tensor):
                raise InvalidTypeError(f"`{name}` must be a tensor or None, got {type(value).__name__}.")
            rows = len(value) if name == "strengths" else size
            if value.shape != (rows, size) and (name == "smoothing" or value.shape != (rows, 1)):
                raise InvalidValueError(f"`{name}` must have shape {rule}, got {tuple(value.shape)}.")
        if self.superclasses is not None and len(self.superclasses) != size:
            raise InvalidValueError(
                f"`superclasses` must give one superclass to each of {size} classes, got {len(self.superclasses)}."
            )

    @property
    def num_epochs(self) -> int:
        """Number of epochs in the columns."""
        return len(next(iter(self.epochs.values()), ()))

    @property
    def num_classes(self) -> int:
        """K."""
        return len(self.class_names)


@dataclass(frozen=True)
class Line:
    """One named line; None where nothing was measured."""

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
class Strengths:
    """Smoothing strength over epochs: a line a class (at most `MOST_LINES`), and mean and range over all classes."""

    epochs: list[int]
    classes: list[Line]
    mean: list[float]
    lowest: list[float]
    highest: list[float]
    num_classes: int
    drops: list[int]


@dataclass(frozen=True)
class SmoothingMatrix:
    """Share that each class (row) gives to each other (column), of the `MOST_CLASSES` that give and get the most."""

    class_names: list[str]
    values: list[list[float]]
    highest: float
    num_classes: int


@dataclass(frozen=True)
class SuperclassRow:
    """One superclass: its classes, and the mean share these give to one class within and one outside it."""

    classes: list[str]
    within: float | None
    across: float | None


@dataclass(frozen=True)
class SuperclassSmoothing:
    """The same over all classes, and row by row; None where there are no such pairs."""

    within: float | None
    across: float | None
    rows: list[SuperclassRow]


@dataclass(frozen=True)
class Histogram:
    """Learned L2 coefficients of one parameter in bins of equal width."""

    name: str
    edges: list[float]
    counts: list[int]
    mean: float
    negative: float  # share below 0


def prepare_curves(run: RunView) -> Curves | None:
    """Return learning curves of everything the run measured; None if it measured nothing."""
    error, ece, loss = (_lines(run, measure) for measure in ("error", "ece", "loss"))
    if not (error or ece or loss):
        return None
    return Curves(list(range(1, run.num_epochs + 1)), error, ece, loss, learning_rate_drops(run))


def prepare_strengths(run: RunView) -> Strengths | None:
    """Smoothing strength over training; None if the run learned none."""
    if run.strengths is None or not len(run.strengths):
        return None
    values = run.strengths.detach().double()
    names = run.class_names if values.shape[1] == run.num_classes else ("all classes",)
    ranked = values[-1].argsort(stable=True)  # of many classes some, from the weakest to the strongest at the end
    kept = torch.linspace(0, len(names) - 1, min(MOST_LINES, len(names))).round().long()
    lines = values.T.tolist()
    return Strengths(
        epochs=list(range(1, len(values) + 1)),
        classes=[Line(names[number], lines[number]) for number in sorted(ranked[kept].tolist())],
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
    """Compute the smoothing ``(K, K)`` within and across superclasses."""
    values = _off_diagonal(smoothing)
    groups = torch.tensor(superclasses, device=values.device)
    same = groups.unsqueeze(1) == groups
    within = same & ~torch.eye(len(groups), dtype=torch.bool, device=values.device)

    def mean(own: Tensor, mask: Tensor) -> float | None:
        shares = values[mask & own.unsqueeze(1)]
        return float(shares.mean()) if len(shares) else None

    rows = []
    for group in sorted(set(superclasses)):
        own = groups == group
        members = [name for name, number in zip(class_names, superclasses, strict=True) if number == group]
        rows.append(SuperclassRow(members, mean(own, within), mean(own, ~same)))
    everyone = torch.ones_like(groups, dtype=torch.bool)
    return SuperclassSmoothing(mean(everyone, within), mean(everyone, ~same), rows)


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
    rates = run.epochs.get("lr", ())
    return [epoch for epoch, (last, rate) in enumerate(pairwise(rates), start=2) if rate <= DROP * last]


def correlation(first: Tensor, second: Tensor) -> Tensor:
    """Pearson correlation over the last dimension; 0 if one of them is constant."""
    a, b = (values - values.mean(dim=-1, keepdim=True) for values in (first, second))
    spread = a.square().sum(dim=-1).sqrt() * b.square().sum(dim=-1).sqrt()
    return (a * b).sum(dim=-1) / spread.clamp(min=1e-30)


def _lines(run: RunView, measure: str) -> list[Line]:
    lines = [Line(name, finite(run.epochs.get(f"{part}_{measure}", ()))) for part, name in PARTS.items()]
    return [line for line in lines if any(value is not None for value in line.values)]


def _off_diagonal(smoothing: Tensor) -> Tensor:
    return smoothing.detach().double().clone().fill_diagonal_(0.0)
