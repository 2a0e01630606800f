"""How the hyper-parameters are stepped: as published, or steadily (``preset="steady"``).

Command: ``metacal run outer-step``. Cost: 72 runs in full, 45 of them shared with the other tables.
"""

from metacal.experiments.grid import CE, LS, MC, NEWSGROUPS, image_row, method
from metacal.runs.paper import Column, PaperTable


def steady(label: str, name: str) -> Column:
    """A method with the library's own outer step for runs like the paper's."""
    return Column(f"{label}, steady", {"method": name, "meta_preset": "steady"})


TABLE = PaperTable(
    name="outer-step",
    number="",
    label="",
    title="The published outer step, and a steadier one",
    claim="(not in the paper)",
    rows=(*(image_row(dataset, "ResNet18") for dataset in ("CIFAR-10", "CIFAR-100", "SVHN")), NEWSGROUPS),
    columns=(CE, LS, MC, steady("MC", "mc"), method("MC-S", "mc-s"), steady("MC-S", "mc-s")),
    metrics=("ece_percent", "ece_after_temperature_percent", "classwise_ece_percent", "error_percent"),
)
