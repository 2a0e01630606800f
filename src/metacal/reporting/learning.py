"""Numbers of a run's figures over time: learning curves, DECE against ECE, and smoothing strength."""

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from metacal.reporting.reliability import finite
from metacal.reporting.run_view import RunView

PARTS = {"train": "training", "val": "validation", "test": "test"}
MOST_LINES = 100
DROP = 0.5
"""A learning rate that falls to this share of the last epoch's or less has dropped, not decayed."""


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
    """DECE against ECE, one point an epoch.

    Attributes:
        part: which data they were measured on.
        epochs: number of each point's epoch.
        ece: as measured.
        dece: its differentiable stand-in.
        correlation: Pearson's; None with fewer than three points or without spread.
    """

    part: str
    epochs: list[int]
    ece: list[float]
    dece: list[float]
    correlation: float | None


@dataclass(frozen=True)
class Strengths:
    """Smoothing strength over epochs.

    Attributes:
        epochs: 1, 2, ...
        classes: one line a class; beyond `MOST_LINES`, so many from the weakest to the strongest at the end.
        mean: over all classes.
        lowest: over all classes.
        highest: over all classes.
        num_classes: lines there would be if all were shown.
        drops: first epochs with a lower learning rate.
    """

    epochs: list[int]
    classes: list[Line]
    mean: list[float]
    lowest: list[float]
    highest: list[float]
    num_classes: int
    drops: list[int]


def prepare_curves(run: RunView) -> Curves | None:
    """Learning curves of whatever the run measured; None if it measured nothing.

    Examples:
        >>> run = RunView("r", "MC", "d", ("a", "b"), {"val_ece": [0.2, 0.1], "lr": [0.1, 0.01]})
        >>> curves = prepare_curves(run)
        >>> curves.ece, curves.drops
        ([Line(name='validation', values=[0.2, 0.1])], [2])
    """
    curves = Curves(
        epochs=list(range(1, run.num_epochs + 1)),
        error=_lines(run, "error"),
        ece=_lines(run, "ece"),
        loss=_lines(run, "loss"),
        drops=learning_rate_drops(run),
    )
    return curves if curves.error or curves.ece or curves.loss else None


def prepare_agreement(run: RunView) -> Agreement | None:
    """DECE against ECE on the validation data, or on the training data if only that has both."""
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


def learning_rate_drops(run: RunView) -> list[int]:
    """First epochs (from 1) whose learning rate is at most half the one before; a smooth decay has none."""
    rates = list(run.epochs.get("lr", ()))
    return [epoch for epoch, (last, rate) in enumerate(pairwise(rates), start=2) if rate <= DROP * last]


def correlation(first: Tensor, second: Tensor) -> Tensor:
    """Pearson's over the last dimension; 0 where one of them does not vary.

    Examples:
        >>> import torch
        >>> round(correlation(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2.0, 4.0, 6.0])).item(), 6)
        1.0
    """
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
