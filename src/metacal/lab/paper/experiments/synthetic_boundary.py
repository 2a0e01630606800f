"""Figure 6: estimated probabilities and the decision boundary on simulated data.

Claim: Meta-Calibration and the oracle are similarly calibrated; cross-entropy and label smoothing are visibly not.
Command: ``metacal run synthetic-boundary``. Cost: seconds.
"""

from dataclasses import replace

from metacal.lab.paper.experiments.synthetic import STUDY as SYNTHETIC

STUDY = replace(
    SYNTHETIC,
    name="synthetic-boundary",
    number="6",
    label="synthetic",
    title="Estimated probabilities and decision boundary on simulated data",
    claim="Meta-Calibration is calibrated much like the oracle; cross-entropy and label smoothing visibly are not.",
    shows="boundary",
    sizes=(50,),
    seeds=(0,),
)
