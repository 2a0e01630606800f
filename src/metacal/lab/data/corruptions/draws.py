"""Random numbers of a corruption: each a function of key, sample number and place alone, a whole batch at a time.

No generator is moved along, so an image is corrupted alike whatever batch, process or device it comes on, and a run
that is resumed needs no state. A place takes one 32-bit mix (two multiplications, three shifts); a normal number takes
half of one, as 16 bits that look up the quantile: about as fast as a generator that runs serially.
"""

from functools import lru_cache

import torch
from torch import Tensor

from metacal.seeding import mixed, random_bits

STEP = 0x9E3779B9 - 2**32
FIRST, SECOND = 0x7FEB352D, 0x846CA68B - 2**32
LEVELS = 2**16


class Draws:
    """Random numbers for the images of a batch; every call gives fresh ones.

    Args:
        key: sets them apart from those of other seeds and corruptions.
        samples: int64 ``(n,)``, the number of each image; on the device of the result.

    Examples:
        >>> import torch
        >>> many = Draws(7, torch.arange(4)).uniforms(3, 5)
        >>> torch.equal(Draws(7, torch.tensor([2])).uniforms(3, 5)[0], many[2])
        True
    """

    def __init__(self, key: int, samples: Tensor) -> None:
        self.key, self.samples, self._calls = key, samples, 0

    def words(self, count: int) -> Tensor:
        """32 random bits each, int32 ``(n, count)``."""
        self._calls += 1
        keys = random_bits(mixed(self.key, self._calls), self.samples).view(torch.int32).view(-1, 2, 1)
        state = _places(count, self.samples.device) + keys[:, 0]
        _fold(state, 16).mul_(FIRST).bitwise_xor_(keys[:, 1])
        _fold(state, 15).mul_(SECOND)
        return _fold(state, 16)

    def levels(self, *shape: int) -> Tensor:
        """16 random bits each, int32 from 0 to 65,535, ``(n, *shape)``."""
        count = _product(shape)
        halves = self.words((count + 1) // 2).view(torch.int16)[:, :count]
        return halves.to(torch.int32).add_(LEVELS // 2).view(-1, *shape)

    def uniforms(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Even between two numbers, float32 ``(n, *shape)``, in steps of 2^-24 of their distance."""
        words = self.words(_product(shape)).bitwise_right_shift_(8).bitwise_and_(0xFFFFFF)
        return words.float().mul_((high - low) * 2.0**-24).add_(low).view(-1, *shape)

    def normals(self, *shape: int) -> Tensor:
        """Standard normal, float32 ``(n, *shape)``: 65,536 values, the furthest at 4.3."""
        levels = self.levels(*shape)
        return _normal_quantiles(levels.device).index_select(0, levels.view(-1)).view(levels.shape)


def _fold(words: Tensor, bits: int) -> Tensor:
    """``words ^ (words >>> bits)``, in place."""
    return words.bitwise_xor_((words >> bits).bitwise_and_(2 ** (32 - bits) - 1))


def _product(shape: tuple[int, ...]) -> int:
    product = 1
    for size in shape:
        product *= size
    return product


@lru_cache(maxsize=32)
def _places(count: int, device: torch.device) -> Tensor:
    return torch.arange(count, dtype=torch.int32, device=device) * STEP


@lru_cache(maxsize=8)
def _normal_quantiles(device: torch.device) -> Tensor:
    middles = (torch.arange(LEVELS, dtype=torch.float64) + 0.5) / LEVELS
    quantiles: Tensor = torch.special.ndtri(middles)
    return quantiles.float().to(device)
