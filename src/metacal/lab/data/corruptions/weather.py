"""Weather: snow and fog; `frost` and `spatter` have files of their own."""

import math

import torch
from torch import Tensor

from metacal.lab.data.corruptions.blur import scale_of, smeared
from metacal.lab.data.corruptions.colour import luma
from metacal.lab.data.corruptions.draws import Draws
from metacal.lab.data.corruptions.filters import filtered, zoom_matrix

WIBBLE = 100.0


def snow(images: Tensor, flakes: tuple[float, ...], draws: Draws) -> Tensor:
    """Whiten the image and let flakes fall across it, twice: as they are and turned by half a circle.

    ``flakes`` are mean and deviation of the noise they come from, their size, the threshold, radius and deviation of
    their fall, and how much of the image stays.
    """
    mean, deviation, size, threshold, radius, sigma, kept = flakes
    height, width = images.shape[-2:]
    layer = draws.normals(1, height, width).mul_(deviation).add_(mean)
    factor = max(1.0, size * scale_of(images))
    layer = filtered(
        layer, zoom_matrix(height, factor, images.device), zoom_matrix(width, factor, images.device)
    ).clamp_(0.0, 1.0)
    layer = layer * layer.ge(threshold).float()
    layer = smeared(layer, radius, sigma, draws.uniforms(low=-0.75 * math.pi, high=-0.25 * math.pi))
    white = torch.maximum(images, luma(images).mul(1.5).add_(0.5))
    return torch.lerp(white, images, kept).add_(layer).add_(layer.flip(-1, -2))


def fog(images: Tensor, cloud: tuple[float, float], draws: Draws) -> Tensor:
    """Mix in a plasma fractal: ``cloud`` is its share and how fast its details fade."""
    share, decay = cloud
    height, width = images.shape[-2:]
    side = 2 ** (max(height, width, 2) - 1).bit_length()
    clouds = plasma_fractal(side, decay, draws)[:, :height, :width].unsqueeze(1)
    brightest = images.amax(dim=(1, 2, 3), keepdim=True)
    return (images + share * clouds) * (brightest / (brightest + share))


def plasma_fractal(side: int, decay: float, draws: Draws) -> Tensor:
    """Height maps ``(n, side, side)`` between 0 and 1 by the diamond-square algorithm; opposite edges join.

    Args:
        side: a power of two.
        decay: the random part of a height shrinks by the square of this from one level to the next.
        draws: its random numbers.
    """
    chance = draws.uniforms(side, side, low=-1.0, high=1.0)
    field = torch.zeros_like(chance)
    step, wibble = side, WIBBLE
    while step >= 2:
        half = step // 2
        corners = field[:, ::step, ::step]
        across = corners + corners.roll(-1, 1)
        middles = (across + across.roll(-1, 2)) / 4 + wibble**2 * chance[:, half::step, half::step]
        field[:, half::step, half::step] = middles
        # Each point between two corners also has two middles beside it.
        beside = (middles + middles.roll(1, 1) + corners + corners.roll(-1, 2)) / 4
        above = (middles + middles.roll(1, 2) + corners + corners.roll(-1, 1)) / 4
        field[:, ::step, half::step] = beside + wibble**2 * chance[:, ::step, half::step]
        field[:, half::step, ::step] = above + wibble**2 * chance[:, half::step, ::step]
        step, wibble = half, wibble / decay
    field -= field.amin(dim=(1, 2), keepdim=True)
    return field / field.amax(dim=(1, 2), keepdim=True)
