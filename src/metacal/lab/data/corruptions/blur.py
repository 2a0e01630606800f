"""Blur, and the linear filters that other corruptions use too.

Lengths are in pixels of a 32 x 32 image and scale with the image. A separable filter of an image X is ``R X C^T`` with
small matrices that include the edges: two products for a whole batch, whatever the width of the filter.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import conv2d, pad

from metacal.lab.data.corruptions.base import Draws

SIDE = 32
"""Side of the images that the constants are for."""
FEW_WEIGHTS = 25
"""Kernels of up to this many weights are applied by adding shifted copies, which is faster than a convolution."""


def scale_of(images: Tensor) -> float:
    """Return the factor from lengths in the constants to pixels of these images."""
    return min(images.shape[-2:]) / SIDE


def filtered(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """``rows @ image @ columns.T`` for every image ``(..., H, W)``."""
    return torch.matmul(rows, torch.matmul(images, columns.mT))


def blurred(images: Tensor, sigma: float, *, truncate: float = 4.0, edge: str = "edge") -> Tensor:
    """Gaussian blur of ``(..., H, W)``; ``sigma`` is in pixels, ``truncate`` is the window's half-width in sigmas.

    ``edge`` is the mode of `numpy.pad` beyond the edge. A window of a single pixel changes nothing.
    """
    if int(truncate * sigma + 0.5) < 1:
        return images
    return filtered(images, *(_gaussian(size, sigma, truncate, edge, images.device) for size in images.shape[-2:]))


@lru_cache(maxsize=64)
def _gaussian(size: int, sigma: float, truncate: float, edge: Any, device: torch.device) -> Tensor:
    reach = int(truncate * sigma + 0.5)
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
    padded = np.pad(np.eye(size), ((reach, reach), (0, 0)), mode=edge)
    matrix = np.zeros((size, size))
    for first, weight in enumerate(weights / weights.sum()):
        matrix += weight * padded[first : first + size]
    return as_tensor(matrix, device)


@lru_cache(maxsize=32)
def zoom_matrix(size: int, factor: float, device: torch.device) -> Tensor:
    """``(size, size)``: enlarges the middle of a line of pixels to the whole line by linear interpolation."""
    kept = math.ceil(size / factor)
    first = (size - kept) // 2
    enlarged = round(kept * factor)
    cut = (enlarged - size) // 2
    places = (np.arange(size) + cut) * ((kept - 1) / max(enlarged - 1, 1))
    low = np.floor(places).astype(int).clip(0, kept - 1)
    high = (low + 1).clip(max=kept - 1)
    matrix = np.zeros((size, size))
    np.add.at(matrix, (np.arange(size), first + low), 1.0 - (places - low))
    np.add.at(matrix, (np.arange(size), first + high), places - low)
    return as_tensor(matrix, device)


def as_tensor(matrix: NDArray[np.float64], device: torch.device) -> Tensor:
    """Convert a matrix to float32 on a device."""
    return torch.from_numpy(matrix).float().to(device)


def defocus_blur(images: Tensor, lens: tuple[float, float], draws: Draws) -> Tensor:
    """Blur by a disk with a soft edge; ``lens`` is its radius and the sigma of the edge."""
    kernel = _disk(*lens, scale_of(images))
    reach = kernel.shape[-1] // 2
    height, width = images.shape[-2:]
    reach_h, reach_w = min(reach, height - 1), min(reach, width - 1)
    kernel = kernel[..., reach - reach_h : reach + reach_h + 1, reach - reach_w : reach + reach_w + 1]
    padded = pad(images, (reach_w, reach_w, reach_h, reach_h), mode="reflect")
    if kernel.numel() > FEW_WEIGHTS:
        return conv2d(padded.view(-1, 1, *padded.shape[-2:]), kernel.to(images.device)).view(images.shape)
    blur = torch.zeros_like(images)
    for down, row in enumerate(kernel[0, 0].tolist()):
        for right, weight in enumerate(row):
            if weight:
                blur.add_(padded[..., down : down + height, right : right + width], alpha=weight)
    return blur


@lru_cache(maxsize=32)
def _disk(radius: float, soft: float, scale: float) -> Tensor:
    """Kernel ``(1, 1, k, k)``: a disk, softened by a Gaussian of one (scaled) pixel's reach."""
    reach, edge = math.ceil(radius * scale), max(1, math.ceil(scale))
    line = np.arange(-reach - edge, reach + edge + 1)
    disk = (line[:, None] ** 2 + line[None] ** 2 <= (radius * scale) ** 2).astype(float)
    soften = np.exp(-0.5 * (np.arange(-edge, edge + 1) / (soft * scale)) ** 2)
    for axis in (0, 1):
        disk = np.apply_along_axis(np.convolve, axis, disk, soften / soften.sum(), mode="same")
    used = np.flatnonzero(disk.max(axis=0) > 1e-7 * disk.max())
    disk = disk[used[0] : used[-1] + 1, used[0] : used[-1] + 1]
    disk[disk < 1e-7 * disk.max()] = 0.0
    return torch.from_numpy(disk / disk.sum()).float()[None, None]


def glass_blur(images: Tensor, glass: tuple[float, int, int], draws: Draws) -> Tensor:
    """Blur, replace every pixel by a near one above or left of it, and blur again.

    ``glass`` is the sigma of the blur, the distance and the number of passes. The published loop means to swap pixels,
    but copies them; at a distance of one pixel it never reads a pixel it has written, so a pass is one gather.
    """
    sigma, distance, passes = glass
    scale = scale_of(images)
    far = max(1, round(distance * scale))
    count, _, height, width = images.shape
    images = blurred(images, sigma * scale)
    rows, columns = torch.arange(height, device=images.device), torch.arange(width, device=images.device)
    place = rows.unsqueeze(1) * width + columns
    inner = (rows > far).unsqueeze(1) & (columns > far)
    for _ in range(passes):
        # Two numbers from -far to far - 1; for far = 1: the same row or the one above, the same column or the previous.
        words = draws.words(height * width).view(-1, height, width)
        down, right = ((words >> first & 0x7FFF).mul_(2 * far).bitwise_right_shift_(15).sub_(far) for first in (0, 16))
        if far > 1:
            down, right = torch.minimum(down, height - 1 - rows.unsqueeze(1)), torch.minimum(right, width - 1 - columns)
        source = torch.where(inner, place + down * width + right, place).view(count, 1, -1)
        images = images.flatten(2).gather(2, source.expand(-1, images.shape[1], -1)).view(images.shape)
    return blurred(images, sigma * scale)


def motion_blur(images: Tensor, motion: tuple[float, float], draws: Draws) -> Tensor:
    """Smear along a line within 45 degrees of the horizontal; ``motion`` is radius and sigma."""
    return smeared(images, *motion, draws.uniforms(low=-math.pi / 4, high=math.pi / 4))


def smeared(images: Tensor, radius: float, sigma: float, angles: Tensor) -> Tensor:
    """Smear every image to one side by half a Gaussian, along a line at its angle ``(n,)`` in radians."""
    scale = scale_of(images)
    count, channels, height, width = images.shape
    weights = _half_gaussian(max(1, round(radius * scale)), sigma * scale)
    reach = len(weights) - 1
    padded = pad(images, (reach, reach, 0, 0), mode="replicate")
    wide = padded.shape[-1]
    lines = padded.view(-1).unfold(0, width, 1)  # line i starts at pixel i of the whole batch
    planes = torch.arange(count * channels, device=images.device).view(count, channels, 1) * (height * wide)
    rows = torch.arange(height, device=images.device)
    sine, cosine = angles.sin(), angles.cos()
    smear = images * weights[0]
    for step in range(1, reach + 1):
        down, right = ((step * part - 0.5).ceil().long().view(-1, 1, 1) for part in (sine, cosine))
        starts = planes + (rows + down).clamp_(0, height - 1) * wide + (right + reach)
        smear.add_(lines.index_select(0, starts.view(-1)).view(images.shape), alpha=weights[step])
    return smear


@lru_cache(maxsize=32)
def _half_gaussian(radius: int, sigma: float) -> Sequence[float]:
    """Weights at 0, 1, ... pixels; those too small to show in an 8-bit image are left out."""
    weights = np.exp(-0.5 * (np.arange(2 * radius + 1) / sigma) ** 2)
    kept = weights[weights > 1e-4 * weights.sum()]
    return [float(weight) for weight in kept / kept.sum()]


def zoom_blur(images: Tensor, furthest: float, draws: Draws) -> Tensor:
    """Average the image with copies enlarged in steps of 1 %, up to ``furthest``."""
    height, width = images.shape[-2:]
    factors = [float(factor) for factor in np.arange(1.0, furthest, 0.01)]
    rows = torch.cat([zoom_matrix(height, factor, images.device) for factor in factors], dim=1)
    columns = torch.cat([zoom_matrix(width, factor, images.device).mT for factor in factors], dim=1)
    zoomed = torch.matmul(images, columns)  # (..., H, factors x W): every row enlarged by every factor
    stacked = zoomed.view(*zoomed.shape[:-1], len(factors), width).movedim(-2, -3).flatten(-3, -2)
    return torch.matmul(rows, stacked).add_(images).div_(len(factors) + 1)


def gaussian_blur(images: Tensor, sigma: float, draws: Draws) -> Tensor:
    """Blur by a Gaussian."""
    return blurred(images, sigma * scale_of(images))
