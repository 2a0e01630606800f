"""Random numbers and colours, shared by the corruptions.

A random number is a hash of key, sample number and position, computed for a whole batch at a time. There is no
generator state, so an image is corrupted in the same way in any batch, process or device, also after a resume. Each
position takes one 32-bit mix (two multiplications, three shifts); a normal number takes half of one: 16 bits that index
a table of quantiles.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from metacal.seeding import mixed, random_bits

STEP = 0x9E3779B9 - 2**32
FIRST, SECOND = 0x7FEB352D, 0x846CA68B - 2**32
LEVELS = 2**16
LUMA = (0.299, 0.587, 0.114)


class Draws:
    """Random numbers for the images of a batch, by sample number; every call returns new ones.

    Examples:
        >>> import torch
        >>> many = Draws(7, torch.arange(4)).uniforms(3, 5)
        >>> torch.equal(Draws(7, torch.tensor([2])).uniforms(3, 5)[0], many[2])
        True
    """

    def __init__(self, key: int, samples: Tensor) -> None:
        self.key, self.samples, self._calls = key, samples, 0

    def words(self, count: int) -> Tensor:
        """Return 32 random bits each, int32 ``(n, count)``."""
        self._calls += 1
        keys = random_bits(mixed(self.key, self._calls), self.samples).view(torch.int32).view(-1, 2, 1)
        state = _places(count, self.samples.device) + keys[:, 0]
        _fold(state, 16).mul_(FIRST).bitwise_xor_(keys[:, 1])
        _fold(state, 15).mul_(SECOND)
        return _fold(state, 16)

    def levels(self, *shape: int) -> Tensor:
        """Return 16 random bits each, int32 from 0 to 65,535, ``(n, *shape)``."""
        count = math.prod(shape)
        halves = self.words((count + 1) // 2).view(torch.int16)[:, :count]
        return halves.to(torch.int32).add_(LEVELS // 2).view(-1, *shape)

    def uniforms(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Return uniform numbers, float32 ``(n, *shape)``, in steps of 2^-24 of the range."""
        words = self.words(math.prod(shape)).bitwise_right_shift_(8).bitwise_and_(0xFFFFFF)
        return words.float().mul_((high - low) * 2.0**-24).add_(low).view(-1, *shape)

    def normals(self, *shape: int) -> Tensor:
        """Return standard normal numbers, float32 ``(n, *shape)``: 65,536 values up to 4.3 in size."""
        levels = self.levels(*shape)
        return _normal_quantiles(levels.device).index_select(0, levels.view(-1)).view(levels.shape)


def _fold(words: Tensor, bits: int) -> Tensor:
    """``words ^ (words >>> bits)``, in place."""
    return words.bitwise_xor_((words >> bits).bitwise_and_(2 ** (32 - bits) - 1))


@lru_cache(maxsize=32)
def _places(count: int, device: torch.device) -> Tensor:
    return torch.arange(count, dtype=torch.int32, device=device) * STEP


@lru_cache(maxsize=8)
def _normal_quantiles(device: torch.device) -> Tensor:
    middles = (torch.arange(LEVELS, dtype=torch.float64) + 0.5) / LEVELS
    quantiles: Tensor = torch.special.ndtri(middles)
    return quantiles.float().to(device)


def luma(images: Tensor) -> Tensor:
    """Convert colour images to grey, ``(n, 1, H, W)``; grey images are returned unchanged."""
    if images.shape[1] == 1:
        return images
    return images[:, :1] * LUMA[0] + images[:, 1:2] * LUMA[1] + images[:, 2:] * LUMA[2]


def paint(colour: Sequence[float], images: Tensor) -> Tensor:
    """Return a colour as ``(C, 1, 1)``, converted to grey for images with one channel."""
    values = colour if images.shape[1] == 3 else [sum(c * w for c, w in zip(colour, LUMA, strict=True))]
    return torch.tensor(values, dtype=images.dtype, device=images.device).view(-1, 1, 1)


def highest(images: Tensor) -> Tensor:
    """Maximum over channels, ``(n, 1, H, W)``; two elementwise maxima are faster than a reduction."""
    if images.shape[1] == 1:
        return images.clone()
    return torch.maximum(torch.maximum(images[:, :1], images[:, 1:2]), images[:, 2:])
