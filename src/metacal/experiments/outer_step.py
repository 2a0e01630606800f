"""How the hyper-parameters are stepped: as published, or as this library does unless told otherwise, with a memory.

Command: ``metacal run outer-step``. Cost: 72 runs in full, 45 of them shared with the other tables.
"""

from metacal.experiments.grid import CE, LS, MC, NEWSGROUPS, image_row, method
from metacal.runs.paper import Column, PaperTable


def our_step(label: str, name: str) -> Column:
    """A method with the library's own outer step, which adapts, looking at 512 held-out samples at a time."""
    return Column(f"{label}, our step", {"method": name, "meta_memory": 512})


TABLE = PaperTable(
    name="outer-step",
    number="",
    label="",
    title="The published outer step, and this library's own",
    claim="(not in the paper)",
    rows=(*(image_row(dataset, "ResNet18") for dataset in ("CIFAR-10", "CIFAR-100", "SVHN")), NEWSGROUPS),
    columns=(CE, LS, MC, our_step("MC", "mc"), method("MC-S", "mc-s"), our_step("MC-S", "mc-s")),
    metrics=("ece_percent", "ece_after_temperature_percent", "classwise_ece_percent", "error_percent"),
)
