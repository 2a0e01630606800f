"""The paper's study on simulated data: how near to the oracle's calibration does each method come, by training size?

Every method sees the same 2n labels: cross-entropy and label smoothing are fitted on all of them, Meta-Calibration
trains on n and learns on the other n. Cross-entropy is fitted on those n alone too. Accuracy and ECE are those of fresh
test points.

These fits are not runs with a spec: each is a logistic regression at its optimum (L-BFGS on all samples at once), with
neither epochs nor checkpoints, and nothing else would use such an optimiser in the training loop. A draw is a pure
function, `fit_draw`, and one small file.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from scipy import stats
from torch import Tensor, nn

from metacal.errors import StorageError
from metacal.files import as_figures, read_json, write_json
from metacal.functional import expected_calibration_error
from metacal.lab.data import load_dataset, simulated_oracle
from metacal.lab.paper.exhibits import Draw, Plan, published_figures
from metacal.lab.paper.tables import Cell, TableData
from metacal.losses import LabelSmoothingLoss
from metacal.metalearning import PAPER, MetaCalibrator, VectorLabelSmoothing
from metacal.reporting.style import INK, SERIES, in_percent, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

VERSION = 2
"""Of how models are fitted on a draw; part of every file's name."""
COLUMNS = {"oracle": "Oracle", "ce": "Cross-Entropy", "ls": "LS", "mc": "MC", "ce-n": "Cross-Entropy on n"}
METRICS = {"accuracy_percent": "accuracy", "ece_percent": "ece"}
NAMES = {
    "oracle": "oracle",
    "ce": "cross-entropy",
    "ls": "label smoothing",
    "mc": "meta-calibration",
    "ce-n": "cross-entropy on half of them",
}
STEPS = 3000
LR = 0.1
OUTER = replace(PAPER, every=4, adaptive=True)
SMOOTHING = 0.05
POINTS_KEPT = 400
NOTE = (
    "Ours: mean ± population standard deviation over draws. Every method sees the same 2n labels, but for the last "
    "column: it is fitted on the n that Meta-Calibration trains on. The paper does not say how many points it drew, so "
    "its figures have a line of their own."
)
SMOKE_NOTE = "Made at the smoke scale, one draw and few test points, to see that everything runs."


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

    ``ece`` is that of the test points; some of these are in ``points``, as ``[x, y, label]``.
    """

    method: str
    weight: list[float]
    bias: float
    ece: float
    points: list[list[float]]


class DrawStore:
    """What was fitted on draws, one small file each, beside the runs of a folder.

    Examples:
        >>> DrawStore("runs").path(Draw(20, 0, 100_000)).as_posix()
        'runs/simulated/v2-n20-seed0-test100000.json'
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root) / "simulated"

    def path(self, draw: Draw) -> Path:
        """The file of a draw."""
        return self.root / f"v{VERSION}-n{draw.size}-seed{draw.seed}-test{draw.test_points}.json"

    def has(self, draw: Draw) -> bool:
        """Whether a draw was fitted."""
        return self.path(draw).exists()

    def read(self, draw: Draw) -> dict[str, Any]:
        """What `fit_draw` returned for a draw."""
        return self.read_file(self.path(draw))

    def read_file(self, path: Path) -> dict[str, Any]:
        """A record by its file."""
        record: dict[str, Any] = as_figures(read_json(path))
        if not isinstance(record, dict) or not {"size", "methods", "points"} <= record.keys():
            raise StorageError(f"{path} is damaged: not what was written. Without it the draw is made again.")
        return record

    def write(self, draw: Draw, record: dict[str, Any]) -> None:
        """Store a record."""
        write_json(self.path(draw), record)


def fit_draw(size: int, seed: int, test_points: int = 100_000) -> dict[str, Any]:
    """Fit every method on one draw of the data: plain numbers.

    Args:
        size: n; every method but ``ce-n`` sees 2n labels.
        seed: of the data.
        test_points: fresh points to measure on.

    Returns:
        ``size``, ``seed``, ``test_points``, ``methods`` (each with ``accuracy`` and ``ece`` as fractions, and the
        ``weight`` and ``bias`` of the logit of class 1), some test ``points`` as ``[x, y, label]``, and the ``seconds``
        that it took.

    Examples:
        >>> found = fit_draw(50, 0, test_points=20_000)["methods"]
        >>> list(found), found["oracle"]["ece"] < found["ce"]["ece"]
        (['oracle', 'ce', 'ls', 'mc', 'ce-n'], True)
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # models as small as these gain nothing from more, and lose much on a busy machine
    try:
        return _fit_draw(size, seed, test_points)
    finally:
        torch.set_num_threads(threads)


def _fit_draw(size: int, seed: int, test_points: int) -> dict[str, Any]:
    started = time.perf_counter()
    data = load_dataset("simulated", n_train=2 * size, n_test=test_points, seed=seed)
    x, y = data.test.inputs.double(), data.test.targets
    found = {}
    for method in COLUMNS:
        model = fitted(method, data.train.inputs.double(), data.train.targets, size, seed)
        logits = model(x)
        found[method] = {
            "accuracy": float((logits.argmax(dim=1) == y).double().mean()),
            "ece": float(expected_calibration_error(logits=logits, targets=y)),
            "weight": (model.weight[1] - model.weight[0]).tolist(),
            "bias": float(model.bias[1] - model.bias[0]),
        }
    points = torch.cat((x[:POINTS_KEPT], y[:POINTS_KEPT, None]), dim=1).tolist()
    return {
        "size": size,
        "seed": seed,
        "test_points": test_points,
        "methods": found,
        "points": points,
        "seconds": time.perf_counter() - started,
    }


def zeros() -> nn.Linear:
    """A logistic regression before it is fitted."""
    model = nn.Linear(2, 2).double()
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    return model


@torch.no_grad()
def oracle(seed: int) -> nn.Linear:
    """The model that the labels were drawn from."""
    weight, bias = simulated_oracle(seed)
    model = zeros()
    model.weight[1], model.bias[1] = weight, bias
    return model


def fitted(method: str, x: Tensor, y: Tensor, size: int, seed: int) -> nn.Linear:
    """A logistic regression by one method; its logits have no history."""
    if method == "oracle":
        return oracle(seed).requires_grad_(False)
    if method == "mc":
        return meta_calibrated(x[:size], y[:size], x[size:], y[size:])
    if method == "ce-n":
        return maximum_likelihood(x[:size], y[:size], 0.0)
    return maximum_likelihood(x, y, SMOOTHING if method == "ls" else 0.0)


def maximum_likelihood(x: Tensor, y: Tensor, smoothing: float) -> nn.Linear:
    """The optimum of (smoothed) cross-entropy; where there is none, because the classes can be separated, far along."""
    model = zeros()
    loss = LabelSmoothingLoss(smoothing)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=500, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        value: Tensor = loss(model(x), y)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return model.requires_grad_(False)


def meta_calibrated(x: Tensor, y: Tensor, x_meta: Tensor, y_meta: Tensor) -> nn.Linear:
    """Full-batch gradient descent with learned smoothing, one strength per class."""
    model = zeros()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    meta = MetaCalibrator(model, optimizer, [(x_meta, y_meta)], VectorLabelSmoothing(2), outer=OUTER)
    for _ in range(STEPS):
        loss = meta.step(x, y)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    meta.remove()
    return model.requires_grad_(False)


def prepare_study_table(plan: Plan, root: Path) -> TableData:
    """The study as a table: a line for each size, and the published line, whose size is not known."""
    study, store, lines = plan.exhibit, DrawStore(root), []
    records = {draw: store.read(draw)["methods"] for draw in plan.draws if store.has(draw)}
    for metric, key in METRICS.items():
        published = {
            label: published_figures().get((study.label, "synthetic", "logistic regression", label, metric))
            for label in COLUMNS.values()
        }
        lines.append(
            tuple(
                Cell("as published", label, metric, (), 0, None, figure, is_quoted=figure is not None)
                for label, figure in published.items()
            )
        )
        for size in dict.fromkeys(draw.size for draw in plan.draws):
            draws = [draw for draw in plan.draws if draw.size == size]
            found = [records[draw] for draw in draws if draw in records]
            line = []
            for method, label in COLUMNS.items():
                values = tuple(100 * methods[method][key] for methods in found)
                line.append(Cell(f"2n = {2 * size} labels", label, metric, values, len(draws), None, None))
            lines.append(tuple(line))
    note = f"{NOTE} {SMOKE_NOTE}" if plan.setting else NOTE
    return TableData(study.name, plan.title, study.claim, note, tuple(COLUMNS.values()), tuple(lines), None)


def prepare_sweep(records: Sequence[dict[str, Any]]) -> list[SweepLine]:
    """Mean and interval of every method and size, from records of draws."""
    sizes = sorted({record["size"] for record in records})
    lines = []
    for method in COLUMNS:
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
    return float(stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)) if len(values) > 1 else 0.0


def prepare_boundary(records: Sequence[dict[str, Any]]) -> list[Boundary]:
    """Every method on the first of the draws."""
    methods, points = records[0]["methods"], records[0]["points"]
    found = [(name, methods[name]) for name in COLUMNS if name != "ce-n"]
    return [Boundary(name, fit["weight"], fit["bias"], fit["ece"], points) for name, fit in found]


def plot_sweep(lines: Sequence[SweepLine]) -> Figure:
    """ECE over the number of labels, both on logarithmic axes."""
    figure = new_figure(6.6, 4.0)
    axis = figure.subplots()
    for line, (colour, style) in zip(lines, SERIES, strict=False):
        labels = [2 * size for size in line.sizes]
        axis.plot(labels, line.mean, color=colour, linestyle=style, marker="o", ms=3.5, label=NAMES[line.method])
        low = [max(low, 1e-4) for low in line.low]
        axis.fill_between(labels, low, line.high, color=colour, alpha=0.13, linewidth=0)
    axis.set(xscale="log", yscale="log", xlabel="Labels seen by each method (2n)", ylabel="ECE")
    axis.set_xticks([2 * size for size in lines[0].sizes], [str(2 * size) for size in lines[0].sizes])
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
    """Test points shaded by the probability each method gives them, and the line at one half."""
    figure = new_figure(3.0 * len(methods), 3.2)
    axes = figure.subplots(1, len(methods), sharey=True, squeeze=False)[0]
    for axis, found in zip(axes, methods, strict=True):
        for label, marker in ((0, "o"), (1, "^")):
            points = [(x, y) for x, y, target in found.points if int(target) == label]
            probs = [_sigmoid(found.weight[0] * x + found.weight[1] * y + found.bias) for x, y in points]
            x, y = zip(*points, strict=True) if points else ((), ())
            shown = axis.scatter(x, y, c=probs, cmap="RdBu_r", vmin=0, vmax=1, s=14, marker=marker)
        draw_boundary(axis, found)
        axis.set(title=f"{NAMES[found.method]}\nECE {found.ece:.2%}", xlim=(-3, 3), ylim=(-3, 3), aspect="equal")
        axis.grid(visible=False)
    figure.colorbar(shown, ax=axes, shrink=0.8, label="probability of class 1 (triangles)")
    return figure


def _sigmoid(logit: float) -> float:
    return 1.0 / (1.0 + math.exp(-max(-500.0, logit)))


def draw_boundary(axis: Axes, found: Boundary) -> None:
    """The line on which both classes are as likely."""
    a, b = found.weight
    ends = (-3.0, 3.0)
    if abs(b) >= abs(a):
        axis.plot(ends, [-(a * x + found.bias) / (b or 1e-12) for x in ends], color=INK, linewidth=1.2)
    else:
        axis.plot([-(b * y + found.bias) / a for y in ends], ends, color=INK, linewidth=1.2)
