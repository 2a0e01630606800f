"""Table 7: accuracy and calibration on simulated data with a known oracle.

Claim: Meta-Calibration matches both the accuracy and the ECE of the oracle.
Command: ``metacal run synthetic``. Cost: minutes on any machine.

The paper gives no sizes, so here are several. Every method sees 2n labels: cross-entropy and label smoothing are fitted
on all of them, Meta-Calibration trains on n and looks at the other n; the last column is cross-entropy on those n.
"""

from metacal.lab.paper.exhibits import SimulatedStudy

STUDY = SimulatedStudy(
    name="synthetic",
    number="7",
    label="synthetic",
    title="Accuracy and calibration on simulated data with a known oracle",
    claim="Meta-Calibration matches both the accuracy and the ECE of the oracle.",
    shows="table",
    sizes=(20, 30, 50, 100, 200, 500, 2000),
    seeds=tuple(range(12)),
)
