"""JPEG: what compression at a quality does to an image, on its device and without a file.

The steps are libjpeg's at its defaults: YCbCr, chroma halved both ways, blocks of 8 x 8, the tables of the standard's
Annex K scaled by the quality, and chroma enlarged again by a triangle filter; 8-bit rounding wherever a file has it.
Entropy coding loses nothing, so it is left out.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import pad

from metacal.lab.data.corruptions.draws import Draws

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


def jpeg_compression(images: Tensor, quality: int, draws: Draws) -> Tensor:
    """Compress and decompress at a quality from 1 to 100; a grey image has no chroma to halve."""
    pixels = images.mul(255.0).round_()
    height, width = images.shape[-2:]
    if images.shape[1] == 1:
        return _coded(_whole(pixels, BLOCK, BLOCK), LUMINANCE, quality)[..., :height, :width].div(255.0)
    # Columns are repeated before chroma is halved, rows after it.
    rgb = _whole(pixels, 2, 2 * BLOCK)
    y, blue, red = (_mixed(weights, torch.split(rgb, 1, dim=1)).round_() for weights in TO_YCC)
    y = _coded(_whole(y, BLOCK, BLOCK), LUMINANCE, quality)[..., :height, :width]
    chroma = _whole(torch.cat((_halved(blue), _halved(red)), dim=1) + 128.0, BLOCK, BLOCK)
    chroma = _coded(chroma, CHROMINANCE, quality).sub_(128.0)
    rows, columns = (_doubling(math.ceil(size / 2), images.device)[:size] for size in (height, width))
    chroma = chroma[..., : columns.shape[1]][..., : rows.shape[1], :]
    chroma = torch.matmul(rows, torch.matmul(chroma, columns.mT)).add_(0.5).floor_()
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
    """Images with the last row and column repeated until there are a multiple of so many."""
    height, width = pixels.shape[-2:]
    down, right = -height % rows, -width % columns
    return pad(pixels, (0, right, 0, down), mode="replicate") if down or right else pixels


def _halved(chroma: Tensor) -> Tensor:
    """Means of 2 x 2 pixels, rounded up and down in turns from column to column."""
    sums = chroma[..., ::2, ::2] + chroma[..., ::2, 1::2] + chroma[..., 1::2, ::2] + chroma[..., 1::2, 1::2]
    turns = 1.0 + torch.arange(sums.shape[-1], device=sums.device) % 2
    return sums.add_(turns).mul_(0.25).floor_()


def _coded(planes: Tensor, table: tuple[tuple[int, ...], ...], quality: int) -> Tensor:
    """Planes of 0..255 after a cosine transform of every block, rounded to the table's steps, and back."""
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
    """The cosine transform of a flattened block, ``(64, 64)``, orthonormal."""
    place = torch.arange(BLOCK, dtype=torch.float64)
    line = torch.cos(math.pi / BLOCK * (place + 0.5) * place.unsqueeze(1)) * math.sqrt(2 / BLOCK)
    line[0] /= math.sqrt(2)
    return torch.kron(line, line).float().to(device)


@lru_cache(maxsize=32)
def _steps(table: tuple[tuple[int, ...], ...], quality: int, device: torch.device) -> Tensor:
    """Steps of the 64 coefficients at a quality."""
    percent = 5000 // quality if quality < 50 else 200 - 2 * quality
    steps = [min(255, max(1, (step * percent + 50) // 100)) for row in table for step in row]
    return torch.tensor(steps, dtype=torch.float32, device=device)


@lru_cache(maxsize=16)
def _doubling(size: int, device: torch.device) -> Tensor:
    """``(2 * size, size)``: every value twice, a quarter of each from the neighbour on its side."""
    place = torch.arange(size)
    matrix = torch.zeros(2 * size, size)
    for first, neighbour in ((0, place - 1), (1, place + 1)):
        matrix[2 * place + first, place] += 0.75
        matrix[2 * place + first, neighbour.clamp(0, size - 1)] += 0.25
    return matrix.to(device)
