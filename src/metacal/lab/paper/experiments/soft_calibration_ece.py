"""Table 11: test ECE of SB-ECE and S-AvUC, as regularisers and as meta-objectives.

Claim: DECE is the better meta-objective, and meta-learning better than regularising.
Command: ``metacal run soft-calibration-ece``. Cost: 84 runs in full, 12 of them shared with the main tables.
"""

from metacal.lab.paper.exhibits import PaperTable
from metacal.lab.paper.experiments.grid import MC, SMALLER_RESNET_ROWS, method

COLUMNS = (
    method("CE+SBECE", "ce+sbece"),
    method("CE+SAvUC", "ce+savuc"),
    method("FL3+SBECE", "fl3+sbece"),
    method("FL3+SAvUC", "fl3+savuc"),
    method("MC-SBECE", "mc-sbece"),
    method("MC-SAvUC", "mc-savuc"),
    MC,
)

TABLE = PaperTable(
    name="soft-calibration-ece",
    number="11",
    label="sbece_results",
    title="Test ECE of SB-ECE and S-AvUC, as regularisers and as meta-objectives",
    claim="DECE is the better meta-objective, and meta-learning better than regularising.",
    rows=SMALLER_RESNET_ROWS,
    columns=COLUMNS,
    metrics=("ece_percent",),
)
