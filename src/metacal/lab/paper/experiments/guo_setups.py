"""Table 15: the setups of Guo et al. (2017).

Claim: No setup gives the figures that were reported there.
Command: ``metacal run guo-setups``. Cost: 12 runs of 500
epochs in full, 12 more shared with the main tables; three rows are quoted, never run.
"""

from metacal.lab.paper.exhibits import Column, PaperTable
from metacal.lab.paper.experiments.grid import CIFAR, image_row

GUO = {"method": "ce", "batch_size": 64, "epochs": 500, "milestones": [250, 375], "nesterov": True}
PLAIN, DECAYED = {**GUO, "weight_decay": 0.0}, {**GUO, "weight_decay": 1e-3}
COLUMNS = (
    Column("Guo2017 standard model", None),
    Column("Guo2017 stochastic depth model", None),
    Column("Mukhoti2020 standard model", None),
    Column("No weight decay, grid-search TS", PLAIN, "grid"),
    Column("No weight decay, optim. TS (50 iters)", PLAIN, "lbfgs-50"),
    Column("No weight decay, optim. TS (10 iters)", PLAIN, "lbfgs-10"),
    Column("With weight decay, grid-search TS", DECAYED, "grid"),
    Column("With weight decay, optim. TS (50 iters)", DECAYED, "lbfgs-50"),
    Column("With weight decay, optim. TS (10 iters)", DECAYED, "lbfgs-10"),
    Column("Our cross-entropy", {"method": "ce"}, "grid"),
    Column("Our Meta-Calibration", {"method": "mc", "outer": "paper"}, "grid"),
)

TABLE = PaperTable(
    name="guo-setups",
    number="15",
    label="guo_comparison",
    title="The setups of Guo et al. (2017)",
    claim="No setup gives the figures that were reported there.",
    rows=tuple(image_row(dataset, "ResNet110") for dataset in CIFAR),
    columns=COLUMNS,
    metrics=("ece_percent", "ece_after_temperature_percent", "error_percent"),
)
