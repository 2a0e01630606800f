"""Adaptive calibration error: ECE over bins that hold equally many samples."""

from torch import Tensor

from metacal.functional.arguments import check_choice, check_num_bins
from metacal.functional.binning import calibration_error
from metacal.functional.boundary import public
from metacal.functional.confidence import confidence_and_correctness
from metacal.functional.equal_mass import equal_mass_statistics
from metacal.functional.inputs import read_inputs


@public
def adaptive_calibration_error(
    *,
    logits: Tensor | None = None,
    probs: Tensor | None = None,
    targets: Tensor,
    num_bins: int = 15,
    norm: str = "l1",
    multilabel: bool = False,
    ignore_index: int | None = None,
    validate: bool = True,
) -> Tensor:
    """As `expected_calibration_error`, over equal-mass bins: each holds n / M samples, as far as ties allow.

    Tied confidences share the lower bin, so the order of the samples does not matter; with fewer samples than
    bins some bins are empty and count for nothing.

    Args:
        logits: see `expected_calibration_error`, as for all arguments.
        probs: see there.
        targets: see there.
        num_bins: M.
        norm: ``"l1"``, ``"l2"`` or ``"max"``.
        multilabel: see there.
        ignore_index: see there.
        validate: see there.

    Returns:
        float64 scalar.

    Examples:
        >>> import torch
        >>> probs = torch.tensor([0.1, 0.2, 0.8, 0.9])
        >>> targets = torch.tensor([0, 0, 1, 0])
        >>> round(adaptive_calibration_error(probs=probs, targets=targets, num_bins=2).item(), 4)
        0.25
    """
    check_num_bins(num_bins)
    check_choice("norm", norm, ("l1", "l2", "max"))
    inputs = read_inputs(targets, logits, probs, multilabel=multilabel, ignore_index=ignore_index, validate=validate)
    return calibration_error(equal_mass_statistics(*confidence_and_correctness(inputs), num_bins), norm)
