"""Table 8: training times.

Claim: Meta-Calibration takes 2.2 to 4.6 times as long in the published code.
Command: ``metacal run training-times``. Cost: 60 runs in full, all shared with the main tables.
"""

from metacal.lab.paper.exhibits import PaperTable
from metacal.lab.paper.experiments.grid import CE, MAIN_ROWS, MC

TABLE = PaperTable(
    name="training-times",
    number="8",
    label="time",
    title="Training times",
    claim="Meta-Calibration takes 2.2 to 4.6 times as long in the published code.",
    rows=MAIN_ROWS,
    columns=(CE, MC),
    metrics=("training_hours",),
)
