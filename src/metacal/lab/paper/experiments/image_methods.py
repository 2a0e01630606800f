"""Baselines and everything that is learned, side by side on images; not in the paper, which shows them in two tables.

Command: ``metacal run image-methods``. Cost: 72 runs in full, most of them shared with the main tables.
"""

from metacal.lab.paper.exhibits import PaperTable
from metacal.lab.paper.experiments.grid import CE, IMAGE_ROWS, LS, MC, SIDE_BY_SIDE, method

TABLE = PaperTable(
    name="image-methods",
    number="",
    label="",
    title="Baselines and everything that is learned, side by side",
    claim="(not in the paper)",
    rows=IMAGE_ROWS,
    columns=(
        CE,
        LS,
        method("FL-3", "fl3"),
        method("Brier", "brier"),
        MC,
        method("MC-S", "mc-s"),
        method("MC-V", "mc-v"),
        method("MC-L2", "mc-l2"),
    ),
    metrics=SIDE_BY_SIDE,
)
