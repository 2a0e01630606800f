"""Figure 1: the calibration generalisation gap.

Claim: training ECE and error fall to 0, while validation ECE rises: calibration overfits.
Command: ``metacal run generalisation-gap``. Cost: 3 runs in full, shared with the main tables.
"""

from metacal.lab.paper.exhibits import PaperFigure
from metacal.lab.paper.experiments.grid import CE, image_row

FIGURE = PaperFigure(
    name="generalisation-gap",
    number="1",
    label="ece-error-behaviour",
    title="Error and ECE over training with cross-entropy",
    claim="Training ECE and error fall to 0, but validation ECE rises: calibration overfits.",
    drawing="gap",
    rows=(image_row("CIFAR-10", "ResNet18"),),
    columns=(CE,),
)
