"""Table 12: test error of SB-ECE and S-AvUC, as regularisers and as meta-objectives.

Claim: The gain in calibration is not paid for in error.
Command: ``metacal run soft-calibration-error``. Cost: no runs of its own: those of soft-calibration-ece.
"""

from metacal.lab.paper.exhibits import PaperTable
from metacal.lab.paper.experiments.grid import SMALLER_RESNET_ROWS
from metacal.lab.paper.experiments.soft_calibration_ece import COLUMNS

TABLE = PaperTable(
    name="soft-calibration-error",
    number="12",
    label="sbece_results_err",
    title="Test error of SB-ECE and S-AvUC, as regularisers and as meta-objectives",
    claim="The gain in calibration is not paid for in error.",
    rows=SMALLER_RESNET_ROWS,
    columns=COLUMNS,
    metrics=("error_percent",),
)
