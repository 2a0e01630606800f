"""Figure 3: overall label smoothing over training.

Claim: the learned smoothing is not trivial, and follows the learning-rate schedule.
Command: ``metacal run smoothing-over-training``. Cost: 6 runs in full, shared with the main tables.
"""

from metacal.lab.paper.exhibits import PaperFigure
from metacal.lab.paper.experiments.grid import MC, RESNET18_ROWS

FIGURE = PaperFigure(
    name="smoothing-over-training",
    number="3",
    label="label-analysis",
    title="Learned smoothing over training",
    claim="The learned smoothing is not trivial and adapts to the learning-rate schedule.",
    drawing="strengths",
    rows=RESNET18_ROWS,
    columns=(MC,),
)
