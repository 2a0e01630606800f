"""Table 10: test error under corruptions that were not trained on.

Claim: The error of Meta-Calibration is close to that of the others.
Command: ``metacal run cross-domain``. Cost: the runs of table 9.
"""

from metacal.lab.paper.exhibits import PaperTable
from metacal.lab.paper.experiments.grid import CROSS_DOMAIN_COLUMNS, CROSS_DOMAIN_ROWS

TABLE = PaperTable(
    name="cross-domain-error",
    number="10",
    label="cross_domain_err",
    title="Test error across domains (CIFAR-C, 22 domains that are not trained on)",
    claim="The error of Meta-Calibration is close to that of the others.",
    rows=CROSS_DOMAIN_ROWS,
    columns=CROSS_DOMAIN_COLUMNS,
    metrics=("error_percent",),
)
