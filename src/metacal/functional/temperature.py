"""Temperature scaling: divide logits by one number, and find the number with the best likelihood."""

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from metacal.functional.arguments import check_integer, check_num_bins, check_positive
from metacal.functional.binning import BinStatistics, calibration_error, fill_equal_widths, is_first_top
from metacal.functional.boundary import public
from metacal.functional.inputs import Inputs, at_least_float32, class_logits_and_targets, read_inputs

__all__ = [
    "TemperatureFit",
    "fit_temperature",
    "fit_temperature_by_grid",
    "fit_temperature_by_lbfgs",
    "temperature_grid_errors",
    "temperature_with_prior",
]

LOWEST, HIGHEST = 1e-3, 1e3
PRECISION = 1e-6
MAX_ITERATIONS = 100
WARM_START_SHARE, WARM_START_ROWS = 8, 512
"""The start comes from every eighth row, where there are at least so many of them."""

FIRST_ROWS = 1024
"""Rows whose values are checked before the fit; the others only if a derivative is not finite."""

PRIOR_STD = 0.4
"""Standard deviation of log T around 0: a factor of 1.5 either way is ordinary, the data have to show one of 3."""

LARGEST = 7.0
"""Bound of |log T| under the prior."""

LEAST_LOGIT = -1e18
"""Bound of a logit below the largest of its sample; its square is finite in float32."""


class TemperatureFit(NamedTuple):
    """The result of `fit_temperature`, and whether it converged.

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


class _Derivatives(NamedTuple):
    """Derivatives of the mean NLL with respect to ``1 / T``."""

    slope: float
    curvature: float
    third: float


@public
def fit_temperature(*, logits: Tensor, targets: Tensor, validate: bool = True) -> TemperatureFit:
    """Temperature with the best likelihood of ``softmax(logits / T)``.

    NLL is convex in ``1 / T`` (not in T nor log T), so its slope there has one root: Newton steps (with a third
    derivative, Halley's), replaced by a bisection of the bracket wherever they would leave it or creep, reach it
    from any start. Many rows are first solved for an eighth of them, so that all are read once or twice only. Logits
    are ``(n, K)``, targets int ``(n,)``.

    Examples:
        >>> import torch
        >>> logits = 10 * torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
        >>> fit = fit_temperature(logits=logits, targets=torch.tensor([0, 0, 0, 1]))
        >>> round(fit.temperature, 3), fit.converged  # 10 / log(3): confidence 3/4 where 3 of 4 are right
        (9.102, True)
    """
    inputs = read_inputs(logits=logits, targets=targets, classes_only=True, validate=validate)
    inputs.check_targets()  # before they are used as row numbers
    # Says if these look like probabilities.
    replace(inputs, scores=inputs.scores[:FIRST_ROWS], targets=inputs.targets[:FIRST_ROWS]).check_values()
    fit = _solve(replace(inputs, validate=False))
    if fit is None:
        inputs.check_values()  # derivatives that are not finite: say where the logits are not
    return fit or TemperatureFit(1.0, 1, converged=False, at_bound=False)


def _solve(inputs: Inputs) -> TemperatureFit | None:
    """Return the fit, or None if a derivative was not finite."""
    start = 1.0
    if len(inputs.scores) >= WARM_START_SHARE * WARM_START_ROWS:
        rows = slice(None, None, WARM_START_SHARE)
        first = _solve(replace(inputs, scores=inputs.scores[rows], targets=inputs.targets[rows]))
        if first is None:
            return None
        start = 1.0 / first.temperature
    low, high = 1.0 / HIGHEST, 1.0 / LOWEST
    is_low_tried = is_high_tried = False
    inverse, last = start, math.inf
    for iteration in range(1, MAX_ITERATIONS + 1):
        at = _derivatives(inputs, inverse)
        if not all(map(math.isfinite, at)):
            return None
        if at.slope == 0.0 and at.curvature == 0.0:
            return _flat(inputs, iteration)
        beyond = 1.0 / LOWEST if at.slope < 0.0 else 1.0 / HIGHEST
        if at.slope == 0.0 or inverse == beyond:
            return _result(inverse, iteration, converged=True)
        low, high = (inverse, high) if at.slope < 0.0 else (low, inverse)
        is_low_tried, is_high_tried = is_low_tried or at.slope < 0.0, is_high_tried or at.slope > 0.0
        step, error = _halley(at, inverse)
        # Where the slope falls off as an exponential Newton creeps: a step must be half the last one at most.
        if low < inverse + step < high and abs(step) <= 0.5 * last:
            if error <= PRECISION * inverse:
                return _result(inverse + step, iteration, converged=True)
            following = inverse + step
        elif at.slope < 0.0 and not is_high_tried:
            following = high
        elif at.slope > 0.0 and not is_low_tried:
            following = low
        else:
            following = math.sqrt(low * high)
            if high - low <= PRECISION * low:
                return _result(following, iteration, converged=True)
        inverse, last = following, abs(following - inverse)
    return _result(inverse, MAX_ITERATIONS, converged=False)


def _halley(at: _Derivatives, inverse: float) -> tuple[float, float]:
    """Return a step towards the root of the slope, and an upper estimate of the remaining distance."""
    if at.curvature <= 0.0:
        return math.copysign(math.inf, -at.slope), math.inf
    newton = -at.slope / at.curvature
    bend = 1.0 + 0.5 * newton * at.third / at.curvature
    step = newton / bend if 0.5 < bend < math.inf else newton
    # Terms of third order in the step: the one that Halley's step has left out, and an unknown one of the size that
    # a fourth derivative usually has.
    size = abs(step)  # multiplied out: a power too large for a float is an error, a product infinity
    error = (step - newton) * (step - newton) / size + 10.0 * size * size * size / (inverse * inverse)
    return step, min(error, size) if bend > 0.5 else size


def _flat(inputs: Inputs, iterations: int) -> TemperatureFit:
    """Whether slope and curvature vanish: constant logits, or margins so large that exponentials underflow."""
    slope = _derivatives(inputs, 1.0 / HIGHEST).slope
    if slope == 0.0:  # equal logits: every temperature is as good
        return TemperatureFit(1.0, iterations + 1, converged=True, at_bound=False)
    return TemperatureFit(LOWEST, iterations + 1, converged=True, at_bound=True)


def _result(inverse: float, iterations: int, converged: bool) -> TemperatureFit:
    temperature = 1.0 / inverse
    at_bound = temperature <= LOWEST * (1.0 + 1e-5) or temperature >= HIGHEST * (1.0 - 1e-5)
    return TemperatureFit(min(max(temperature, LOWEST), HIGHEST), iterations, converged, at_bound)


def _derivatives(inputs: Inputs, inverse: float) -> _Derivatives:
    """First three derivatives of the mean NLL: E_p[z] - z_target, Var_p[z] and the third central moment of z.

    One pass in chunks that stay in cache; row sums are products with a vector of ones, which a CPU does several
    times faster than a reduction over short rows.
    """
    device = inputs.scores.device
    sums = torch.zeros(3, dtype=torch.float64, device=device)
    with torch.autocast(device.type, enabled=False):  # products in bfloat16 would be off by 0.4 %
        for scores, targets in inputs.chunks(temporaries=4 if device.type == "cpu" else 1):
            ones = scores.new_ones(scores.shape[1])
            centred = scores - scores.amax(dim=1, keepdim=True)
            weights = (centred * inverse).exp_()
            total = weights @ ones
            mean, second, third = ((weights.mul_(centred) @ ones).div_(total).double() for _ in range(3))
            at_target = centred.gather(1, targets.unsqueeze(1)).squeeze(1)
            variance = second - mean.square()
            skewed = third - mean * (3.0 * variance + mean.square())
            sums = sums + torch.stack(((mean - at_target).sum(), variance.sum(), skewed.sum()))
    return _Derivatives(*(sums / len(inputs.scores)).tolist())


@public
@torch.no_grad()
def temperature_with_prior(
    *, logits: Tensor, targets: Tensor, prior_std: float = PRIOR_STD, iterations: int = 8
) -> Tensor:
    r"""T that minimises the summed NLL of ``logits / T`` plus :math:`(\log T)^2 / 2 \sigma^2`.

    Without a prior, samples that are all right by a margin ask for T = 0. With one, T is finite for any samples, and
    many samples outvote it. Newton's method on log T, kept inside a bracket, takes a fixed number of iterations, all on
    the device: 8 give six digits of a T in [0.3, 50], 20 four digits of any, 40 all digits. Logits are ``(n, K)``, or
    one per sample; values are not checked, so that a GPU is never made to wait. T has no history, and the (widened)
    dtype of the logits.

    Examples:
        >>> import torch
        >>> logits, targets = torch.tensor([[9.0, 0.0], [9.0, 0.0]]), torch.tensor([0, 0])
        >>> round(temperature_with_prior(logits=logits, targets=targets).item(), 3)  # separable
        1.0
        >>> targets = torch.tensor([0, 1])
        >>> round(temperature_with_prior(logits=logits, targets=targets).item(), 3)  # over-confident
        2.012
    """
    check_positive("prior_std", prior_std)
    check_integer("iterations", iterations, 1)
    wide, targets = class_logits_and_targets(logits, targets)
    with torch.autocast(wide.device.type, enabled=False):
        # Bounded, so that a logit of -inf (a class that is ruled out) adds nothing instead of 0 times infinity.
        centred = (wide - wide.amax(dim=1, keepdim=True)).clamp(min=LEAST_LOGIT)
        at_target = centred.gather(1, targets.unsqueeze(1)).sum()
        precision = 1.0 / prior_std**2
        cold = centred.new_zeros(())  # -log T
        low, high = centred.new_full((), -LARGEST), centred.new_full((), LARGEST)
        for _ in range(iterations):
            inverse = torch.exp(cold)
            scaled = centred * inverse
            # A softmax whose largest logit is 0; torch's own takes several times as long for few classes.
            probs = torch.exp(scaled)
            weighted = probs / probs.sum(dim=1, keepdim=True) * scaled
            means = weighted.sum(dim=1)
            flat = (weighted * scaled).sum() - means.square().sum() + precision
            slope = means.sum() - inverse * at_target  # of the NLL
            gradient = torch.add(slope, cold, alpha=precision)
            curvature, safe = flat + slope, flat + slope.clamp(min=0.0)  # the second is never negative
            curvature = torch.where(curvature > 0.1 * safe, curvature, safe)
            low, high = torch.where(gradient < 0.0, cold, low), torch.where(gradient > 0.0, cold, high)
            newton = cold - gradient / curvature
            cold = torch.where(newton == newton.clamp(low, high), newton, torch.lerp(low, high, 0.5))
        return torch.exp(-cold)


GRID = tuple(tenths / 10 for tenths in range(1, 101))
"""0.1, 0.2, ... 10.0."""

START, LEARNING_RATE = 1.5, 0.01


@public
def temperature_grid_errors(*, logits: Tensor, targets: Tensor, num_bins: int = 15, validate: bool = True) -> Tensor:
    """ECE of ``softmax(logits / T)``, logits ``(n, K)``, for every temperature of `GRID`: float64 ``(100,)``.

    Examples:
        >>> import torch
        >>> logits = torch.tensor([[9.0, 0.0], [9.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
        >>> errors = temperature_grid_errors(logits=logits, targets=torch.tensor([0, 0, 1, 1]))
        >>> GRID[int(errors.argmin())]  # 9 / 8.2 gives a confidence of 0.75, and 3 of 4 are right
        8.2
    """
    return calibration_error(scan_temperatures(logits, targets, num_bins, validate).statistics)


@public
def fit_temperature_by_grid(*, logits: Tensor, targets: Tensor, num_bins: int = 15, validate: bool = True) -> float:
    """First temperature of `GRID` with the lowest ECE; NaN if a logit is. Args: see `temperature_grid_errors`."""
    errors = temperature_grid_errors(logits=logits, targets=targets, num_bins=num_bins, validate=validate)
    least = (errors == errors.min()).nonzero()
    return GRID[int(least[0])] if len(least) else math.nan


class TemperatureScan(NamedTuple):
    """Equal-width statistics ``(100, M)`` and mean NLLs ``(100,)``, float64, for each temperature of `GRID`."""

    statistics: BinStatistics
    nll: Tensor


def scan_temperatures(logits: Tensor, targets: Tensor, num_bins: int = 15, validate: bool = True) -> TemperatureScan:
    """Compute bins and NLL of ``softmax(logits / T)`` for every temperature of `GRID` in one pass."""
    check_num_bins(num_bins)
    inputs = read_inputs(logits=logits, targets=targets, classes_only=True, validate=validate)
    device = inputs.scores.device
    statistics = BinStatistics.zeros(len(GRID), num_bins, device=device)
    losses = torch.zeros(len(GRID), dtype=torch.float64, device=device)
    for scores, labels in inputs.chunks(temporaries=4):
        top = scores.amax(dim=1)
        centred = scores - top.unsqueeze(1)
        correct = is_first_top(scores, labels, top, torch.zeros_like(labels, dtype=torch.bool))
        # In float64, which holds the difference of any two float32.
        below_top = top.double() - scores.gather(1, labels.unsqueeze(1)).squeeze(1).double()
        rows = []
        for place, temperature in enumerate(GRID):
            totals = (centred / temperature).exp_().sum(dim=1)
            losses[place] += totals.log().double().sum() + below_top.sum() / temperature
            rows.append(fill_equal_widths(totals.reciprocal_(), correct, num_bins, may_hold_nan=not validate))
        statistics = statistics + BinStatistics(
            torch.stack([row.counts for row in rows]),
            torch.stack([row.correct_sums for row in rows]),
            torch.stack([row.confidence_units for row in rows]),
            statistics.edges,
        )
    return TemperatureScan(statistics, losses / len(inputs.targets))


@public
def fit_temperature_by_lbfgs(
    *, logits: Tensor, targets: Tensor, max_iterations: int = 50, validate: bool = True
) -> TemperatureFit:
    """Temperature after L-BFGS on the NLL from T = 1.5 with learning rate 0.01 (Guo et al. 2017, as it is mostly run).

    It often stops far from the optimum: with a learning rate of 0.01 fifty iterations do not get far. It is here to
    reproduce figures that were made with it. ``converged`` says whether the slope at the end is flat.

    Examples:
        >>> import torch
        >>> logits = 10 * torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
        >>> fit = fit_temperature_by_lbfgs(logits=logits, targets=torch.tensor([0, 0, 0, 1]))
        >>> round(fit.temperature, 1), fit.converged  # the optimum is 9.1
        (1.9, False)
    """
    check_integer("max_iterations", max_iterations, 1)
    inputs = read_inputs(logits=logits, targets=targets, classes_only=True, validate=validate)
    inputs.check_values()
    scores = at_least_float32(inputs.scores)
    temperature = torch.full((), START, dtype=scores.dtype, device=scores.device, requires_grad=True)
    optimizer = torch.optim.LBFGS([temperature], lr=LEARNING_RATE, max_iter=max_iterations)

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = torch.nn.functional.cross_entropy(scores / temperature, inputs.targets)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    with torch.enable_grad():
        optimizer.step(loss)  # type: ignore[no-untyped-call]
        loss()
    slope = float(temperature.grad) if temperature.grad is not None else 0.0
    found = float(temperature.detach())
    iterations = int(optimizer.state[temperature]["n_iter"])
    bounded = min(max(found, LOWEST), HIGHEST) if found == found else START
    return TemperatureFit(bounded, iterations, converged=abs(slope) <= 1e-5, at_bound=bounded != found)
