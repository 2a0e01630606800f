"""Table 2: test ECE with temperature scaling.

Claim: Meta-Calibration is excellent after temperature scaling too.
Command: ``metacal run main-ece-temperature``. Cost: 210 runs in full, shared with the other main tables.
"""

from metacal.lab.paper.exhibits import PaperTable
from metacal.lab.paper.experiments.grid import MAIN_COLUMNS, MAIN_ROWS

TABLE = PaperTable(
    name="main-ece-temperature",
    number="2",
    label="main_ece_temp",
    title="Test ECE with temperature scaling",
    claim="Meta-Calibration is excellent after temperature scaling too.",
    rows=MAIN_ROWS,
    columns=MAIN_COLUMNS,
    metrics=("ece_after_temperature_percent",),
    ranked=True,
)
