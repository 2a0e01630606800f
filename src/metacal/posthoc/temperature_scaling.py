"""Temperature scaling: divides all logits by one number."""

import torch
from torch import Tensor

from metacal.functional.arguments import check_choice, check_integer, check_num_bins
from metacal.functional.temperature import (
    GRID,
    HIGHEST,
    LOWEST,
    TemperatureFit,
    fit_temperature,
    fit_temperature_by_grid,
    fit_temperature_by_lbfgs,
    temperature_with_prior,
)
from metacal.posthoc.base import Calibrator, FitReport, check_fitted

METHODS = ("nll", "prior", "grid", "lbfgs")
PRIOR_ITERATIONS = 40


class TemperatureScaling(Calibrator):
    """``softmax(logits / T)``, one T > 0 for all (Guo et al. 2017).

    Needs logits, or probabilities, whose logarithms serve; a few hundred samples suffice for its one parameter.
    Changes confidences, never the predicted class: accuracy stays.

    Args:
        method: ``"nll"``, the best likelihood, found exactly (`metacal.functional.fit_temperature`); ``"prior"``, the
            same, but a T below 1 has a weak prior (`metacal.functional.temperature_with_prior`), which keeps it near 1
            where a few samples are all right; ``"grid"``, the first of 0.1, 0.2, ... 10.0 with the least ECE;
            ``"lbfgs"``, the recipe that published comparisons used, which often stops short
            (`metacal.functional.fit_temperature_by_lbfgs`).
        num_bins: of the ECE, for ``"grid"``.
        max_iterations: for ``"lbfgs"``: 50, or 10.

    Attributes:
        temperature_: T, in [1e-3, 1e3].

    Examples:
        >>> import torch
        >>> logits = 10 * torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
        >>> scaling = TemperatureScaling().fit(logits=logits, targets=torch.tensor([0, 0, 0, 1]))
        >>> round(scaling.temperature_, 3), scaling.fit_report_.converged
        (9.102, True)
        >>> scaling.predict_proba(logits=logits[:1]).round(decimals=2).tolist()
        [[0.75, 0.25]]
    """

    keeps_predictions = True
    reads = "logits"
    fitted = ("temperature_",)

    temperature_: float

    def __init__(self, method: str = "nll", num_bins: int = 15, max_iterations: int = 50) -> None:
        self.method = method
        self.num_bins = num_bins
        self.max_iterations = max_iterations

    def _check_params(self) -> None:
        check_choice("method", self.method, METHODS)
        check_num_bins(self.num_bins)
        check_integer("max_iterations", self.max_iterations, 1)

    def _fit(self, scores: Tensor, targets: Tensor) -> FitReport:
        if self.method in ("nll", "prior"):
            fit = fit_temperature(logits=scores, targets=targets, validate=False)
            if self.method == "prior" and fit.temperature < 1.0:
                wide, passes = scores.double(), PRIOR_ITERATIONS
                best = float(temperature_with_prior(logits=wide, targets=targets, iterations=passes))
                fit = TemperatureFit(max(best, LOWEST), fit.iterations + passes, converged=True, at_bound=False)
        elif self.method == "grid":
            best = fit_temperature_by_grid(logits=scores, targets=targets, num_bins=self.num_bins, validate=False)
            fit = TemperatureFit(best, len(GRID), converged=True, at_bound=best in (GRID[0], GRID[-1]))
        else:
            fit = fit_temperature_by_lbfgs(
                logits=scores, targets=targets, max_iterations=self.max_iterations, validate=False
            )
        self.temperature_ = fit.temperature
        return FitReport(fit.iterations, fit.converged, fit.at_bound, self._warning(fit))

    def _check_fitted(self) -> None:
        check_fitted("temperature", self.temperature_, (), LOWEST, HIGHEST)

    def _apply(self, scores: Tensor) -> Tensor:
        return torch.softmax((scores - scores.amax(dim=1, keepdim=True)) / self.temperature_, dim=1)

    def _warning(self, fit: TemperatureFit) -> str | None:
        if self.method == "lbfgs":  # that it stops short is what it is kept for: fit_report says so
            return None
        if fit.at_bound and self.method == "grid":
            return f"The temperature is {fit.temperature:g}, an end of the grid: the best one may lie beyond."
        if fit.at_bound and fit.temperature == HIGHEST:
            return (
                f"The temperature is {fit.temperature:g}, its upper bound: the logits say nothing about the targets, "
                "or run against them; are classes or rows out of order?"
            )
        if fit.at_bound:
            return (
                f"The temperature is {fit.temperature:g}, its lower bound: every sample is right by a margin, so the "
                "likelihood only grows; were these samples in the training set?"
            )
        return None if fit.converged else f"The temperature did not converge in {fit.iterations} iterations."
