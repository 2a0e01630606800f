"""How the hyper-parameters are stepped: as published, or in the two ways of the first edition, default and steady.

Command: ``metacal run outer-step``. Cost: 96 runs in full, 45 of them shared with the other tables.
"""

from metacal.lab.paper.exhibits import Column, PaperTable
from metacal.lab.paper.experiments.grid import CE, IMAGE_ROWS, LS, NEWSGROUPS, SIDE_BY_SIDE, method


def stepped(name: str) -> tuple[Column, Column, Column]:
    """A method with each outer step: the published one, and the two of the first edition."""
    label = name.upper()
    default = Column(f"{label}, default", {"method": name, "outer": "first"})
    return method(label, name), default, Column(f"{label}, steady", {"method": name, "outer": "steady"})


TABLE = PaperTable(
    name="outer-step",
    number="",
    label="",
    title="The outer step: published, by default, and steady",
    claim="(not in the paper)",
    rows=(*IMAGE_ROWS, NEWSGROUPS),
    columns=(CE, LS, *stepped("mc"), *stepped("mc-s")),
    metrics=SIDE_BY_SIDE,
)
