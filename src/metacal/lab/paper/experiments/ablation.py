"""Table 6: ablation of the losses of the inner and the outer objective.

Claim: Both the meta-learning and the joint CE + DECE objective are needed.
Command: ``metacal run ablation``. Cost: 36 runs in full, 12 of them shared with the main tables.
"""

from metacal.lab.paper.exhibits import PaperTable
from metacal.lab.paper.experiments.grid import RESNET18_ROWS, method

COLUMNS = (
    method("M0: Vanilla CE [meta-loss -, loss CE]", "ce"),
    method("M1: Multi-task [meta-loss -, loss CE + DECE]", "ce+dece"),
    method("M2: Meta-Calibration [meta-loss CE, loss CE]", "mc-ce"),
    method("M3: Meta-Calibration [meta-loss MMCE, loss CE]", "mc-mmce"),
    method("M4: Meta-Calibration [meta-loss DECE, loss CE]", "mc-dece"),
    method("M5: Meta-Calibration [meta-loss CE + DECE, loss CE]", "mc"),
)

TABLE = PaperTable(
    name="ablation",
    number="6",
    label="ablationCompact",
    title="Ablation of the losses of the inner and the outer objective",
    claim="Both the meta-learning and the joint CE + DECE objective are needed.",
    rows=RESNET18_ROWS,
    columns=COLUMNS,
    metrics=("ece_percent", "error_percent"),
)
