"""Smooth calibration error (smECE): kernel smoothing instead of bins, with a bandwidth that sets itself."""

import math

import torch
from torch import Tensor
from typing_extensions import Unpack

from metacal.functional.boundary import public
from metacal.functional.confidence import confidence_and_correctness
from metacal.functional.inputs import ScoreArguments, read_inputs

GRID = 8192
"""Cells of [0, 1] on which residuals are gathered: bandwidths down to a few cells are resolved."""

BISECTIONS = 40


@public
def smooth_calibration_error(**scores: Unpack[ScoreArguments]) -> Tensor:
    """Calibration error by kernel smoothing (Blasiok and Nakkiran 2023), free of bins and of their jumps.

    See `smooth_error`. Args and errors as in `expected_calibration_error`.

    Examples:
        >>> import torch
        >>> probs = torch.full((1000,), 0.5)
        >>> round(smooth_calibration_error(probs=probs, targets=(torch.arange(1000) < 700).long()).item(), 3)
        0.2
    """
    return smooth_error(*confidence_and_correctness(read_inputs(**scores)))


def smooth_error(confidences: Tensor, correct: Tensor, bisections: int = BISECTIONS) -> Tensor:
    r"""SmECE of given confidences, float64 scalar.

    With residuals :math:`r_i = y_i - c_i` and :math:`K_\sigma` a Gaussian reflected at 0 and 1,

    .. math:: \mathrm{smECE}_\sigma = \int_0^1 \Big|\frac1n \sum_i K_\sigma(t, c_i) r_i\Big| \, dt

    falls as :math:`\sigma` grows; the error is where the two meet, :math:`\sigma^* = \mathrm{smECE}_{\sigma^*}`.
    A reflected Gaussian is diagonal in the cosine basis, so one transform of the residuals, gathered on a fine
    grid, serves every bandwidth that the bisection looks at; ``bisections`` halve its bracket, the unit interval.
    """
    if not len(confidences):
        return torch.full((), torch.nan, dtype=torch.float64, device=confidences.device)
    spectrum = torch.fft.rfft(_reflect(_deposit(confidences, correct)))
    frequencies = math.pi * torch.arange(len(spectrum), dtype=torch.float64, device=confidences.device)

    def error_at(bandwidth: Tensor) -> Tensor:
        smoothed: Tensor = torch.fft.irfft(spectrum * torch.exp(-0.5 * (frequencies * bandwidth).square()), n=2 * GRID)
        return smoothed[:GRID].abs().sum()

    low = torch.full((), 1.0 / GRID, dtype=torch.float64, device=confidences.device)
    high = torch.ones_like(low)
    for _ in range(bisections):  # always as many, so that a GPU is never asked for a decision
        middle = 0.5 * (low + high)
        is_below = error_at(middle) > middle
        low, high = torch.where(is_below, middle, low), torch.where(is_below, high, middle)
    return error_at(0.5 * (low + high))


def _deposit(confidences: Tensor, correct: Tensor) -> Tensor:
    """float64 ``(GRID,)``: mean residuals at cell centres, each shared linearly between its two neighbours."""
    residuals = (correct.double() - confidences.double()) / len(confidences)
    position = (confidences.double().clamp(0.0, 1.0) * GRID - 0.5).clamp(0.0, GRID - 1.0)
    lower = position.floor().clamp(max=GRID - 2)
    share = position - lower
    cells = lower.long().clamp_(0, GRID - 2)  # of a NaN any cell will do: its residual makes the whole grid NaN
    grid = residuals.new_zeros(GRID)
    grid = grid.index_add(0, cells, residuals * (1.0 - share))
    return grid.index_add(0, cells + 1, residuals * share)


def _reflect(values: Tensor) -> Tensor:
    """Even extension, so that a circular convolution reflects at both ends."""
    return torch.cat((values, values.flip(0)))
