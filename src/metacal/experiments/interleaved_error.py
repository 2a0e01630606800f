"""Table 14: test error of interleaved training.

Claim: Interleaved training has a much higher error.
Command: ``metacal run interleaved-error``. Cost: no runs of its own: those of interleaved-ece.
"""

from metacal.experiments.grid import SMALLER_RESNET_ROWS
from metacal.experiments.interleaved_ece import COLUMNS
from metacal.runs.paper import PaperTable

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
