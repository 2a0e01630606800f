"""Two published ways to choose a temperature, kept for comparison: by a grid, and by a few steps of L-BFGS.

`metacal.functional.fit_temperature` is exact, and faster.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from metacal.functional.arguments import check_integer, check_num_bins
from metacal.functional.binning import BinStatistics, calibration_error, fill_equal_widths
from metacal.functional.boundary import public
from metacal.functional.confidence import is_first_top
from metacal.functional.inputs import at_least_float32, read_inputs
from metacal.functional.temperature import HIGHEST, LOWEST, TemperatureFit

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
    """The first temperature of `GRID` with the least ECE; NaN if a logit is. Args as in `temperature_grid_errors`."""
    errors = temperature_grid_errors(logits=logits, targets=targets, num_bins=num_bins, validate=validate)
    least = (errors == errors.min()).nonzero()
    return GRID[int(least[0])] if len(least) else math.nan


class TemperatureScan(NamedTuple):
    """What each temperature of `GRID` gives: equal-width statistics ``(100, M)`` and mean NLLs, float64 ``(100,)``."""

    statistics: BinStatistics
    nll: Tensor


def scan_temperatures(logits: Tensor, targets: Tensor, num_bins: int = 15, validate: bool = True) -> TemperatureScan:
    """Bins and likelihood of ``softmax(logits / T)`` for every temperature of `GRID`, in one pass over the rows."""
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
    for _ in inputs.chunks():  # checks values
        pass
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
