"""Colour: brightness, contrast, saturation, and grey as colours make it."""

from collections.abc import Sequence

import torch
from torch import Tensor

from metacal.lab.data.corruptions.draws import Draws

LUMA = (0.299, 0.587, 0.114)
TINY = 1e-7


def luma(images: Tensor) -> Tensor:
    """Grey ``(n, 1, H, W)`` of colour images; grey ones are that already."""
    if images.shape[1] == 1:
        return images
    return images[:, :1] * LUMA[0] + images[:, 1:2] * LUMA[1] + images[:, 2:] * LUMA[2]


def paint(colour: Sequence[float], images: Tensor) -> Tensor:
    """A colour ``(C, 1, 1)`` for these images: its grey where they have one channel."""
    values = colour if images.shape[1] == 3 else [sum(c * w for c, w in zip(colour, LUMA, strict=True))]
    return torch.tensor(values, dtype=images.dtype, device=images.device).view(-1, 1, 1)


def _highest(images: Tensor) -> Tensor:
    """The highest channel of every pixel ``(n, 1, H, W)``: two maxima are faster than a reduction."""
    if images.shape[1] == 1:
        return images.clone()
    return torch.maximum(torch.maximum(images[:, :1], images[:, 1:2]), images[:, 2:])


def brightness(images: Tensor, more: float, draws: Draws) -> Tensor:
    """Raise the value of HSV: every channel in proportion, black to grey."""
    value = _highest(images)
    raised = (value + more).clamp_(max=1.0)
    # Far below what 8 bits show, and it makes black grey without a case of its own.
    return (images + TINY).mul_(raised.div_(value.add_(TINY)))


def contrast(images: Tensor, kept: float, draws: Draws) -> Tensor:
    """Draw every channel towards its mean."""
    means = images.mean(dim=(2, 3), keepdim=True)
    return torch.lerp(means, images, kept)


def saturate(images: Tensor, change: tuple[float, float], draws: Draws) -> Tensor:
    """Change the saturation of HSV to ``factor * saturation + offset``; grey has the hue of red, as in the original."""
    if images.shape[1] == 1:
        return luma(saturate(images.expand(-1, 3, -1, -1), change, draws))
    factor, offset = change
    value = _highest(images)
    chroma = value + _highest(-images)
    wanted = (chroma / value.clamp(min=1e-8)).mul_(factor).add_(offset).clamp_(0.0, 1.0).mul_(value)
    away = torch.where(chroma > 0, (value - images) * (wanted / chroma), wanted * paint((0.0, 1.0, 1.0), images))
    return value - away
