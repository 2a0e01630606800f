"""Figure 4: how much each class of CIFAR-10 is smoothed, and towards which others.

Claim: classes that look alike get more of it, such as cat and dog, automobile and truck.
Command: ``metacal run smoothing-by-class``. Cost: 3 runs in full, shared with the main tables.
"""

from metacal.lab.paper.exhibits import PaperFigure
from metacal.lab.paper.experiments.grid import MC, image_row

FIGURE = PaperFigure(
    name="smoothing-by-class",
    number="4",
    label="dist-smoothing-analysis",
    title="Learned smoothing by class",
    claim="Classes that look alike receive more smoothing, such as cat and dog, automobile and truck.",
    drawing="class-smoothing",
    rows=(image_row("CIFAR-10", "ResNet18"),),
    columns=(MC,),
)
