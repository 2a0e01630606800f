"""Structured vector and matrix scaling: regularised regression on logits that starts from the best temperature."""

from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from metacal.functional.temperature import HIGHEST, LOWEST, fit_temperature
from metacal.posthoc.base import Calibrator, FitReport, check_fitted, not_converged, to_array
from metacal.posthoc.linear_scaling import LinearMap

ROUNDS = 2
"""How often the widths of the priors are estimated anew."""

PRIOR_WEIGHT = 2.0
"""Parameters' worth of trust in the first width of a prior."""

LOOSE, TIGHT = 1e-3, 1e-6
"""Newton decrement (about twice what the total NLL can still fall by) at which a fit ends: in between, and the last."""

MAX_ITERATIONS = 300
MEMORY = 10
CHUNK = 65_536
"""Scores that are worked on at a time: what is made of them stays in the cache."""


class StructuredScaling(LinearMap):
    """What the two share: temperature, a little of the uniform distribution, then ``softmax(W x + b)`` under priors.

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
        fit = fit_structured(self._features(scores), targets, is_matrix=self._is_matrix)
        self.weight_, self.bias_ = to_array(fit.weight), to_array(fit.bias)
        converged = found.converged and fit.converged
        return FitReport(fit.iterations, converged, warning=not_converged(converged, fit.iterations))

    def _check_fitted(self) -> None:
        check_fitted("temperature", self.temperature_, (), LOWEST, HIGHEST)
        check_fitted("uniform_share", self.uniform_share_, (), 1e-18, 0.5)
        super()._check_fitted()

    def _features(self, scores: Tensor) -> Tensor:
        wide = scores.detach().double()
        probs = torch.softmax((wide - wide.amax(dim=1, keepdim=True)) / self.temperature_, dim=1)
        return probs.mul_(1.0 - self.uniform_share_).add_(self.uniform_share_ / scores.shape[1]).log_()


class StructuredVectorScaling(StructuredScaling, Calibrator):
    """Temperature scaling with a weight and a bias for each class that are held near 1 and 0 (Berta et al. 2025).

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
    """Structured vector scaling with a weight for every pair of classes, held near 0 (Berta et al. 2025).

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


class At(NamedTuple):
    """The total NLL at a point, its gradient, and curvatures: diagonal, and what `estimate_precisions` needs."""

    nll: Tensor
    gradient: Tensor
    diagonal: Tensor
    moments: Tensor  # vector: sums of q * x, (K,); matrix: sums of x x' by row weights, (K, K); q = p * (1 - p)


class Likelihood:
    """The NLL of ``softmax((I + U) x + b)`` as a function of the flat parameters ``(U, b)``, with its derivatives."""

    def __init__(self, features: Tensor, targets: Tensor, *, is_matrix: bool) -> None:
        self.features, self.targets, self.is_matrix = features, targets.unsqueeze(1), is_matrix
        self.num_classes = num_classes = features.shape[1]
        self.num_weights = num_classes**2 if is_matrix else num_classes
        of_target = features if is_matrix else features.gather(1, self.targets).squeeze(1)
        sums = features.new_zeros(num_classes, *of_target.shape[1:]).index_add_(0, targets, of_target)
        self.observed = torch.cat((sums.reshape(-1), torch.bincount(targets, minlength=num_classes).double()))
        self.identity = torch.eye(num_classes).to(features) if is_matrix else features.new_ones(num_classes)

    def split(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Weight, the identity included, and bias."""
        weight, bias = parameters[: self.num_weights], parameters[self.num_weights :]
        return weight.view_as(self.identity) + self.identity, bias

    def at(self, parameters: Tensor, *, curvature: bool = False) -> At:
        """Value and gradient; the curvatures are 0 where they are not asked for."""
        weight, bias = self.split(parameters)
        nll, bias_sums, weight_sums = bias.new_zeros(()), torch.zeros_like(bias), torch.zeros_like(weight)
        bias_curvature, weight_curvature, moments = map(torch.zeros_like, (bias, weight, weight))
        rows = max(1, CHUNK // self.num_classes)
        for x, y in zip(torch.split(self.features, rows), torch.split(self.targets, rows), strict=True):
            scores = torch.addmm(bias, x, weight.T) if self.is_matrix else torch.addcmul(bias, x, weight)
            probs = torch.softmax(scores, dim=1)
            nll -= probs.gather(1, y).clamp_(min=torch.finfo(probs.dtype).tiny).log_().sum()
            bias_sums += probs.sum(dim=0)
            weight_sums += probs.T @ x if self.is_matrix else (probs * x).sum(dim=0)
            if curvature:
                spread = probs * (1.0 - probs)
                bias_curvature += spread.sum(dim=0)
                weighted = spread.sum(dim=1, keepdim=True) * x if self.is_matrix else spread * x
                weight_curvature += spread.T @ x.square() if self.is_matrix else (weighted * x).sum(dim=0)
                moments += weighted.T @ x if self.is_matrix else weighted.sum(dim=0)
        gradient = torch.cat((weight_sums.reshape(-1), bias_sums)) - self.observed
        return At(nll, gradient, torch.cat((weight_curvature.reshape(-1), bias_curvature)), moments)


def fit_structured(features: Tensor, targets: Tensor, *, is_matrix: bool) -> StructuredFit:
    """Weight and bias with the best penalised likelihood, and priors as wide as the samples make likely.

    The priors are first those of Berta et al.: precision ``2 K`` of diagonal and bias, ``2 K (K - 1)`` of the other
    weights. Then, `ROUNDS` times, the widths are estimated from the fit (MacKay's evidence) and the fit goes on from
    where it was: those of diagonal and bias for a vector, that of the other weights for a matrix.
    """
    likelihood = Likelihood(features, targets, is_matrix=is_matrix)
    num_classes = likelihood.num_classes
    first = features.new_full((likelihood.num_weights + num_classes,), 2.0 * num_classes)
    if is_matrix:
        others = ~torch.eye(num_classes, dtype=torch.bool, device=features.device)
        first[: num_classes**2][others.view(-1)] = 2.0 * num_classes * (num_classes - 1)
    precisions, parameters, iterations = first, torch.zeros_like(first), 0
    for number in range(ROUNDS + 1):
        start = likelihood.at(parameters, curvature=True)
        if number:
            precisions = estimate_precisions(start, parameters, precisions, first)
        tolerance = TIGHT if number == ROUNDS else LOOSE
        parameters, more, converged = minimise(likelihood, parameters, precisions, start, tolerance)
        iterations += more
    return StructuredFit(*likelihood.split(parameters), iterations, converged, precisions)


def estimate_precisions(at: At, parameters: Tensor, precisions: Tensor, first: Tensor) -> Tensor:
    """Precisions of the priors at which a fit is consistent: number of determined parameters over their sum of squares.

    Of a parameter ``1 - precision * posterior variance`` is determined. The posterior of a vector is independent
    between classes, its diagonal and bias are not; that of a matrix has the same correlations between the weights of
    every class (a Kronecker product).
    """
    num_classes = at.moments.shape[-1]
    new = precisions.clone()
    if at.moments.ndim == 1:
        diagonal, bias = torch.split(at.diagonal + precisions, num_classes)
        determinant = diagonal * bias - at.moments.square()
        determined = 1.0 - precisions * torch.cat((bias / determinant, diagonal / determinant))
        for part in (slice(0, num_classes), slice(num_classes, None)):
            new[part] = _precision(determined[part].sum(), parameters[part], first[part][0])
        return new
    others = ~torch.eye(num_classes, dtype=torch.bool, device=new.device).view(-1)
    weights, spreads = parameters[: num_classes**2][others], at.diagonal[num_classes**2 :]
    variances = torch.linalg.eigvalsh(at.moments / spreads.sum().clamp(min=1e-300)).clamp(min=0.0)
    information = torch.outer(spreads, variances)
    determined = information / (information + precisions[1])  # place 1 of row 0: not on the diagonal
    share = (num_classes - 1) / num_classes
    new[: num_classes**2][others] = _precision(share * determined.sum(), weights, first[1])
    return new


def _precision(determined: Tensor, values: Tensor, first: Tensor) -> Tensor:
    return (determined + PRIOR_WEIGHT) / (values.square().sum() + PRIOR_WEIGHT / first)


def minimise(
    likelihood: Likelihood, parameters: Tensor, precisions: Tensor, at: At, tolerance: float
) -> tuple[Tensor, int, bool]:
    """Parameters with the least penalised NLL by L-BFGS, scaled by the curvatures at the start; steps; converged."""
    inverse = 1.0 / (at.diagonal + precisions)
    value = at.nll + 0.5 * (precisions * parameters.square()).sum()
    gradient = at.gradient + precisions * parameters
    pairs: list[tuple[Tensor, Tensor, Tensor]] = []
    for iteration in range(MAX_ITERATIONS):
        direction = _direction(gradient, inverse, pairs)
        decrement = float(direction @ gradient)
        if decrement <= tolerance:
            return parameters, iteration, True
        length = 1.0
        for _ in range(40):
            moved = parameters - length * direction
            at = likelihood.at(moved)
            reached = at.nll + 0.5 * (precisions * moved.square()).sum()
            rise = float(reached - value)
            if rise <= -1e-4 * length * decrement:
                break
            # To the lowest point of the parabola through both values and the slope, within bounds.
            length *= min(max(0.5 * length * decrement / (rise + length * decrement), 0.1), 0.5)
        else:
            return parameters, iteration, False
        following = at.gradient + precisions * moved
        step, change = moved - parameters, following - gradient
        pairs = [*pairs, (step, change, step @ change)][-MEMORY:]
        parameters, value, gradient = moved, reached, following
    return parameters, MAX_ITERATIONS, False


def _direction(gradient: Tensor, inverse: Tensor, pairs: list[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    """The gradient times an estimate of the inverse Hessian (the two loops of L-BFGS); the NLL falls against it."""
    direction, shares = gradient.clone(), []
    for step, change, product in reversed(pairs):
        share = (step @ direction) / product
        direction -= share * change
        shares.append(share)
    direction *= inverse
    if pairs:
        _, change, product = pairs[-1]
        direction *= product / (change @ (inverse * change))
    for (step, change, product), share in zip(pairs, reversed(shares), strict=True):
        direction += (share - (change @ direction) / product) * step
    return direction
