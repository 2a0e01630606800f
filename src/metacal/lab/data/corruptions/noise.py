"""Noise in every pixel and channel, the same at every image size."""

from functools import lru_cache

import torch
from torch import Tensor

from metacal.lab.data.corruptions.base import LEVELS, Draws

SHADES = 256
QUANTILES = 2**11


def gaussian_noise(images: Tensor, deviation: float, draws: Draws) -> Tensor:
    """Add normal noise."""
    return draws.normals(*images.shape[1:]).mul_(deviation).add_(images)


def shot_noise(images: Tensor, photons: float, draws: Draws) -> Tensor:
    """Add Poisson noise with ``photons`` at white, looked up for the nearest of 256 shades."""
    levels = draws.levels(*images.shape[1:]).bitwise_right_shift_((LEVELS // QUANTILES).bit_length() - 1)
    shade = images.mul(SHADES - 1).round_().to(torch.int32).mul_(QUANTILES)
    deviations = _poisson_deviations(float(photons), images.device)
    return deviations.index_select(0, shade.add_(levels).view(-1)).view(images.shape).add_(images)


@lru_cache(maxsize=16)
def _poisson_deviations(photons: float, device: torch.device) -> Tensor:
    """Quantiles of ``Poisson(photons * shade) / photons - shade``, for one shade after another."""
    shades = (torch.arange(SHADES, dtype=torch.float64) / (SHADES - 1)).unsqueeze(1)
    mean = photons * shades
    counts = torch.arange(int(photons + 8 * photons**0.5 + 10), dtype=torch.float64)
    log_share = torch.xlogy(counts, mean) - mean - torch.lgamma(counts + 1)
    middles = ((torch.arange(QUANTILES, dtype=torch.float64) + 0.5) / QUANTILES).expand(SHADES, -1).contiguous()
    found = torch.searchsorted(log_share.exp().cumsum(1), middles)
    return (found / photons - shades).float().reshape(-1).to(device)


def impulse_noise(images: Tensor, share: float, draws: Draws) -> Tensor:
    """Set a share of the values to black or white, half each."""
    levels = draws.levels(*images.shape[1:])
    black = round(share / 2 * LEVELS)
    # Products and maxima of whole tensors are several times faster than filling with a mask.
    kept, white = levels.ge(black).float(), levels.ge(LEVELS - black).float()
    return torch.maximum(kept.mul_(images), white)


def speckle_noise(images: Tensor, deviation: float, draws: Draws) -> Tensor:
    """Add normal noise in proportion to the pixel."""
    return draws.normals(*images.shape[1:]).mul_(deviation).add_(1.0).mul_(images)
