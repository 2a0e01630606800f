"""The paper's study on simulated data: calibration of each method relative to the oracle, by training size.

Every method sees the same 2n labels: cross-entropy and label smoothing are fitted on all of them, Meta-Calibration
trains on n and learns on the other n. Cross-entropy is also fitted on the first n alone. Accuracy and ECE are measured
on fresh test points.

These fits are not runs with a spec: each is a logistic regression, fitted to its optimum by full-batch L-BFGS, without
epochs or checkpoints. A draw is a pure function, `fit_draw`, and one small file.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy import special
from torch import Tensor, nn

from metacal.errors import StorageError
from metacal.files import as_figures, read_json
from metacal.functional import expected_calibration_error
from metacal.lab.data import load_dataset, simulated_oracle
from metacal.lab.paper.exhibits import Draw, Plan, published_figures
from metacal.lab.paper.tables import Cell, TableData, half_interval
from metacal.losses import LabelSmoothingLoss
from metacal.metalearning import PAPER, MetaCalibrator, VectorLabelSmoothing
from metacal.reporting.style import INK, SERIES, in_percent, new_axis, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VERSION = 2
"""Version of the fits; part of every file name."""
COLUMNS = {"oracle": "Oracle", "ce": "Cross-Entropy", "ls": "LS", "mc": "MC", "ce-n": "Cross-Entropy on n"}
NAMES = {
    "oracle": "oracle",
    "ce": "cross-entropy",
    "ls": "label smoothing",
    "mc": "meta-calibration",
    "ce-n": "cross-entropy on n labels",
}
STEPS = 3000
LR = 0.1
OUTER = replace(PAPER, every=4, adaptive=True)
SMOOTHING = 0.05
POINTS_KEPT = 400
NOTE = (
    "Ours: mean ± population standard deviation over draws. Every method sees the same 2n labels, except for the last "
    "column, which is fitted on the n that Meta-Calibration trains on. The paper does not give its number of points, "
    "so its figures have a row of their own."
)
SMOKE_NOTE = " Made at the smoke scale, with one draw and few test points, to check that everything runs."


@dataclass(frozen=True)
class SweepLine:
    """One method on simulated data: mean ECE at each size, with the 95 % interval of the mean over draws."""

    method: str
    sizes: list[int]
    mean: list[float]
    low: list[float]
    high: list[float]
    draws: list[int]


@dataclass(frozen=True)
class Boundary:
    """One method on one draw of simulated data: the logit of class 1 is ``weight . x + bias``.

    ``ece`` is measured on the test points; ``points`` are some of these, as ``[x, y, label]``.
    """

    method: str
    weight: list[float]
    bias: float
    ece: float
    points: list[list[float]]


def draw_file(root: Path, draw: Draw) -> Path:
    """Return the file with the result of `fit_draw`, in the folder of runs.

    Examples:
        >>> draw_file(Path("runs"), Draw(20, 0, 100_000)).as_posix()
        'runs/simulated/v2-n20-seed0-test100000.json'
    """
    return root / "simulated" / f"v{VERSION}-n{draw.size}-seed{draw.seed}-test{draw.test_points}.json"


def read_draw(path: Path) -> dict[str, Any]:
    """Read the result of `fit_draw` from its file."""
    record: dict[str, Any] = as_figures(read_json(path))
    if not isinstance(record, dict) or not {"size", "methods", "points"} <= record.keys():
        raise StorageError(f"{path} is damaged; delete it to fit the draw again.")
    return record


def read_draws(root: Path, draws: Iterable[Draw]) -> dict[Draw, dict[str, Any]]:
    """Read the results of all draws that have been fitted."""
    return {draw: read_draw(path) for draw in draws if (path := draw_file(root, draw)).exists()}


def fit_draw(size: int, seed: int, test_points: int = 100_000) -> dict[str, Any]:
    """Fit every method on one draw of the data; return plain numbers.

    Args:
        size: n; every method but ``ce-n`` sees 2n labels.
        seed: of the data.
        test_points: number of fresh test points.

    Returns:
        ``size``, ``seed``, ``test_points``, ``methods`` (each with ``accuracy`` and ``ece`` as fractions, and the
        ``weight`` and ``bias`` of the logit of class 1), some test ``points`` as ``[x, y, label]``, and the ``seconds``
        it took.

    Examples:
        >>> found = fit_draw(50, 0, test_points=20_000)["methods"]
        >>> list(found), found["oracle"]["ece"] < found["ce"]["ece"]
        (['oracle', 'ce', 'ls', 'mc', 'ce-n'], True)
    """
    started, threads = time.perf_counter(), torch.get_num_threads()
    torch.set_num_threads(1)  # small models gain nothing from more threads, and lose much on a busy machine
    try:
        data = load_dataset("simulated", n_train=2 * size, n_test=test_points, seed=seed)
        x, y = data.test.inputs.double(), data.test.targets
        found = {}
        for method in COLUMNS:
            model = fit(method, data.train.inputs.double(), data.train.targets, size, seed)
            logits = model(x)
            found[method] = {
                "accuracy": float((logits.argmax(dim=1) == y).double().mean()),
                "ece": float(expected_calibration_error(logits=logits, targets=y)),
                "weight": (model.weight[1] - model.weight[0]).tolist(),
                "bias": float(model.bias[1] - model.bias[0]),
            }
    finally:
        torch.set_num_threads(threads)
    points = torch.cat((x[:POINTS_KEPT], y[:POINTS_KEPT, None]), dim=1).tolist()
    about = {"size": size, "seed": seed, "test_points": test_points}
    return {**about, "methods": found, "points": points, "seconds": time.perf_counter() - started}


def fit(method: str, x: Tensor, y: Tensor, size: int, seed: int) -> nn.Linear:
    """Fit a logistic regression by one method; its logits are detached."""
    model = nn.Linear(2, 2).double().requires_grad_(False)
    model.weight.zero_()
    model.bias.zero_()
    if method == "oracle":  # the model that the labels were drawn from
        model.weight[1], model.bias[1] = simulated_oracle(seed)
        return model
    model.requires_grad_()
    if method == "mc":
        fit_meta_calibrated(model, x[:size], y[:size], x[size:], y[size:])
    elif method == "ce-n":
        fit_likelihood(model, x[:size], y[:size], 0.0)
    else:
        fit_likelihood(model, x, y, SMOOTHING if method == "ls" else 0.0)
    return model.requires_grad_(False)


def fit_likelihood(model: nn.Linear, x: Tensor, y: Tensor, smoothing: float) -> None:
    """Minimise (smoothed) cross-entropy; separable classes have no minimum, and stop at the iteration limit."""
    loss = LabelSmoothingLoss(smoothing)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=500, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        value: Tensor = loss(model(x), y)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(closure)  # type: ignore[no-untyped-call]


def fit_meta_calibrated(model: nn.Linear, x: Tensor, y: Tensor, x_meta: Tensor, y_meta: Tensor) -> None:
    """Full-batch gradient descent with learned smoothing, one strength per class."""
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    meta = MetaCalibrator(model, optimizer, [(x_meta, y_meta)], VectorLabelSmoothing(2), outer=OUTER)
    for _ in range(STEPS):
        loss = meta.step(x, y)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    meta.remove()


def prepare_study_table(plan: Plan, root: Path) -> TableData:
    """Return the study as a table: a row for each size, and the published row, whose size is unknown."""
    study, records = plan.exhibit, read_draws(root, plan.draws)
    lines: list[tuple[Cell, ...]] = []
    for key in ("accuracy", "ece"):
        metric = f"{key}_percent"
        line = []
        for label in COLUMNS.values():
            figure = published_figures().get((study.label, "synthetic", "logistic regression", label, metric))
            line.append(Cell("as published", label, metric, (), 0, None, figure, is_quoted=figure is not None))
        lines.append(tuple(line))
        for size in dict.fromkeys(draw.size for draw in plan.draws):
            draws = [draw for draw in plan.draws if draw.size == size]
            line = []
            for method, label in COLUMNS.items():
                values = tuple(100 * records[draw]["methods"][method][key] for draw in draws if draw in records)
                line.append(Cell(f"2n = {2 * size} labels", label, metric, values, len(draws), None, None))
            lines.append(tuple(line))
    note = NOTE + (SMOKE_NOTE if plan.setting else "")
    return TableData(study.name, plan.title, study.claim, note, tuple(COLUMNS.values()), tuple(lines), None)


def prepare_sweep(records: Sequence[dict[str, Any]]) -> list[SweepLine]:
    """Compute mean and interval of every method and size from records of draws."""
    sizes = sorted({record["size"] for record in records})
    lines = []
    for method in COLUMNS:
        groups = [[r["methods"][method]["ece"] for r in records if r["size"] == size] for size in sizes]
        means = [statistics.fmean(group) for group in groups]
        halves = [half_interval(group) for group in groups]
        low, high = ([mean + sign * half for mean, half in zip(means, halves, strict=True)] for sign in (-1.0, 1.0))
        lines.append(SweepLine(method, sizes, means, low, high, [len(group) for group in groups]))
    return lines


def prepare_boundary(records: Sequence[dict[str, Any]]) -> list[Boundary]:
    """Return every method on the first of the draws."""
    methods, points = records[0]["methods"], records[0]["points"]
    found = [(name, methods[name]) for name in COLUMNS if name != "ce-n"]
    return [Boundary(name, fit["weight"], fit["bias"], fit["ece"], points) for name, fit in found]


def plot_sweep(lines: Sequence[SweepLine]) -> Figure:
    """Plot ECE by number of labels, on logarithmic axes."""
    figure, axis = new_axis(6.6, 4.0)
    labels = [2 * size for size in lines[0].sizes]
    for line, (colour, style) in zip(lines, SERIES, strict=False):
        axis.plot(labels, line.mean, color=colour, linestyle=style, marker="o", ms=3.5, label=NAMES[line.method])
        axis.fill_between(labels, np.maximum(line.low, 1e-4), line.high, color=colour, alpha=0.13, linewidth=0)
    axis.set(xscale="log", yscale="log", xlabel="Labels seen by each method (2n)", ylabel="ECE")
    axis.set_xticks(labels, map(str, labels))
    axis.minorticks_off()
    axis.set_yticks((0.002, 0.005, 0.01, 0.02, 0.05, 0.1))
    fewest, most = min(lines[0].draws), max(lines[0].draws)
    draws = f"{most}" if fewest == most else f"{fewest} to {most}"
    title = f"Simulated data: mean of {draws} draws, 95 % intervals" if most > 1 else "Simulated data: one draw"
    axis.set_title(title, loc="left")
    in_percent(axis)
    axis.legend()
    return figure


def plot_boundary(methods: Sequence[Boundary]) -> Figure:
    """Plot test points shaded by each method's probability, and the decision boundary."""
    figure = new_figure(3.0 * len(methods), 3.2)
    axes = figure.subplots(1, len(methods), sharey=True, squeeze=False)[0]
    for axis, found in zip(axes, methods, strict=True):
        weight, points = np.array(found.weight), np.array(found.points)
        probs = special.expit(points[:, :2] @ weight + found.bias)
        for label, marker in ((0, "o"), (1, "^")):
            x, y, _ = points[points[:, 2] == label].T
            chosen = probs[points[:, 2] == label]
            shown = axis.scatter(x, y, c=chosen, cmap="RdBu_r", vmin=0, vmax=1, s=14, marker=marker)
        nearest = -found.bias * weight / (weight @ weight)  # the point of the line nearest to the origin
        axis.axline(nearest, nearest + weight[::-1] * (-1, 1), color=INK, linewidth=1.2)
        axis.set(title=f"{NAMES[found.method]}\nECE {found.ece:.2%}", xlim=(-3, 3), ylim=(-3, 3), aspect="equal")
        axis.grid(visible=False)
    figure.colorbar(shown, ax=axes, shrink=0.8, label="probability of class 1 (triangles)")
    return figure
