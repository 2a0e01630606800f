"""How the meta step's arithmetic grows with the number of classes, the feature width and the batch; drawn as an SVG."""

from pathlib import Path

import torch
from torch import nn

import metacal
from benchmarks.report import Part, Row
from benchmarks.timing import interleave
from metacal.losses import CrossEntropyLoss, DECELoss
from metacal.metalearning.through_head import MetaProblem, one_step

FIGURE = Path("docs/figures/meta-step-cost.svg")
BASE = {"K": 100, "features": 512, "batch": 64}
SWEEPS = {"K": (10, 30, 100, 300, 1000), "features": (64, 256, 1024, 4096), "batch": (16, 64, 256, 1024)}


def problem_of(num_classes: int, width: int, batch: int) -> MetaProblem:
    """A random problem with a linear head and non-uniform smoothing."""
    torch.manual_seed(0)
    return MetaProblem(
        head=nn.Linear(width, num_classes),
        hyperparameters=metacal.NonUniformLabelSmoothing(num_classes, initial="uniform"),
        base_loss=CrossEntropyLoss(reduction="none"),
        objective=CrossEntropyLoss() + 0.5 * DECELoss(),
        features=torch.randn(batch, width),
        labels=torch.randint(num_classes, (batch,)),
        meta_features=torch.randn(batch, width),
        meta_labels=torch.randint(num_classes, (batch,)),
        lr=0.1,
        reduction="mean",
        num_classes=num_classes,
    )


def measure_growth() -> Part:
    """Milliseconds of one hypergradient, one size varied at a time."""
    rows: list[Row] = []
    for name, values in SWEEPS.items():
        for value in values:
            sizes = {**BASE, name: value}
            problem = problem_of(sizes["K"], sizes["features"], sizes["batch"])
            seconds = interleave({"meta": lambda p=problem: float(one_step(p).meta_loss)}, rounds=15)["meta"].seconds  # type: ignore[misc]
            rows.append({"varied": name, **sizes, "ms": 1e3 * seconds})
    draw(rows)
    notes = [f"One size is varied at a time, the others stay at {BASE}. Drawn in {FIGURE}."]
    return Part("One hypergradient without its forward pass (closed form, CE + 0.5 DECE)", rows, notes=notes)


def draw(rows: list[Row]) -> None:
    """Three panels, log-log."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, 3, figsize=(9, 2.8), sharey=True, layout="constrained")
    for panel, name in zip(panels, SWEEPS, strict=True):
        points = [(row[name], row["ms"]) for row in rows if row["varied"] == name]
        panel.loglog(*zip(*points, strict=True), marker="o", color="#3b6ea5")
        panel.set_xlabel({"K": "classes K", "features": "feature width", "batch": "batch size"}[name])
        panel.set_xticks(list(SWEEPS[name]), labels=[f"{value:,}" for value in SWEEPS[name]], minor=False)
        panel.set_xticks([], minor=True)
        panel.grid(visible=True, alpha=0.2)
    panels[0].set_ylabel("milliseconds")
    panels[0].set_ylim(bottom=1.0)
    panels[0].set_yticks([1, 2, 5, 10], labels=["1", "2", "5", "10"])
    panels[0].set_yticks([], minor=True)
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(FIGURE, metadata={"Date": None})
    plt.close(figure)
