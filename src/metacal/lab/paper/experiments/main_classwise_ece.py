"""Table 4: test classwise ECE.

Claim: The gain holds for a more advanced measure of calibration.
Command: ``metacal run main-classwise-ece``. Cost: 210 runs in full, shared with the other main tables.
"""

from dataclasses import replace

from metacal.lab.paper.exhibits import PaperTable
from metacal.lab.paper.experiments.grid import MAIN_COLUMNS, MAIN_ROWS

# This table calls one model by a shorter name.
ROWS = tuple(replace(row, model=row.model.removesuffix("26-10")) for row in MAIN_ROWS)

TABLE = PaperTable(
    name="main-classwise-ece",
    number="4",
    label="main_cece",
    title="Test classwise ECE",
    claim="The gain holds for a more advanced measure of calibration.",
    rows=ROWS,
    columns=MAIN_COLUMNS,
    metrics=("classwise_ece_percent",),
    ranked=True,
)
