"""Table 13: test ECE of interleaved training.

Claim: Interleaved training is generally worse calibrated.
Command: ``metacal run interleaved-ece``. Cost: 60 runs in full, 12 of them shared with the main tables.
"""

from metacal.lab.paper.exhibits import PaperTable
from metacal.lab.paper.experiments.grid import MC, SMALLER_RESNET_ROWS, method

COLUMNS = (
    method("CE+SBECE", "ce-interleaved-sbece"),
    method("CE+SAvUC", "ce-interleaved-savuc"),
    method("FL3+SBECE", "fl3-interleaved-sbece"),
    method("FL3+SAvUC", "fl3-interleaved-savuc"),
    MC,
)

TABLE = PaperTable(
    name="interleaved-ece",
    number="13",
    label="interleaved_ece",
    title="Test ECE of interleaved training",
    claim="Interleaved training is generally worse calibrated.",
    rows=SMALLER_RESNET_ROWS,
    columns=COLUMNS,
    metrics=("ece_percent",),
)
