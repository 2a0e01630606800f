"""What the labels of the meta set are worth: the paper's baselines train on them, those at equal data do not.

Command: ``metacal run equal-data``. Cost: 60 runs in full, 36 of them shared with the main tables.
"""

from metacal.lab.paper.exhibits import Column, PaperTable
from metacal.lab.paper.experiments.grid import CE, IMAGE_ROWS, LS, MC, NEWSGROUPS


def without_meta(column: Column) -> Column:
    """The same method, which leaves the meta set alone: it trains on what Meta-Calibration trains on."""
    return Column(f"{column.label}, equal data", {**(column.settings or {}), "hold_out_meta": True})


TABLE = PaperTable(
    name="equal-data",
    number="",
    label="",
    title="Meta-Calibration against baselines that train on the meta set, and on as much as it does",
    claim="(not in the paper)",
    rows=(*IMAGE_ROWS, NEWSGROUPS),
    columns=(CE, without_meta(CE), LS, without_meta(LS), MC),
    metrics=("ece_percent", "ece_after_temperature_percent", "error_percent"),
)
