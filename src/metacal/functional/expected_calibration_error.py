"""Expected calibration error (ECE) and its l2 and max forms, over bins of equal width."""

from torch import Tensor

from metacal.functional.arguments import check_choice, check_num_bins
from metacal.functional.binning import BinStatistics, calibration_error, fill_equal_widths
from metacal.functional.boundary import public
from metacal.functional.confidence import confidence_chunks
from metacal.functional.inputs import Inputs, read_inputs


@public
def expected_calibration_error(
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
    r"""How far confidence and accuracy are apart, on average over bins of confidence.

    .. math:: \mathrm{ECE} = \sum_{m=1}^M \frac{|B_m|}{n} \left|\mathrm{acc}(B_m) - \mathrm{conf}(B_m)\right|

    with bins ``B_m = ((m - 1) / M, m / M]`` (0 belongs to the first). Sums are exact integers, so the value is
    independent of the order of samples and of how they are batched (to the bit for probabilities; the softmax of
    logits may itself round differently from one batch to another).

    Args:
        logits: scores ``(N, K, ...)`` before the softmax, or ``(N, ...)`` before the sigmoid. Any float dtype.
        probs: probabilities of the same shapes. Give exactly one of the two.
        targets: integer labels ``(N, ...)``. Scores of the same shape, ``(N,)``, are a binary model: the probability
            of "yes" is then measured against how often the answer was "yes".
        num_bins: M.
        norm: ``"l1"`` (ECE), ``"l2"`` (RMSCE) or ``"max"`` (MCE).
        multilabel: scores and targets are both ``(N, L, ...)``: L yes/no labels, measured as binary models are, pooled.
        ignore_index: targets with this value are left out.
        validate: check values (finite, in range, rows that sum to 1); if not, a NaN makes the result NaN. Shapes and
            dtypes are always checked.

    Returns:
        float64 scalar in [0, 1], on the device of the input.

    Raises:
        InvalidValueError: an argument is outside its domain; the message names it, the rule and the value.
        InvalidTypeError: an argument has the wrong type or dtype.

    Examples:
        >>> import torch
        >>> from metacal.functional import expected_calibration_error
        >>> probs = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]])
        >>> targets = torch.tensor([0, 1, 1, 1])
        >>> round(expected_calibration_error(probs=probs, targets=targets, num_bins=5).item(), 4)
        0.25
    """
    check_choice("norm", norm, ("l1", "l2", "max"))
    inputs = read_inputs(targets, logits, probs, multilabel=multilabel, ignore_index=ignore_index, validate=validate)
    return calibration_error(confidence_statistics(inputs, num_bins), norm)


@public
def bin_statistics(
    *,
    logits: Tensor | None = None,
    probs: Tensor | None = None,
    targets: Tensor,
    num_bins: int = 15,
    multilabel: bool = False,
    ignore_index: int | None = None,
    validate: bool = True,
) -> BinStatistics:
    """What `expected_calibration_error` is computed from: counts, confidence and right answers of equal-width bins.

    Args and errors as there. `noise_floor` and `sample_size_warning` say whether there are enough samples to tell.

    Examples:
        >>> import torch
        >>> probs, targets = torch.tensor([[0.9, 0.1], [0.3, 0.7]]), torch.tensor([0, 0])
        >>> bin_statistics(probs=probs, targets=targets, num_bins=5).counts.tolist()
        [0, 0, 0, 1, 1]
    """
    inputs = read_inputs(targets, logits, probs, multilabel=multilabel, ignore_index=ignore_index, validate=validate)
    return confidence_statistics(inputs, num_bins)


def confidence_statistics(inputs: Inputs, num_bins: int) -> BinStatistics:
    """Equal-width statistics of the confidences of all samples, read chunk by chunk."""
    check_num_bins(num_bins)
    statistics = BinStatistics.zeros(num_bins, device=inputs.scores.device)
    for confidences, correct in confidence_chunks(inputs):
        found = fill_equal_widths(confidences, correct, num_bins, may_hold_nan=not inputs.validate)
        statistics = statistics + found
    return statistics
