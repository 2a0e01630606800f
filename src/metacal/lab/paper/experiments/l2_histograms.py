"""Figure 7: the learned unit-wise L2 coefficients.

Claim: they vary widely, and are both positive and negative.
Command: ``metacal run l2-histograms``. Cost: 6 runs in full, shared with the table of hyper-parameters.
"""

from metacal.lab.paper.exhibits import PaperFigure
from metacal.lab.paper.experiments.grid import RESNET18_ROWS, method

FIGURE = PaperFigure(
    name="l2-histograms",
    number="7",
    label="l2-analysis",
    title="Learned unit-wise L2 coefficients",
    claim="The coefficients vary widely and take both positive and negative values.",
    drawing="l2",
    rows=RESNET18_ROWS,
    columns=(method("MC-L2", "mc-l2"),),
)
