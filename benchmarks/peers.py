"""The same question put to metacal and to every library that can answer it.

Each function takes tensors, converts them to what each library reads, and returns calls by name of library: the
conversion is not part of what is timed. A library without the measure is left out.
"""

import warnings
from collections.abc import Callable
from importlib.metadata import version

import numpy as np
import torch
from torch import Tensor
from torchmetrics.functional.classification import binary_calibration_error, multiclass_calibration_error

from metacal import functional

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # deprecations within the peers' own imports
    import calibration
    import pycalib.metrics  # type: ignore[import-not-found]
    import relplot
    from netcal.metrics import ECE, MCE, MMCE
    from netcal.scaling import TemperatureScaling

METACAL, TORCHMETRICS, NETCAL = "metacal", "torchmetrics", "netcal"
RELPLOT, UNCERTAINTY, PYCALIB = "relplot", "uncertainty-calibration", "pycalib"
PACKAGES = (METACAL, TORCHMETRICS, NETCAL, RELPLOT, UNCERTAINTY, PYCALIB)

Calls = dict[str, Callable[[], float]]


def versions() -> dict[str, str]:
    """Installed versions of all libraries."""
    return {name: version(name) for name in PACKAGES}


def top_label_ece(probs: Tensor, targets: Tensor, num_bins: int = 15) -> Calls:
    """ECE of the top label, from probabilities ``(n, K)``, over bins of equal width."""
    array, labels = probs.numpy(), targets.numpy()

    def of_relplot() -> float:
        confidences, correct = relplot.multiclass_logits_to_confidences(array, labels, probs=True)
        return float(relplot.metrics.binnedECE(confidences, correct, nbins=num_bins))

    return {
        METACAL: lambda: float(functional.expected_calibration_error(probs=probs, targets=targets, num_bins=num_bins)),
        TORCHMETRICS: lambda: float(multiclass_calibration_error(probs, targets, probs.shape[1], n_bins=num_bins)),
        NETCAL: lambda: float(ECE(bins=num_bins).measure(array, labels)),
        RELPLOT: of_relplot,
        UNCERTAINTY: lambda: float(calibration.get_ece(array, labels, num_bins=num_bins)),
    }


def top_label_ece_of_logits(logits: Tensor, targets: Tensor, num_bins: int = 15) -> Calls:
    """The same from logits, in the libraries that take logits."""
    array, labels = logits.numpy(), targets.numpy()

    def of_relplot() -> float:
        confidences, correct = relplot.multiclass_logits_to_confidences(array, labels)
        return float(relplot.metrics.binnedECE(confidences, correct, nbins=num_bins))

    return {
        METACAL: lambda: float(
            functional.expected_calibration_error(logits=logits, targets=targets, num_bins=num_bins)
        ),
        TORCHMETRICS: lambda: float(multiclass_calibration_error(logits, targets, logits.shape[1], n_bins=num_bins)),
        RELPLOT: of_relplot,
    }


def event_ece(probs: Tensor, targets: Tensor, num_bins: int = 15) -> Calls:
    """ECE of yes/no events, from the probability of "yes" ``(n,)``."""
    array, outcomes = probs.numpy(), targets.numpy()
    return {
        METACAL: lambda: float(functional.expected_calibration_error(probs=probs, targets=targets, num_bins=num_bins)),
        TORCHMETRICS: lambda: float(binary_calibration_error(probs, targets, n_bins=num_bins)),
        NETCAL: lambda: float(ECE(bins=num_bins).measure(array, outcomes)),
        RELPLOT: lambda: float(relplot.metrics.binnedECE(array, outcomes, nbins=num_bins)),
        UNCERTAINTY: lambda: float(calibration.get_ece(array, outcomes, num_bins=num_bins)),
    }


def top_label_mce(probs: Tensor, targets: Tensor, num_bins: int = 15) -> Calls:
    """The largest gap of any bin (MCE), top label, equal width."""
    array, labels = probs.numpy(), targets.numpy()
    return {
        METACAL: lambda: float(
            functional.expected_calibration_error(probs=probs, targets=targets, num_bins=num_bins, norm="max")
        ),
        TORCHMETRICS: lambda: float(
            multiclass_calibration_error(probs, targets, probs.shape[1], n_bins=num_bins, norm="max")
        ),
        NETCAL: lambda: float(MCE(bins=num_bins).measure(array, labels)),
    }


def equal_mass_ece(probs: Tensor, targets: Tensor, num_bins: int = 15) -> Calls:
    """ECE over bins of equal mass, top label."""
    array, labels = probs.numpy(), targets.numpy()
    return {
        METACAL: lambda: float(functional.adaptive_calibration_error(probs=probs, targets=targets, num_bins=num_bins)),
        NETCAL: lambda: float(ECE(bins=num_bins, equal_intervals=False).measure(array, labels)),
        UNCERTAINTY: lambda: float(calibration.get_ece_em(array, labels, num_bins=num_bins)),
    }


def classwise_ece(probs: Tensor, targets: Tensor, num_bins: int = 15) -> Calls:
    """Mean over the classes of the one-against-rest ECE."""
    array, labels = probs.numpy(), targets.numpy()
    num_classes = probs.shape[1]
    one_hot = (labels[:, None] == np.arange(num_classes)).view(np.uint8)

    def of_torchmetrics() -> float:
        columns = probs.t().contiguous()  # one pass over the array instead of K strided ones
        errors = [
            binary_calibration_error(columns[k], (targets == k).long(), n_bins=num_bins) for k in range(num_classes)
        ]
        return float(torch.stack(errors).mean())

    return {
        METACAL: lambda: float(functional.classwise_calibration_error(probs=probs, targets=targets, num_bins=num_bins)),
        TORCHMETRICS: of_torchmetrics,
        UNCERTAINTY: lambda: float(calibration.get_ece(array, labels, num_bins=num_bins, mode="marginal")),
        PYCALIB: lambda: float(pycalib.metrics.classwise_ECE(one_hot, array, bins=num_bins)),
    }


def debiased_l2(probs: Tensor, targets: Tensor, num_bins: int = 15) -> Calls:
    """Debiased l2 calibration error (Kumar et al. 2019) of the top label over bins of equal mass."""
    array, labels = probs.numpy(), targets.numpy()
    return {
        METACAL: lambda: float(functional.debiased_calibration_error(probs=probs, targets=targets, num_bins=num_bins)),
        UNCERTAINTY: lambda: float(
            calibration.lower_bound_scaling_top_ce(array, labels, p=2, debias=True, num_bins=num_bins)
        ),
    }


def smooth_ece(probs: Tensor, targets: Tensor) -> Calls:
    """SmoothECE (Blasiok and Nakkiran 2023) of the top label, with its own choice of bandwidth."""
    array, labels = probs.numpy(), targets.numpy()

    def of_relplot() -> float:
        return float(relplot.smECE(*relplot.multiclass_logits_to_confidences(array, labels, probs=True)))

    return {
        METACAL: lambda: float(functional.smooth_calibration_error(probs=probs, targets=targets)),
        RELPLOT: of_relplot,
    }


def root_mmce(logits: Tensor, targets: Tensor) -> Calls:
    """MMCE, the root of the mean over pairs (metacal's is the squared form, as published)."""
    array, labels = torch.softmax(logits, dim=1).numpy(), targets.numpy()
    return {
        METACAL: lambda: float(functional.mmce(logits=logits, targets=targets)) ** 0.5,
        NETCAL: lambda: float(MMCE().measure(array, labels)),
    }


def temperature(logits: Tensor, targets: Tensor) -> Calls:
    """Temperature with the best likelihood. netcal reads probabilities and keeps 1 / T, which is turned over here."""
    array, labels = torch.softmax(logits, dim=1).numpy(), targets.numpy()

    def of_netcal() -> float:
        scaling = TemperatureScaling()
        scaling.fit(array, labels)
        return 1.0 / float(np.asarray(scaling.temperature).reshape(-1)[0])

    return {
        METACAL: lambda: functional.fit_temperature(logits=logits, targets=targets).temperature,
        NETCAL: of_netcal,
    }
