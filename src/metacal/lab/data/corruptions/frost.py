"""Frost: ice on the window. The textures are generated; the published arrays used six photographs, which are not ours.

What is matched is what matters to a network: mean colour and spread of the photographs, and fine needles in several
directions over soft patches.
"""

import math
from functools import lru_cache

import torch
from torch import Tensor

from metacal.lab.data.corruptions.blur import scale_of
from metacal.lab.data.corruptions.colour import luma
from metacal.lab.data.corruptions.draws import Draws
from metacal.seeding import generator

SIDE, LARGEST = 192, 1024
FROST = 20
"""Sets the random numbers of the textures apart from those of others."""
ICE = (
    ((0.30, 0.58, 0.65), 0.07),
    ((0.79, 0.81, 0.84), 0.086),
    ((0.79, 0.81, 0.84), 0.086),
    ((0.54, 0.60, 0.65), 0.115),
    ((0.44, 0.48, 0.53), 0.169),
)
"""Mean colour and spread of each texture: those of the five photographs that CIFAR-C drew from."""


def frost(images: Tensor, ice: tuple[float, float], draws: Draws) -> Tensor:
    """Weigh the image and add a piece of ice: ``ice`` are the two weights."""
    kept, added = ice
    _, channels, height, width = images.shape
    bank = frost_textures(_texture_side(images), images.device)
    side = bank.shape[-1]
    bank = bank if channels == 3 else luma(bank)
    places = draws.uniforms(3)
    texture = (places[:, 0] * len(ICE)).long().view(-1, 1, 1)
    top, left = ((places[:, axis] * side).long().view(-1, 1, 1) for axis in (1, 2))
    plane = texture * channels + torch.arange(channels, device=images.device).view(1, -1, 1)
    row = (top + torch.arange(height, device=images.device)) % side
    wide = torch.cat([bank] * (1 + math.ceil(width / side)), dim=-1)  # joins at the edges
    starts = (plane * side + row) * wide.shape[-1] + left
    lines = wide.reshape(-1).unfold(0, width, 1)
    piece = lines.index_select(0, starts.view(-1)).view(images.shape)
    return images.mul(kept).add_(piece, alpha=added)


def _texture_side(images: Tensor) -> int:
    return min(LARGEST, max(SIDE, int(SIDE * scale_of(images))))


@lru_cache(maxsize=8)
def frost_textures(side: int, device: torch.device) -> Tensor:
    """Textures ``(5, 3, side, side)`` between 0 and 1; opposite edges join."""
    textures = [
        torch.tensor(colour).view(-1, 1, 1) + spread * _texture(number, side)
        for number, (colour, spread) in enumerate(ICE)
    ]
    return torch.stack(textures).clamp_(0.0, 1.0).to(device)


def _texture(number: int, side: int) -> Tensor:
    """Soft patches, and where they are thick, needles in three directions; mean 0 and spread 1."""
    random = generator(FROST, number)
    turn = float(torch.rand((), generator=random)) * math.pi
    patches = _field(side, random, slope=1.6, stretch=1.0, angle=0.0)
    needles = torch.zeros(side, side)
    for direction in range(3):
        field = _field(side, random, slope=1.0, stretch=5.0, angle=turn + direction * math.pi / 3)
        needles = torch.maximum(needles, (1.0 - 1.6 * field.abs()).clamp_(min=0.0) ** 2)
    grain = _field(side, random, slope=0.4, stretch=1.0, angle=0.0)
    thick = torch.sigmoid(1.5 * patches)
    ice = 0.5 * patches + (2.2 * thick + 0.3) * needles + 0.5 * grain
    return (ice - ice.mean()) / ice.std()


def _field(side: int, random: torch.Generator, *, slope: float, stretch: float, angle: float) -> Tensor:
    """Noise of standard deviation 1 whose amplitude falls with frequency, slower across than along a direction.

    It is drawn at the smallest side, so that a texture of another size is the same one, finer.
    """
    chance = torch.randn(SIDE, SIDE, generator=random)
    spectrum = torch.fft.fft2(chance)
    frequency = torch.fft.fftfreq(SIDE) * SIDE
    down, across = frequency.unsqueeze(1), frequency.unsqueeze(0)
    along = math.cos(angle) * across + math.sin(angle) * down
    beside = -math.sin(angle) * across + math.cos(angle) * down
    spectrum *= (1.0 + (stretch * along) ** 2 + beside**2) ** (-slope / 2) * (along**2 + beside**2 > 4)
    if side > SIDE:
        wide = torch.zeros(side, side, dtype=spectrum.dtype)
        rows = (frequency.long() % side).unsqueeze(1)
        wide[rows, (frequency.long() % side).unsqueeze(0)] = spectrum
        spectrum = wide
    field: Tensor = torch.fft.ifft2(spectrum).real
    return field / field.std()
