"""The study on simulated data: ECE by the number of labels, and what each method believes of the plane."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from scipy import stats

from metacal.reporting.style import INK, SERIES, in_percent, new_figure

NAMES = {"oracle": "oracle", "ce": "cross-entropy", "ls": "label smoothing", "mc": "meta-calibration"}
SWEPT = {**NAMES, "ce-n": "cross-entropy on half of them"}


@dataclass(frozen=True)
class SweepLine:
    """One method: mean ECE at each size, with the 95 % interval of the mean over draws."""

    method: str
    sizes: list[int]
    mean: list[float]
    low: list[float]
    high: list[float]
    draws: list[int]


@dataclass(frozen=True)
class Boundary:
    """One method on one draw: the logit of class 1 is ``weight . x + bias``.

    Attributes:
        method: which.
        weight: two numbers.
        bias: one.
        ece: on the test points.
        points: test points as ``[x, y, label]``.
    """

    method: str
    weight: list[float]
    bias: float
    ece: float
    points: list[list[float]]


def prepare_sweep(records: Sequence[dict[str, Any]]) -> list[SweepLine]:
    """Mean and interval of every method and size, from records of draws."""
    sizes = sorted({record["size"] for record in records})
    lines = []
    for method in SWEPT:
        groups = [[r["methods"][method]["ece"] for r in records if r["size"] == size] for size in sizes]
        means = [statistics.fmean(group) for group in groups]
        halves = [half_interval(group) for group in groups]
        low, high = ([mean + sign * half for mean, half in zip(means, halves, strict=True)] for sign in (-1.0, 1.0))
        lines.append(SweepLine(method, sizes, means, low, high, [len(group) for group in groups]))
    return lines


def half_interval(values: Sequence[float]) -> float:
    """Half the width of Student's 95 % interval of a mean; 0 for a single value.

    Examples:
        >>> round(half_interval([1.0, 2.0, 3.0]), 3)
        2.484
    """
    if len(values) < 2:
        return 0.0
    return float(stats.t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))


def plot_sweep(lines: Sequence[SweepLine]) -> Figure:
    """ECE over the number of labels, both on logarithmic axes."""
    figure = new_figure(6.6, 4.0)
    axis = figure.subplots()
    for line, (colour, style) in zip(lines, SERIES, strict=False):
        labels = [2 * size for size in line.sizes]
        axis.plot(labels, line.mean, color=colour, linestyle=style, marker="o", ms=3.5, label=SWEPT[line.method])
        axis.fill_between(
            labels, [max(low, 1e-4) for low in line.low], line.high, color=colour, alpha=0.13, linewidth=0
        )
    axis.set(xscale="log", yscale="log", xlabel="Labels seen by each method (2n)", ylabel="ECE")
    axis.set_xticks([2 * size for size in lines[0].sizes], [str(2 * size) for size in lines[0].sizes])
    axis.minorticks_off()
    ticks = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
    axis.set_yticks(ticks)
    fewest, most = min(lines[0].draws), max(lines[0].draws)
    draws = f"{most}" if fewest == most else f"{fewest} to {most}"
    title = f"Simulated data: mean of {draws} draws, 95 % intervals" if most > 1 else "Simulated data: one draw"
    axis.set_title(title, loc="left")
    in_percent(axis)
    axis.legend()
    return figure


def prepare_boundary(records: Sequence[dict[str, Any]]) -> list[Boundary]:
    """Every method on the first of the draws."""
    first = records[0]
    return [
        Boundary(method, found["weight"], found["bias"], found["ece"], first["points"])
        for method in NAMES
        for found in [first["methods"][method]]
    ]


def plot_boundary(methods: Sequence[Boundary]) -> Figure:
    """Test points shaded by the probability each method gives them, and the line at one half."""
    figure = new_figure(3.0 * len(methods), 3.2)
    axes = figure.subplots(1, len(methods), sharey=True, squeeze=False)[0]
    for axis, found in zip(axes, methods, strict=True):
        x, y, labels = zip(*found.points, strict=True)
        probs = [
            1.0 / (1.0 + math.exp(-max(-500.0, found.weight[0] * a + found.weight[1] * b + found.bias)))
            for a, b in zip(x, y, strict=True)
        ]
        for label, marker in ((0, "o"), (1, "^")):
            mine = [place for place, value in enumerate(labels) if int(value) == label]
            points = ([x[i] for i in mine], [y[i] for i in mine])
            shown = axis.scatter(
                *points, c=[probs[i] for i in mine], cmap="RdBu_r", vmin=0, vmax=1, s=14, marker=marker
            )
        draw_boundary(axis, found)
        axis.set(title=f"{NAMES[found.method]}\nECE {found.ece:.2%}", xlim=(-3, 3), ylim=(-3, 3), aspect="equal")
        axis.grid(visible=False)
    figure.colorbar(shown, ax=axes, shrink=0.8, label="probability of class 1 (triangles)")
    return figure


def draw_boundary(axis: Any, found: Boundary) -> None:
    """The line on which both classes are as likely."""
    a, b = found.weight
    ends = (-3.0, 3.0)
    if abs(b) >= abs(a):
        axis.plot(ends, [-(a * x + found.bias) / (b or 1e-12) for x in ends], color=INK, linewidth=1.2)
    else:
        axis.plot([-(b * y + found.bias) / a for y in ends], ends, color=INK, linewidth=1.2)
