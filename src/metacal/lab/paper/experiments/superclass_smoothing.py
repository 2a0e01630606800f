"""Figure 5: smoothing within and across the superclasses of CIFAR-100.

Claim: more of it stays within a superclass, though nothing was said of superclasses in training.
Command: ``metacal run superclass-smoothing``. Cost: 3 runs in full, shared with the main tables.
"""

from metacal.lab.paper.exhibits import PaperFigure
from metacal.lab.paper.experiments.grid import MC, image_row

FIGURE = PaperFigure(
    name="superclass-smoothing",
    number="5",
    label="superclass-smoothing",
    title="Smoothing within and across superclasses",
    claim="Smoothing within a superclass is generally much stronger than across superclasses.",
    drawing="superclasses",
    rows=(image_row("CIFAR-100", "ResNet18"),),
    columns=(MC,),
)
