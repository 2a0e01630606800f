"""Calibration on simulated data by the number of labels; not in the paper, which shows one size and does not say which.

Command: ``metacal run synthetic-sweep``. Cost: none beside that of ``synthetic``, whose draws it shows.
"""

from dataclasses import replace

from metacal.lab.paper.experiments.synthetic import STUDY as SYNTHETIC

STUDY = replace(
    SYNTHETIC,
    name="synthetic-sweep",
    number="",
    label="",
    title="ECE on simulated data by the number of labels",
    claim="(not in the paper)",
    shows="sweep",
)
