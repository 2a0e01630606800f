"""Table 1: test ECE.

Claim: Meta-Calibration leads to excellent intrinsic calibration.
Command: ``metacal run main-ece``. Cost: 210 runs in full, shared with the other main tables.
"""

from metacal.lab.paper.exhibits import PaperTable
from metacal.lab.paper.experiments.grid import MAIN_COLUMNS, MAIN_ROWS

TABLE = PaperTable(
    name="main-ece",
    number="1",
    label="main_ece",
    title="Test ECE",
    claim="Meta-Calibration leads to excellent intrinsic calibration.",
    rows=MAIN_ROWS,
    columns=MAIN_COLUMNS,
    metrics=("ece_percent",),
    ranked=True,
)
