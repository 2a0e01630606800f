"""Digital corruptions: contrast, elastic transform, pixelate, JPEG compression and saturation."""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import grid_sample, pad

from metacal.lab.data.corruptions.base import Draws, highest, luma, paint
from metacal.lab.data.corruptions.blur import SIDE, as_tensor, blurred, filtered, scale_of

BLOCK = 8
LUMINANCE = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
CHROMINANCE = (
    (17, 18, 24, 47, 99, 99, 99, 99),
    (18, 21, 26, 66, 99, 99, 99, 99),
    (24, 26, 56, 99, 99, 99, 99, 99),
    (47, 66, 99, 99, 99, 99, 99, 99),
    *((99,) * 8,) * 4,
)
TO_YCC = ((0.299, 0.587, 0.114), (-0.168736, -0.331264, 0.5), (0.5, -0.418688, -0.081312))
TO_RGB = ((1.0, 0.0, 1.402), (1.0, -0.344136, -0.714136), (1.0, 1.772, 0.0))


def contrast(images: Tensor, kept: float, draws: Draws) -> Tensor:
    """Move every channel towards its mean."""
    means = images.mean(dim=(2, 3), keepdim=True)
    return torch.lerp(means, images, kept)


def elastic_transform(images: Tensor, rubber: tuple[float, float, float], draws: Draws) -> Tensor:
    """Warp; ``rubber`` is strength and smoothness of the field, and the affine move, as shares of the side."""
    strength, smooth, move = rubber
    height, width = images.shape[-2:]
    side, scale = scale_of(images) * SIDE, scale_of(images)
    y, x = torch.meshgrid(
        *(torch.arange(size, device=images.device).float() for size in (height, width)), indexing="ij"
    )
    images = _sampled(images, *_affine(x, y, move * side, draws), corners=True)
    if not strength:
        return images
    field = draws.uniforms(2, height, width, low=-1.0, high=1.0)
    field = blurred(field, smooth * side, truncate=3.0, edge="symmetric").mul_(strength * side * scale)
    return _sampled(images, x + field[:, 0], y + field[:, 1], corners=False)


def _affine(x: Tensor, y: Tensor, move: float, draws: Draws) -> tuple[Tensor, Tensor]:
    """Source coordinates of pixels after three points around the centre move by up to ``move`` pixels in each axis."""
    height, width = x.shape
    middle = torch.tensor([height // 2, width // 2], device=x.device)  # used as (x, y), as in the original
    arm = max(1, min(height, width) // 3)
    corners = torch.tensor([[arm, arm], [arm, -arm], [-arm, -arm]], device=x.device)
    before = (middle + corners).float()
    after = before + draws.uniforms(3, 2, low=-move, high=move)
    first, second = after[:, 1] - after[:, 0], after[:, 2] - after[:, 0]
    size = (first[:, :1] * second[:, 1:] - first[:, 1:] * second[:, :1]).view(-1, 1, 1)
    along_x, along_y = x - after[:, 0, 0].view(-1, 1, 1), y - after[:, 0, 1].view(-1, 1, 1)
    # Coordinates of a pixel along the two moved sides, then the point with the same coordinates along the old sides.
    one = (along_x * second[:, 1].view(-1, 1, 1) - along_y * second[:, 0].view(-1, 1, 1)) / size
    two = (along_y * first[:, 0].view(-1, 1, 1) - along_x * first[:, 1].view(-1, 1, 1)) / size
    old_x, old_y = (
        before[0, axis] + one * (before[1] - before[0])[axis] + two * (before[2] - before[0])[axis] for axis in (0, 1)
    )
    return old_x, old_y


def _sampled(images: Tensor, x: Tensor, y: Tensor, *, corners: bool) -> Tensor:
    """Interpolate images; beyond the edge they are mirrored about the last pixel (``corners``) or its outer edge."""
    places = zip((x, y), images.shape[:-3:-1], strict=True)
    grid = [2 * at / (size - 1) - 1 if corners else (2 * at + 1) / size - 1 for at, size in places]
    return grid_sample(
        images, torch.stack(grid, dim=-1), mode="bilinear", padding_mode="reflection", align_corners=corners
    )


def pixelate(images: Tensor, share: float, draws: Draws) -> Tensor:
    """Average down to a share of the size, then repeat pixels up to the full size."""
    return filtered(images, *(_pixelate_matrix(size, share, images.device) for size in images.shape[-2:]))


@lru_cache(maxsize=32)
def _pixelate_matrix(size: int, share: float, device: torch.device) -> Tensor:
    """``(size, size)``: averages a line of pixels down to a share of its length, then repeats it to full length."""
    small = max(1, int(size * share))
    step = size / small
    down = np.zeros((small, size))
    for pixel in range(small):
        middle = (pixel + 0.5) * step
        low, high = max(0, int(middle - 0.5 * step + 0.5)), min(size, int(middle + 0.5 * step + 0.5))
        down[pixel, low:high] = 1.0 / (high - low)
    nearest = ((np.arange(size) + 0.5) * small / size).astype(int).clip(max=small - 1)
    return as_tensor(down[nearest], device)


def jpeg_compression(images: Tensor, quality: int, draws: Draws) -> Tensor:
    """Compress and decompress at a quality from 1 to 100.

    The steps are libjpeg's defaults: YCbCr, chroma at half resolution in both directions, blocks of 8 x 8, the tables
    of the standard's Annex K scaled by the quality, chroma upsampled by a triangle filter, and 8-bit rounding wherever
    libjpeg rounds. Pillow takes six times as long, runs on the CPU only, and its integer arithmetic gives other pixels.
    """
    pixels = images.mul(255.0).round_()
    height, width = images.shape[-2:]
    if images.shape[1] == 1:
        return _coded(_whole(pixels, BLOCK, BLOCK), LUMINANCE, quality)[..., :height, :width].div(255.0)
    # Columns are padded before chroma is halved, rows after it.
    rgb = _whole(pixels, 2, 2 * BLOCK)
    y, blue, red = (_mixed(weights, torch.split(rgb, 1, dim=1)).round_() for weights in TO_YCC)
    y = _coded(_whole(y, BLOCK, BLOCK), LUMINANCE, quality)[..., :height, :width]
    chroma = _whole(torch.cat((_halved(blue), _halved(red)), dim=1) + 128.0, BLOCK, BLOCK)
    chroma = _coded(chroma, CHROMINANCE, quality).sub_(128.0)
    rows, columns = (_doubling(math.ceil(size / 2), images.device)[:size] for size in (height, width))
    chroma = chroma[..., : columns.shape[1]][..., : rows.shape[1], :]
    chroma = filtered(chroma, rows, columns).add_(0.5).floor_()
    restored = torch.empty_like(pixels)
    for channel, weights in enumerate(TO_RGB):
        restored[:, channel : channel + 1] = _mixed(weights, (y, chroma[:, :1], chroma[:, 1:]))
    return restored.round_().clamp_(0.0, 255.0).div_(255.0)


def _mixed(weights: Sequence[float], planes: Sequence[Tensor]) -> Tensor:
    """A weighted sum of channels."""
    mixture = planes[0] * weights[0]
    for plane, weight in zip(planes[1:], weights[1:], strict=True):
        if weight:
            mixture.add_(plane, alpha=weight)
    return mixture


def _whole(pixels: Tensor, rows: int, columns: int) -> Tensor:
    """Repeat the last row and column until height and width are multiples of ``rows`` and ``columns``."""
    height, width = pixels.shape[-2:]
    down, right = -height % rows, -width % columns
    return pad(pixels, (0, right, 0, down), mode="replicate") if down or right else pixels


def _halved(chroma: Tensor) -> Tensor:
    """Means of 2 x 2 pixels, rounded alternately up and down by column."""
    sums = chroma[..., ::2, ::2] + chroma[..., ::2, 1::2] + chroma[..., 1::2, ::2] + chroma[..., 1::2, 1::2]
    turns = 1.0 + torch.arange(sums.shape[-1], device=sums.device) % 2
    return sums.add_(turns).mul_(0.25).floor_()


def _coded(planes: Tensor, table: tuple[tuple[int, ...], ...], quality: int) -> Tensor:
    """Apply the cosine transform to every block of planes in 0..255, quantise by the table, and transform back."""
    count, channels, height, width = planes.shape
    forward, steps = _transform(planes.device), _steps(table, quality, planes.device)
    blocks = planes.sub(128.0).reshape(count, channels, height // BLOCK, BLOCK, width // BLOCK, BLOCK)
    blocks = blocks.transpose(3, 4).reshape(-1, BLOCK * BLOCK)
    levels = torch.matmul(blocks, forward.mT / steps).round_()
    restored = torch.matmul(levels, forward * steps.unsqueeze(1)).add_(128.0).round_().clamp_(0.0, 255.0)
    restored = restored.view(count, channels, height // BLOCK, width // BLOCK, BLOCK, BLOCK).transpose(3, 4)
    return restored.reshape(planes.shape)


@lru_cache(maxsize=8)
def _transform(device: torch.device) -> Tensor:
    """The orthonormal cosine transform of a flattened block, ``(64, 64)``."""
    place = torch.arange(BLOCK, dtype=torch.float64)
    line = torch.cos(math.pi / BLOCK * (place + 0.5) * place.unsqueeze(1)) * math.sqrt(2 / BLOCK)
    line[0] /= math.sqrt(2)
    return torch.kron(line, line).float().to(device)


@lru_cache(maxsize=32)
def _steps(table: tuple[tuple[int, ...], ...], quality: int, device: torch.device) -> Tensor:
    """Quantisation steps of the 64 coefficients at a quality."""
    percent = 5000 // quality if quality < 50 else 200 - 2 * quality
    steps = [min(255, max(1, (step * percent + 50) // 100)) for row in table for step in row]
    return torch.tensor(steps, dtype=torch.float32, device=device)


@lru_cache(maxsize=16)
def _doubling(size: int, device: torch.device) -> Tensor:
    """``(2 * size, size)``: repeats every value, taking a quarter from the neighbour on that side."""
    place = torch.arange(size)
    matrix = torch.zeros(2 * size, size)
    for first, neighbour in ((0, place - 1), (1, place + 1)):
        matrix[2 * place + first, place] += 0.75
        matrix[2 * place + first, neighbour.clamp(0, size - 1)] += 0.25
    return matrix.to(device)


def saturate(images: Tensor, change: tuple[float, float], draws: Draws) -> Tensor:
    """Change the HSV saturation to ``factor * saturation + offset``; grey has the hue of red, as in the original."""
    if images.shape[1] == 1:
        return luma(saturate(images.expand(-1, 3, -1, -1), change, draws))
    factor, offset = change
    value = highest(images)
    chroma = value + highest(-images)
    wanted = (chroma / value.clamp(min=1e-8)).mul_(factor).add_(offset).clamp_(0.0, 1.0).mul_(value)
    away = torch.where(chroma > 0, (value - images) * (wanted / chroma), wanted * paint((0.0, 1.0, 1.0), images))
    return value - away
