"""Temperature: dividing logits by one number, and finding the number that makes the likelihood best."""

from typing import NamedTuple

import torch
from torch import Tensor

from metacal.errors import InvalidValueError
from metacal.functional.inputs import Inputs, read_inputs

LOWEST, HIGHEST = 1e-3, 1e3
PRECISION = 1e-7
MAX_ITERATIONS = 100


class TemperatureFit(NamedTuple):
    """What `fit_temperature` found, and whether it can be relied on.

    Attributes:
        temperature: positive, within [1e-3, 1e3].
        iterations: passes over the data.
        converged: whether the optimum (or a bound) was reached.
        at_bound: whether the likelihood still improves beyond the bound, as for separable or hopeless data.
    """

    temperature: float
    iterations: int
    converged: bool
    at_bound: bool


def fit_temperature(*, logits: Tensor, targets: Tensor, validate: bool = True) -> TemperatureFit:
    """Temperature with the best likelihood of ``softmax(logits / T)``.

    NLL is convex in ``1 / T`` (not in T nor log T), so its slope there has one root: Newton steps, replaced by a
    bisection of the bracket wherever they would leave it, reach it from any start.

    Args:
        logits: ``(n, K)``, any float dtype.
        targets: int ``(n,)``.
        validate: check values too.

    Examples:
        >>> import torch
        >>> logits = 10 * torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
        >>> fit = fit_temperature(logits=logits, targets=torch.tensor([0, 0, 0, 1]))
        >>> round(fit.temperature, 3), fit.converged  # 10 / log(3): confidence 3/4 where 3 of 4 are right
        (9.102, True)
    """
    inputs = read_inputs(logits=logits, targets=targets, validate=validate)
    if inputs.is_events:
        raise InvalidValueError(f"`logits` must have shape (n, K) for targets (n,), got {tuple(logits.shape)}.")
    low, high = 1.0 / HIGHEST, 1.0 / LOWEST
    slope, _ = _slope_and_curvature(inputs, low)
    if slope == 0.0:  # equal logits: every temperature is as good
        return TemperatureFit(1.0, 1, converged=True, at_bound=False)
    if slope > 0.0:
        return TemperatureFit(HIGHEST, 1, converged=True, at_bound=True)
    slope, _ = _slope_and_curvature(inputs, high)
    if slope <= 0.0:
        return TemperatureFit(LOWEST, 2, converged=True, at_bound=True)
    inverse, last = 1.0, torch.inf
    for iteration in range(3, MAX_ITERATIONS + 1):
        slope, curvature = _slope_and_curvature(inputs, inverse)
        low, high = (inverse, high) if slope < 0.0 else (low, inverse)
        step = inverse - slope / curvature if curvature > 0.0 else torch.inf
        # Where the slope falls off as an exponential Newton creeps: a step must be half the last one at most.
        is_fast = abs(step - inverse) <= 0.5 * last
        following = step if low < step < high and is_fast else (low * high) ** 0.5
        last = abs(following - inverse)
        if abs(following - inverse) <= PRECISION * inverse or slope == 0.0:
            return _result(following if slope != 0.0 else inverse, iteration, converged=True)
        inverse = following
    return _result(inverse, MAX_ITERATIONS, converged=False)


def _result(inverse: float, iterations: int, converged: bool) -> TemperatureFit:
    temperature = 1.0 / inverse
    at_bound = temperature <= LOWEST * (1.0 + 1e-5) or temperature >= HIGHEST * (1.0 - 1e-5)
    return TemperatureFit(min(max(temperature, LOWEST), HIGHEST), iterations, converged, at_bound)


def _slope_and_curvature(inputs: Inputs, inverse: float) -> tuple[float, float]:
    """First and second derivative of the mean NLL with respect to ``1 / T``: E_p[z] - z_target, and Var_p[z]."""
    sums = torch.zeros(2, dtype=torch.float64, device=inputs.scores.device)
    for scores, targets in inputs.chunks():
        centred = scores - scores.amax(dim=1, keepdim=True)
        probs = torch.softmax(centred * inverse, dim=1)
        mean = (probs * centred).sum(dim=1)
        second = (probs * centred.square()).sum(dim=1)
        at_target = centred.gather(1, targets.unsqueeze(1)).squeeze(1)
        slopes, curvatures = mean - at_target, second - mean.square()
        sums = sums + torch.stack((slopes.sum(dtype=torch.float64), curvatures.sum(dtype=torch.float64)))
    slope, curvature = (sums / len(inputs.scores)).tolist()
    return slope, curvature
