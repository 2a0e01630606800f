"""Random numbers as pure functions of integers (seed, epoch, sample), without generator state.

The mixing is that of SplitMix64, so a value depends on nothing but its arguments: not on the batch, the order, the
process or the device that asks for it.
"""

import torch
from torch import Tensor

STEP = 0x9E3779B97F4A7C15
FIRST, SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
WORD = 2**64 - 1


def mixed(*numbers: int) -> int:
    """Mix integers, in order, into 63 bits."""
    state = 0
    for number in numbers:
        state = (state ^ (int(number) & WORD)) + STEP & WORD  # numpy's integers would overflow
        state = (state ^ state >> 30) * FIRST & WORD
        state = (state ^ state >> 27) * SECOND & WORD
        state ^= state >> 31
    return state >> 1


def generator(*numbers: int) -> torch.Generator:
    """Return a CPU generator seeded by some integers."""
    return torch.Generator().manual_seed(mixed(*numbers))


def random_bits(key: int, samples: Tensor) -> Tensor:
    """64 random bits for every sample number, as int64 on its device: a pure function of key and number."""
    state = samples.to(torch.int64) * _signed(STEP) + _signed(key)
    state = (state ^ _shifted(state, 30)) * _signed(FIRST)
    state = (state ^ _shifted(state, 27)) * _signed(SECOND)
    return state ^ _shifted(state, 31)


def _signed(word: int) -> int:
    """The int64 that has these 64 bits."""
    return word - 2**64 if word >= 2**63 else word


def _shifted(words: Tensor, bits: int) -> Tensor:
    """Shift right and fill with zeros (int64's own shift repeats the sign)."""
    moved: Tensor = (words >> bits) & (2 ** (64 - bits) - 1)
    return moved
