"""Beta calibration: maps each class's probability through a curve with three parameters."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metacal.posthoc.base import Calibrator, FitReport, check_fitted, like, to_array
from metacal.posthoc.one_against_rest import OneAgainstRest, is_class

LEAST = 1e-12
"""Probabilities are kept this far from 0 and 1, where their logarithms end."""

RIDGE = 1e-6
MAX_ITERATIONS = 100
FLAT = 1e-8


class BetaCalibration(OneAgainstRest, Calibrator):
    r"""``sigmoid(a log p - b log(1 - p) + c)`` with a, b >= 0, each class against the rest (Kull et al. 2017).

    Needs probabilities (of logits the softmax is taken) and some hundred samples; three parameters per class bend
    over-confidence and under-confidence alike and never reverse a class's own order. Each class is fitted apart, so
    the predicted class may change.

    Attributes:
        coefficients_: ``(K, 3)``: a, b and c of each class; (1, 1, 0) changes nothing.
        uniform_share_: weight of the uniform distribution, ``1 / (n + 1)``: no probability is 0.

    Examples:
        >>> import numpy as np
        >>> generator = np.random.default_rng(0)
        >>> true = generator.random(5000)
        >>> targets = (generator.random(5000) < true).astype(int)
        >>> beta = BetaCalibration().fit(probs=true**2, targets=targets)  # what is said is the square of the truth
        >>> beta.predict_proba(probs=np.array([0.04, 0.25, 0.64])).round(1).tolist()
        [0.2, 0.5, 0.8]
    """

    fitted = ("coefficients_", "uniform_share_")

    coefficients_: NDArray[np.float64]

    def _fit_maps(self, scores: Tensor, targets: Tensor) -> FitReport:
        features, outcomes = _features(scores), is_class(targets, scores.shape[1]).double()
        is_free = torch.ones(scores.shape[1], 3, dtype=torch.bool, device=scores.device)
        iterations = 0
        for _ in range(3):  # a coefficient that comes out negative is set to 0, and the others are fitted again
            coefficients, used, converged = _newton(features, outcomes, is_free)
            iterations += used
            is_negative = (coefficients < 0.0) & is_free
            is_negative[:, 2] = False
            if not bool(is_negative.any()):
                break
            is_free &= ~is_negative
        self.coefficients_ = to_array(coefficients)
        return FitReport.of(iterations, converged)

    def _check_maps(self) -> None:
        check_fitted("coefficients", self.coefficients_, (self.num_classes_, 3))
        check_fitted("a and b", self.coefficients_[:, :2], (self.num_classes_, 2), least=0.0)

    def _map(self, probs: Tensor) -> Tensor:
        return torch.sigmoid(_curve(like(self.coefficients_, probs), _features(probs)))


def _features(probs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """``log p``, ``-log(1 - p)`` and 1, each ``(n, K)``."""
    inside = probs.double().clamp(LEAST, 1.0 - LEAST)
    return inside.log(), -(-inside).log1p(), torch.ones_like(inside)


def _curve(at: Tensor, features: Sequence[Tensor]) -> Tensor:
    return at[:, 0] * features[0] + at[:, 1] * features[1] + at[:, 2]


def _losses(at: Tensor, start: Tensor, features: Sequence[Tensor], outcomes: Tensor) -> Tensor:
    """Mean NLL of each class ``(K,)``, with the ridge."""
    scores = _curve(at, features)
    nll = (torch.nn.functional.softplus(scores) - outcomes * scores).mean(0)
    return nll + 0.5 * RIDGE * (at - start).square().sum(1)


def _newton(features: Sequence[Tensor], outcomes: Tensor, is_free: Tensor) -> tuple[Tensor, int, bool]:
    """Return the best a, b, c of all classes, the iterations, and whether they converged.

    Newton steps, halved for classes whose loss would grow. Coefficients that are not free ``(K, 3)`` stay 0.
    """
    start = torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64, device=outcomes.device)
    at = torch.where(is_free, start, 0.0)
    loss = _losses(at, start, features, outcomes)
    for iteration in range(1, MAX_ITERATIONS + 1):
        said = torch.sigmoid(_curve(at, features))
        residuals, weights = said - outcomes, said * (1.0 - said)
        slope = torch.stack([(residuals * each).mean(0) for each in features], dim=1) + RIDGE * (at - start)
        slope = torch.where(is_free, slope, 0.0)
        if float(slope.abs().max()) <= FLAT:
            return at, iteration, True
        rows = [torch.stack([(weights * one * two).mean(0) for two in features], dim=1) for one in features]
        curvature = torch.stack(rows, dim=1) * (is_free.unsqueeze(1) & is_free.unsqueeze(2))
        curvature = curvature + torch.diag_embed(torch.where(is_free, RIDGE, 1.0))
        step = torch.linalg.solve(curvature, slope.unsqueeze(2)).squeeze(2)
        scale = torch.ones_like(loss)
        for _ in range(30):
            following = at - scale.unsqueeze(1) * step
            new_loss = _losses(following, start, features, outcomes)
            is_worse = new_loss > loss + 1e-15
            if not bool(is_worse.any()):
                break
            scale = torch.where(is_worse, 0.5 * scale, scale)
        moved = torch.where(is_worse.unsqueeze(1), at, following)
        if torch.equal(moved, at):
            return at, iteration, float(slope.abs().max()) <= 1e3 * FLAT
        at, loss = moved, torch.where(is_worse, loss, new_loss)
    return at, MAX_ITERATIONS, False
