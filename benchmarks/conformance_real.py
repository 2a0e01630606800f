"""Questions on real predictions: every measure, every library that has it."""

import numpy as np
from torch import Tensor

from benchmarks import definitions, peers
from benchmarks.verdicts import Case, figure

NUM_BINS = 15
LOOP = "float64 loop over the definition, sums correctly rounded"
FIRST = "in which the samples left over go one each to the first bins"
INTERPOLATED = "in which the edges are interpolated quantiles and bins are [a, b)"


def real_cases(probs: Tensor, targets: Tensor) -> list[Case]:
    """ECE, MCE, equal-mass ECE, classwise ECE, debiased l2 error and SmoothECE of one set of predictions."""
    array, labels = probs.numpy(), targets.numpy()
    confidences, correct = definitions.top_label(array, labels)
    width = definitions.equal_width(confidences, correct, NUM_BINS)
    mass = definitions.equal_mass(confidences, correct, NUM_BINS)
    first = definitions.equal_mass(confidences, correct, NUM_BINS, extra="first")
    interpolated = definitions.interpolated_mass(confidences, correct, NUM_BINS)
    smooth = definitions.smooth_error(confidences, correct)
    left_over = len(labels) % NUM_BINS
    mass_rule = (
        f"Fifteen bins leave {left_over} of {len(labels):,} samples over, and the definition does not say where "
        "they go; metacal spreads them evenly."
    )
    return [
        Case(
            "ECE",
            LOOP,
            "Bins are (a, b].",
            peers.top_label_ece(probs, targets, NUM_BINS),
            definitions.binned_error(width),
        ),
        Case(
            "MCE",
            LOOP,
            "The largest gap of any bin.",
            peers.top_label_mce(probs, targets, NUM_BINS),
            definitions.binned_error(width, "max"),
        ),
        Case(
            "equal-mass ECE",
            LOOP,
            mass_rule,
            peers.equal_mass_ece(probs, targets, NUM_BINS),
            definitions.binned_error(mass),
            readings={FIRST: definitions.binned_error(first), INTERPOLATED: definitions.binned_error(interpolated)},
        ),
        Case(
            "classwise ECE",
            LOOP,
            "The mean over the columns of the array.",
            peers.classwise_ece(probs, targets, NUM_BINS),
            definitions.classwise_error(array, labels, NUM_BINS),
        ),
        Case(
            "debiased l2 error",
            LOOP + ", equal-mass bins",
            mass_rule,
            peers.debiased_l2(probs, targets, NUM_BINS),
            definitions.debiased_error(mass),
            readings={FIRST: definitions.debiased_error(first)},
        ),
        Case(
            "SmoothECE",
            "quadrature of the definition in float64, bandwidth by bisection; within 0.001",
            _smooth_rule(smooth, float(abs(correct.mean() - confidences.astype(np.float64).mean()))),
            peers.smooth_ece(probs, targets),
            smooth,
            tolerance=1e-3,
        ),
    ]


def _smooth_rule(smooth: float, mean_gap: float) -> str:
    if abs(smooth - mean_gap) > 1e-6:
        return "The bandwidth is where it equals the error."
    return (
        "The smoothed residuals have one sign all over, and a reflected kernel loses no mass, so at any bandwidth the "
        f"value must be the distance of mean confidence and accuracy, {figure(mean_gap)}."
    )
