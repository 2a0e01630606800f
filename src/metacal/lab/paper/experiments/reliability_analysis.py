"""Figure 8: reliability with and without Meta-Calibration.

Claim: with it, confidence and accuracy agree better, and confidences are softer.
Command: ``metacal run reliability``. Cost: 12 runs in full, shared with the main tables.
"""

from metacal.lab.paper.exhibits import PaperFigure
from metacal.lab.paper.experiments.grid import CE, MC, RESNET18_ROWS

FIGURE = PaperFigure(
    name="reliability",
    number="8",
    label="cifar100ece",
    title="Reliability with and without Meta-Calibration",
    claim="Learned smoothing brings accuracy and confidence together, and softens the confidences.",
    drawing="reliability",
    rows=RESNET18_ROWS,
    columns=(CE, MC),
)
