"""Structured vector and matrix scaling: regularised regression on logits that starts from the best temperature."""

import math
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from metacal.functional.temperature import HIGHEST, LOWEST, fit_temperature
from metacal.posthoc.base import Calibrator, FitReport, check_fitted, to_array
from metacal.posthoc.linear_scaling import LinearMap
from metacal.posthoc.regression import (
    REFRESH,
    WHOLE,
    OwnCurvature,
    Regression,
    Step,
    minimise,
    own_preconditioner,
    preconditioner,
)

PRIOR_WEIGHT = 2.0
"""Parameters' worth of trust in the first width of a prior."""

ROUNDS, SETTLED = 40, 0.03
"""Rounds in which the widths for a vector are estimated, at most, and the relative change that ends them."""

LOOSE, TOLERANCE = 1e-3, 1e-7
"""How much the mean NLL may still fall by, about, before the last step: of the first fit of a matrix, and of others."""

MANY = 20_000
"""Scores from which a fit multiplies in float32, at half the time; its sums are float64."""

SMALL, SOON = 64, 3
"""Parameters up to which a vector's fit starts from its whole curvature; others turn to it after so many steps."""


class StructuredScaling(LinearMap):
    """Base: temperature, a little of the uniform distribution, then ``softmax(W x + b)`` under priors.

    The features x are the logarithms of ``(1 - s) softmax(logits / T) + s / K`` with ``s = 1 / (n + 1)``, so that no
    probability is 0 and no feature infinite. W is the identity and b is 0 but for what the samples show: Gaussian
    priors hold every other value, one for each kind of parameter, so that the order of the classes does not matter.
    """

    fitted: ClassVar[tuple[str, ...]] = ("temperature_", "uniform_share_", "weight_", "bias_")

    temperature_: float
    uniform_share_: float

    def _fit(self, scores: Tensor, targets: Tensor) -> FitReport:
        found = fit_temperature(logits=scores, targets=targets, validate=False)
        self.temperature_, self.uniform_share_ = found.temperature, 1.0 / (len(targets) + 1)
        features = self._features(scores)
        features = features.float() if features.numel() > MANY else features.double()
        fit = fit_structured(features, targets, is_matrix=self._is_matrix)
        self.weight_, self.bias_ = to_array(fit.weight), to_array(fit.bias)
        return FitReport.of(fit.iterations, found.converged and fit.converged)

    def _check_fitted(self) -> None:
        check_fitted("temperature", self.temperature_, (), LOWEST, HIGHEST)
        check_fitted("uniform_share", self.uniform_share_, (), 1e-18, 0.5)
        super()._check_fitted()

    def _features(self, scores: Tensor) -> Tensor:
        centred = (scores - scores.amax(dim=1, keepdim=True)).div_(self.temperature_)
        probs = torch.softmax(centred.T, dim=0)  # over the first dimension: see `metacal.posthoc.regression`
        return probs.mul_(1.0 - self.uniform_share_).add_(self.uniform_share_ / scores.shape[1]).log_().T


class StructuredVectorScaling(StructuredScaling, Calibrator):
    """Temperature scaling with a weight and a bias per class, under priors near 1 and 0 (Berta et al. 2025).

    Needs logits (of probabilities their logarithms serve) and some hundred samples: how far the classes may differ is
    estimated from the samples, so that few of them give about temperature scaling. No probability is 0. May change the
    predicted class.

    Attributes:
        temperature_: T.
        uniform_share_: weight of the uniform distribution, ``1 / (n + 1)``.
        weight_: ``(K,)``.
        bias_: ``(K,)``.

    Examples:
        >>> import numpy as np
        >>> generator = np.random.default_rng(0)
        >>> logits = 2.0 * generator.normal(size=(2000, 3))
        >>> targets = (logits + [0.0, 0.0, 1.0] + generator.gumbel(size=(2000, 3))).argmax(axis=1)
        >>> scaling = StructuredVectorScaling().fit(logits=3.0 * logits, targets=targets)
        >>> bool(scaling.temperature_ > 2.5), bool(scaling.bias_[2] > scaling.bias_[0] + 0.7)
        (True, True)
    """

    keeps_predictions = False
    _is_matrix = False


class StructuredMatrixScaling(StructuredScaling, Calibrator):
    """Structured vector scaling with a weight for every pair of classes, under a prior (Berta et al. 2025).

    Needs logits (of probabilities their logarithms serve) and some hundred samples; how large the weights between
    classes may be is estimated from the samples. No probability is 0. May change the predicted class.

    Attributes:
        temperature_: T.
        uniform_share_: weight of the uniform distribution, ``1 / (n + 1)``.
        weight_: ``(K, K)``; row k makes the new logit of class k.
        bias_: ``(K,)``.

    Examples:
        >>> import numpy as np
        >>> generator = np.random.default_rng(0)
        >>> logits = generator.normal(size=(500, 3))
        >>> targets = (logits + generator.normal(size=(500, 3))).argmax(axis=1)
        >>> StructuredMatrixScaling().fit(logits=logits, targets=targets).weight_.shape
        (3, 3)
    """

    keeps_predictions = False
    parameters_grow_as_square = True


class StructuredFit(NamedTuple):
    """Weights ``(K,)`` or ``(K, K)``, bias ``(K,)``, how the fit went, and the precisions of the priors."""

    weight: Tensor
    bias: Tensor
    iterations: int
    converged: bool
    precisions: Tensor  # one for each parameter: those of the weights, row after row, then those of the bias


def fit_structured(features: Tensor, targets: Tensor, *, is_matrix: bool) -> StructuredFit:
    """Fit weight and bias by penalised likelihood, with the widths of the priors estimated from the samples.

    The priors of Berta et al. have the precisions ``2 K`` for diagonal and bias and ``2 K (K - 1)`` for the other
    weights. The samples decide how far to depart from them, by the evidence: the probability of the samples where the
    parameters are integrated out, with the NLL replaced by a parabola and classes taken for independent. At its
    maximum a precision is the number of determined parameters over their sum of squares (MacKay 1992); of a parameter
    ``1 - precision * posterior variance`` is determined. The first precisions count as `PRIOR_WEIGHT` parameters more.

    For a vector this is solved for diagonal and bias before the fit, see `vector_precisions`; for a matrix it is
    computed once, for the other weights, of a first and rougher fit, see `matrix_precision`.
    """
    regression = Regression(features, targets, is_matrix=is_matrix)
    own, zero = 2.0 * regression.num_classes, torch.zeros_like(regression.observed)
    curvature, tolerance = regression.own_curvature(zero), TOLERANCE * len(targets)
    is_small = len(zero) <= (WHOLE if is_matrix else SMALL)
    if not is_matrix:
        widths = vector_precisions(regression.at(zero)[1], curvature, own)
        precisions = widths.repeat_interleave(regression.num_classes)
        first = None if is_small else own_preconditioner(regression, curvature, precisions)
        refresh = REFRESH if is_small else SOON
        fit = minimise(regression, precisions, start=zero, precondition=first, refresh=refresh, tolerance=tolerance)
        return StructuredFit(*regression.split(fit.parameters), *fit[1:], precisions)
    whole = regression.curvature(zero) if is_small else None

    def steps(precisions: Tensor) -> Step:
        if whole is None:
            return own_preconditioner(regression, curvature, precisions)
        return preconditioner(regression, whole, precisions)

    others = own * (regression.num_classes - 1)
    precisions = regression.precisions(own, others, own)
    rough = minimise(regression, precisions, start=zero, precondition=steps(precisions), tolerance=LOOSE * len(targets))
    precisions = regression.precisions(own, matrix_precision(rough.parameters, curvature, others), own)
    fit = minimise(regression, precisions, start=rough.parameters, precondition=steps(precisions), tolerance=tolerance)
    iterations, converged = rough.iterations + fit.iterations, rough.converged and fit.converged
    return StructuredFit(*regression.split(fit.parameters), iterations, converged, precisions)


def vector_precisions(gradient: Tensor, curvature: OwnCurvature, first: float) -> Tensor:
    """Precisions of the priors of diagonal and bias with the largest evidence, ``(2,)``, from derivatives at 0.

    They are computed until they settle; where steps shrink by an even factor, all to come are taken at once.
    """
    pull, both = -gradient.view(2, -1), curvature.both
    logs = pull.new_full((2,), math.log(first))
    step = last = torch.ones_like(logs)
    for number in range(ROUNDS):
        precisions = logs.exp()
        size = curvature.vector + precisions.unsqueeze(1)
        crossed = size.flip(0)
        determinant = size[0] * size[1] - both.square()
        mean = (crossed * pull - both * pull.flip(0)) / determinant
        determined = pull.shape[1] - precisions * (crossed / determinant).sum(dim=1)
        squares = torch.linalg.vecdot(mean, mean)
        step = ((determined + PRIOR_WEIGHT) / (squares + PRIOR_WEIGHT / first)).log_() - logs
        if float(step.abs().max()) <= SETTLED:
            break
        if number % 2:
            step = step / (1.0 - (step / last).clamp_(0.0, 0.8))
        logs, last = logs + step, step
    return (logs + step).exp()


def matrix_precision(parameters: Tensor, curvature: OwnCurvature, first: float) -> Tensor:
    """Precision of the prior of the weights off the diagonal, from a fit under the first.

    Along the mean features of a class its weights are a bias: together they are determined far better, and are often
    far larger or smaller, than beside it. The prior is to hold neither too tightly, so the smaller of two estimates is
    taken: that of all directions, and that of all but this one.
    """
    assert curvature.means is not None and curvature.variances is not None
    num_classes = len(curvature.means)
    is_other = 1.0 - torch.eye(num_classes).to(parameters)
    weights, means = parameters[: num_classes**2].view(num_classes, -1) * is_other, curvature.means * is_other
    lengths = torch.linalg.vecdot(means, means).clamp_(min=1e-30)
    along = torch.linalg.vecdot(weights, means).square_() / lengths
    sizes = torch.stack((weights.square().sum(), along.sum()))
    beside = (is_other * (curvature.variances / (curvature.variances + first))).sum()
    information = curvature.vector[1] * lengths
    determined = torch.stack((beside + (information / (information + first)).sum(), beside))
    squares = torch.stack((sizes[0], sizes[0] - sizes[1]))
    return ((determined + PRIOR_WEIGHT) / (squares + PRIOR_WEIGHT / first)).amin()
