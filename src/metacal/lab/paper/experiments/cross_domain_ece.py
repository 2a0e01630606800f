"""Table 9: test ECE under corruptions that were not trained on.

Claim: Meta-Calibration still helps across domains, but less than on clean data.
Command: ``metacal run cross-domain``. Cost: 42 runs in full, none shared with the main tables.
"""

from metacal.lab.paper.exhibits import PaperTable
from metacal.lab.paper.experiments.grid import CROSS_DOMAIN_COLUMNS, CROSS_DOMAIN_ROWS

TABLE = PaperTable(
    name="cross-domain-ece",
    number="9",
    label="cross_domain_ece",
    title="Test ECE across domains (CIFAR-C, 22 domains that are not trained on)",
    claim="Meta-Calibration still helps across domains, but less than on clean data.",
    rows=CROSS_DOMAIN_ROWS,
    columns=CROSS_DOMAIN_COLUMNS,
    metrics=("ece_percent",),
)
