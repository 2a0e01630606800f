"""Structured vector and matrix scaling: regularised regression on logits that starts from the best temperature."""

from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from metacal.functional.temperature import HIGHEST, LOWEST, fit_temperature
from metacal.posthoc.base import Calibrator, FitReport, check_fitted, to_array
from metacal.posthoc.linear_scaling import LinearMap
from metacal.posthoc.regression import Curvature, Regression, minimise

VECTOR_ROUNDS, MATRIX_ROUNDS = 2, 1
"""How often the widths of the priors are estimated anew."""

PRIOR_WEIGHT = 2.0
"""Parameters' worth of trust in the first width of a prior."""

LOOSE, TIGHT = 1e-3, 1e-7
"""How much the mean NLL may still fall by, about, where a fit ends: in between, and the last."""

MANY = 20_000
"""Scores from which a fit multiplies in float32, at half the time; its sums are float64."""

MOVED = 3
"""Steps of a fit after which the next one needs a new curvature."""


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
        probs = torch.softmax((scores - scores.amax(dim=1, keepdim=True)).div_(self.temperature_), dim=1)
        return probs.mul_(1.0 - self.uniform_share_).add_(self.uniform_share_ / scores.shape[1]).log_()


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
    """Fit weight and bias by penalised likelihood, with the width of the priors estimated from the samples.

    The priors are first those of Berta et al.: precision ``2 K`` of diagonal and bias, ``2 K (K - 1)`` of the other
    weights. Then the widths are estimated from the fit (MacKay's evidence) and the fit goes on from where it was:
    those of diagonal and bias for a vector, that of the other weights for a matrix.
    """
    regression = Regression(features, targets, is_matrix=is_matrix)
    own, rounds = 2.0 * regression.num_classes, MATRIX_ROUNDS if is_matrix else VECTOR_ROUNDS
    first = precisions = regression.precisions(own, own * (regression.num_classes - 1), own)
    curvature = regression.curvature(torch.zeros_like(first))
    fit = minimise(regression, precisions, curvature=curvature, tolerance=LOOSE * len(targets))
    iterations = fit.iterations
    for tolerance in (*(LOOSE,) * (rounds - 1), TIGHT):
        if fit.iterations >= MOVED:
            curvature = regression.curvature(fit.parameters)
        precisions = estimate_precisions(regression, curvature, fit.parameters, precisions, first)
        fit = minimise(
            regression, precisions, start=fit.parameters, curvature=curvature, tolerance=tolerance * len(targets)
        )
        iterations += fit.iterations
    return StructuredFit(*regression.split(fit.parameters), iterations, fit.converged, precisions)


def estimate_precisions(
    regression: Regression, curvature: Curvature, parameters: Tensor, precisions: Tensor, first: Tensor
) -> Tensor:
    """Precisions of the priors at which a fit is consistent: number of determined parameters over their sum of squares.

    Of a parameter ``1 - precision * posterior variance`` is determined. The posterior of a vector is independent
    between classes, its diagonal and bias are not; that of a matrix has the same correlations between the weights of
    every class (a Kronecker product).
    """
    num_classes = regression.num_classes
    new = precisions.clone()
    if not regression.is_matrix:
        diagonal, bias = torch.split(curvature.vector.diagonal() + precisions, num_classes)
        both = curvature.vector[:num_classes, num_classes:].diagonal()
        determinant = diagonal * bias - both.square()
        determined = 1.0 - precisions * torch.cat((bias / determinant, diagonal / determinant))
        for part in (slice(0, num_classes), slice(num_classes, None)):
            new[part] = _precision(determined[part].sum(), parameters[part], first[part][0])
        return new
    others = ~regression.is_diagonal
    weights, information = parameters[: num_classes**2][others], curvature.axes[2]
    determined = information / (information + precisions[1])  # place 1 of row 0: not on the diagonal
    share = (num_classes - 1) / num_classes
    new[: num_classes**2][others] = _precision(share * determined.sum(), weights, first[1])
    return new


def _precision(determined: Tensor, values: Tensor, first: Tensor) -> Tensor:
    return (determined + PRIOR_WEIGHT) / (values.square().sum() + PRIOR_WEIGHT / first)
