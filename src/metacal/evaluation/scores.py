"""`Scores`: the figures that say how good and how calibrated a set of predictions is."""

from dataclasses import asdict, dataclass, replace

from torch import Tensor

from metacal.functional.binning import calibration_error, equal_width_statistics
from metacal.functional.boundary import public
from metacal.functional.brier_score import brier_sums, split_brier
from metacal.functional.classwise_calibration_error import class_statistics
from metacal.functional.confidence import confidence_and_correctness
from metacal.functional.debiased_calibration_error import debiased_error
from metacal.functional.equal_mass import equal_mass_statistics
from metacal.functional.error_interval import error_interval
from metacal.functional.inputs import read_inputs
from metacal.functional.negative_log_likelihood import likelihood_sums
from metacal.functional.smooth_calibration_error import smooth_error
from metacal.functional.sweep_calibration_error import sweep_statistics


@dataclass(frozen=True)
class Scores:
    """Figures of one set of multiclass predictions: fractions in [0, 1] (NLL in nats, Brier in [0, 2])."""

    accuracy: float
    nll: float
    brier: float
    brier_calibration: float
    brier_refinement: float
    ece: float
    ece_low: float
    ece_high: float
    mce: float
    adaptive_ece: float
    classwise_ece: float
    debiased_ece: float
    sweep_ece: float
    smooth_ece: float

    def as_dict(self) -> dict[str, float]:
        """Figures by name, for JSON."""
        return asdict(self)


@public
def score_predictions(
    *, logits: Tensor | None = None, probs: Tensor | None = None, targets: Tensor, num_bins: int = 15, seed: int = 0
) -> Scores:
    """Score multiclass logits or probabilities ``(n, K)`` against targets ``(n,)``; ``seed`` is of the ECE's interval.

    Examples:
        >>> from metacal.evaluation.example import example_predictions
        >>> probs, targets = example_predictions()
        >>> scores = score_predictions(probs=probs, targets=targets)
        >>> round(scores.accuracy, 4), round(scores.ece, 4)
        (0.9109, 0.0537)
    """
    checked = read_inputs(logits=logits, probs=probs, targets=targets, classes_only=True)
    confidences, correct = confidence_and_correctness(checked)
    inputs = replace(checked, validate=False)  # reading the confidences has checked every value
    equal_width = equal_width_statistics(confidences, correct, num_bins)
    equal_mass = equal_mass_statistics(confidences, correct, num_bins)
    ece = error_interval(equal_width, seed=seed)
    nll_sum = likelihood_sums(inputs)[0]
    brier_sum, count = brier_sums(inputs)
    classes = class_statistics(inputs, num_bins)
    brier_parts = split_brier(brier_sum / count, count, classes)
    return Scores(
        accuracy=correct.double().mean().item(),
        nll=nll_sum.item() / len(correct),
        brier=brier_sum.item() / len(correct),
        brier_calibration=brier_parts.calibration.item(),
        brier_refinement=brier_parts.refinement.item(),
        ece=ece.estimate.item(),
        ece_low=ece.low.item(),
        ece_high=ece.high.item(),
        mce=calibration_error(equal_width, "max").item(),
        adaptive_ece=calibration_error(equal_mass).item(),
        classwise_ece=calibration_error(classes).mean().item(),
        debiased_ece=debiased_error(equal_mass).item(),
        sweep_ece=calibration_error(sweep_statistics(confidences, correct)).item(),
        smooth_ece=smooth_error(confidences, correct).item(),
    )
