"""Table 5: which hyper-parameters to learn.

Claim: Other variants of Meta-Calibration also lead to large gains.
Command: ``metacal run hyperparameters``. Cost: 30 runs in full, 12 of them shared with the main tables.
"""

from metacal.lab.paper.exhibits import PaperTable
from metacal.lab.paper.experiments.grid import CE, MC, RESNET18_ROWS, method

TABLE = PaperTable(
    name="hyperparameters",
    number="5",
    label="l2comparison",
    title="Which hyper-parameters to learn",
    claim="Other variants of Meta-Calibration also lead to large gains.",
    rows=RESNET18_ROWS,
    columns=(CE, MC, method("MC-S", "mc-s"), method("MC-V", "mc-v"), method("MC-L2", "mc-l2")),
    metrics=("ece_percent", "error_percent"),
)
