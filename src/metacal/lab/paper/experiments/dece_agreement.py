"""Figure 2: how near DECE comes to ECE over training.

Claim: Pearson's and Spearman's correlations are close to 1, and the means are close to each other.
Command: ``metacal run dece-agreement``. Cost: 6 runs in full, shared with the main tables.

The paper does not say what is trained; here it is cross-entropy. Each epoch's figures are of minibatches of 128 drawn
from the validation set's logits after it.
"""

from metacal.lab.paper.exhibits import PaperFigure
from metacal.lab.paper.experiments.grid import CE, RESNET18_ROWS

FIGURE = PaperFigure(
    name="dece-agreement",
    number="2",
    label="ece-dece-analysis",
    title="DECE against ECE over training",
    claim="Their correlation is close to 1 and their means are close to each other.",
    drawing="agreement",
    rows=RESNET18_ROWS,
    columns=(CE,),
    options={"spearman": True},
)
