"""Linear filters over rows and columns as small matrices: blur, zoom and box resampling, edges included.

A separable filter of an image X is ``R X C^T``: two products for a whole batch, whatever the filter's width.
"""

import math
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Matrix = NDArray[np.float64]


def filtered(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """``rows @ image @ columns.T`` for every image ``(..., H, W)``."""
    return torch.matmul(rows, torch.matmul(images, columns.mT))


def blurred(images: Tensor, sigma: float, *, truncate: float = 4.0, edge: str = "nearest") -> Tensor:
    """Gaussian blur with a standard deviation in pixels.

    Args:
        images: ``(..., H, W)``.
        sigma: standard deviation; one that is too small for its window to reach a neighbour changes nothing.
        truncate: the window ends after so many standard deviations.
        edge: beyond the edge ``nearest`` repeats the last pixel, ``reflect`` mirrors the image, last pixel included.
    """
    if int(truncate * sigma + 0.5) < 1:
        return images
    height, width = images.shape[-2:]
    rows, columns = (_gaussian(size, sigma, truncate, edge, images.device) for size in (height, width))
    return filtered(images, rows, columns)


@lru_cache(maxsize=64)
def _gaussian(size: int, sigma: float, truncate: float, edge: str, device: torch.device) -> Tensor:
    reach = int(truncate * sigma + 0.5)
    offsets = np.arange(-reach, reach + 1)
    weights = np.exp(-0.5 * (offsets / sigma) ** 2)
    matrix = np.zeros((size, size))
    rows = np.repeat(np.arange(size), len(offsets))
    places = rows + np.tile(offsets, size)
    if edge == "nearest":
        places = places.clip(0, size - 1)
    else:
        places = places % (2 * size)
        places = np.where(places < size, places, 2 * size - 1 - places)
    np.add.at(matrix, (rows, places), np.tile(weights / weights.sum(), size))
    return _as_tensor(matrix, device)


@lru_cache(maxsize=32)
def zoom_matrix(size: int, factor: float, device: torch.device) -> Tensor:
    """``(size, size)``: the middle of a line of pixels, enlarged to its whole length by linear interpolation."""
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
    return _as_tensor(matrix, device)


@lru_cache(maxsize=32)
def pixelate_matrix(size: int, share: float, device: torch.device) -> Tensor:
    """``(size, size)``: a line of pixels averaged down to a share of its length, then repeated up to all of it."""
    small = max(1, int(size * share))
    step = size / small
    down = np.zeros((small, size))
    for pixel in range(small):
        middle = (pixel + 0.5) * step
        low, high = max(0, int(middle - 0.5 * step + 0.5)), min(size, int(middle + 0.5 * step + 0.5))
        down[pixel, low:high] = 1.0 / (high - low)
    nearest = ((np.arange(size) + 0.5) * small / size).astype(int).clip(max=small - 1)
    return _as_tensor(down[nearest], device)


def _as_tensor(matrix: Matrix, device: torch.device) -> Tensor:
    return torch.from_numpy(matrix).float().to(device)
