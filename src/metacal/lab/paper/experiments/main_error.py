"""Table 3: test error.

Claim: Meta-Calibration costs only small increases in the test error.
Command: ``metacal run main-error``. Cost: 210 runs in full, shared with the other main tables.
"""

from metacal.lab.paper.exhibits import PaperTable
from metacal.lab.paper.experiments.grid import MAIN_COLUMNS, MAIN_ROWS

TABLE = PaperTable(
    name="main-error",
    number="3",
    label="main_error",
    title="Test error",
    claim="Meta-Calibration costs only small increases in the test error.",
    rows=MAIN_ROWS,
    columns=MAIN_COLUMNS,
    metrics=("error_percent",),
    ranked=True,
)
