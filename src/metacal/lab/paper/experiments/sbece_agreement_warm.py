"""Figure 9: DECE and SB-ECE (T = 0.01) against ECE over training.

Claim: DECE comes closer to ECE than SB-ECE does, whatever the temperature.
Command: ``metacal run sbece-agreement-warm``. Cost: 6 runs in full, shared with the main tables.
"""

from dataclasses import replace

from metacal.lab.paper.experiments.dece_agreement import FIGURE as DECE_AGREEMENT

FIGURE = replace(
    DECE_AGREEMENT,
    name="sbece-agreement-warm",
    number="9",
    label="sbece_analysis",
    title="DECE and SB-ECE (T = 0.01) against ECE over training",
    claim="DECE approximates ECE better than SB-ECE, whatever the temperature.",
    options={"sbece_temperature": 0.01},
)
