"""Table 14: test error of interleaved training.

Claim: Interleaved training has a much higher error.
Command: ``metacal run interleaved-error``. Cost: no runs of its own: those of interleaved-ece.
"""

from metacal.lab.paper.exhibits import PaperTable
from metacal.lab.paper.experiments.grid import SMALLER_RESNET_ROWS
from metacal.lab.paper.experiments.interleaved_ece import COLUMNS

TABLE = PaperTable(
    name="interleaved-error",
    number="14",
    label="interleaved_err",
    title="Test error of interleaved training",
    claim="Interleaved training has a much higher error.",
    rows=SMALLER_RESNET_ROWS,
    columns=COLUMNS,
    metrics=("error_percent",),
)
