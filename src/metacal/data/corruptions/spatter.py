"""Spatter: drops of water (severities 1 to 3) or mud (4 and 5) on the lens.

A drop of water is drawn by its rim: edges of the drops are found as Canny does it, and how far a pixel is from an edge
becomes light and shade.
"""

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, max_pool2d, pad

from metacal.data.corruptions.blur import scale_of
from metacal.data.corruptions.colour import paint
from metacal.data.corruptions.draws import Draws
from metacal.data.corruptions.filters import blurred

WATER = (175 / 255, 238 / 255, 238 / 255)
MUD = (63 / 255, 42 / 255, 20 / 255)
FURTHEST = 20
WEAK, STRONG = 50.0, 150.0
RELIEF = ((-2.0, -1.0, 0.0), (-1.0, 1.0, 1.0), (0.0, 1.0, 2.0))


def spatter(images: Tensor, liquid: tuple[float, ...], draws: Draws) -> Tensor:
    """Drops on the lens.

    ``liquid`` are mean, deviation and blur of the noise they come from, the threshold, how strong they are (mud: how
    soft), and whether they are mud.
    """
    mean, deviation, sigma, threshold, strength, is_mud = liquid
    scale = scale_of(images)
    # Blur over more pixels evens the noise out more: a larger deviation keeps the drops as many.
    noise = draws.normals(1, *images.shape[-2:]).mul_(deviation * max(1.0, scale)).add_(mean)
    layer = blurred(noise, sigma * scale)
    if is_mud:
        mud = blurred((layer > threshold).float(), strength * scale)
        mud = mud.masked_fill(mud < 0.8, 0.0)
        return torch.lerp(images, paint(MUD, images).expand_as(images), mud)
    drops = torch.where(layer < threshold, 0.0, layer.mul(255.0).floor_().clamp_(0.0, 255.0))
    shine = drops * _shading(drops, scale)
    shine = shine / shine.amax(dim=(1, 2, 3), keepdim=True).clamp(min=1e-8) * strength
    return images + shine * paint(WATER, images)


def _shading(drops: Tensor, scale: float) -> Tensor:
    """Light and shade ``(n, 1, H, W)`` from 0 to 255 by the distance from the rims of the drops."""
    furthest = max(1, round(FURTHEST * scale)) if scale > 1 else FURTHEST
    distance = _mean_of_nine(_distances(_edges(drops), furthest)).floor_()
    even = _equalised(distance.long(), furthest)
    kernel = torch.tensor(RELIEF, device=drops.device).view(1, 1, 3, 3)
    relief = torch.nn.functional.conv2d(pad(even, (1,) * 4, mode="reflect"), kernel).clamp_(0.0, 255.0)
    return _mean_of_nine(relief).round_()


def _mean_of_nine(values: Tensor) -> Tensor:
    return avg_pool2d(pad(values, (1,) * 4, mode="reflect"), 3, 1)


def _edges(drops: Tensor) -> Tensor:
    """Edges as Canny's method finds them, bool ``(n, 1, H, W)``: ridges of the gradient, weak ones next to strong."""
    around = pad(drops, (1,) * 4, mode="replicate")
    columns = around[..., :-2, :] + 2 * around[..., 1:-1, :] + around[..., 2:, :]
    rows = around[..., :, :-2] + 2 * around[..., :, 1:-1] + around[..., :, 2:]
    dx, dy = columns[..., 2:] - columns[..., :-2], rows[..., 2:, :] - rows[..., :-2, :]
    size = dx.abs() + dy.abs()
    beside = pad(size, (1,) * 4)
    height, width = size.shape[-2:]

    def at(down: int, right: int) -> Tensor:
        return beside[..., 1 + down : 1 + down + height, 1 + right : 1 + right + width]

    flat, steep = dy.abs() < 0.41421356 * dx.abs(), dy.abs() > 2.41421356 * dx.abs()
    along = (size > at(0, -1)) & (size >= at(0, 1))
    upright = (size > at(-1, 0)) & (size >= at(1, 0))
    falling = (size > at(-1, -1)) & (size > at(1, 1))
    rising = (size > at(-1, 1)) & (size > at(1, -1))
    slanted = torch.where((dx < 0) == (dy < 0), falling, rising)
    ridge = torch.where(flat, along, torch.where(steep, upright, slanted)) & (size > WEAK)
    strong = (ridge & (size > STRONG)).float()
    weak = ridge.float()
    for _ in range(4):  # weak edges here are a few pixels inside a drop, whose rim is strong
        strong = max_pool2d(strong, 3, 1, 1) * weak
    return strong > 0


def _distances(edges: Tensor, furthest: int) -> Tensor:
    """Distance of every pixel from the nearest edge, at most ``furthest``."""
    height, width = edges.shape[-2:]
    place = torch.arange(width, device=edges.device, dtype=torch.float32)
    far = float(4 * furthest)
    before = torch.where(edges, place, -far).cummax(dim=-1).values
    after = torch.where(edges, -place, -far - width).flip(-1).cummax(dim=-1).values.flip(-1).neg()
    along = torch.minimum(place - before, after - place).clamp_(max=far).square_()
    nearest = along.clone()
    for step in range(1, min(furthest, height)):
        moved = along + step**2
        nearest[..., step:, :] = torch.minimum(nearest[..., step:, :], moved[..., :-step, :])
        nearest[..., :-step, :] = torch.minimum(nearest[..., :-step, :], moved[..., step:, :])
    return nearest.sqrt_().clamp_(max=float(furthest))


def _equalised(values: Tensor, highest: int) -> Tensor:
    """Integers from 0 to ``highest`` spread over 0..255 so that every image's histogram becomes even."""
    count = len(values)
    levels = highest + 1
    offsets = torch.arange(count, device=values.device).view(-1, 1, 1, 1) * levels
    histogram = torch.bincount((values + offsets).view(-1), minlength=count * levels).view(count, levels)
    running = histogram.cumsum(dim=1).float()
    total = running[:, -1:]
    lowest = histogram.gather(1, (histogram > 0).int().argmax(dim=1, keepdim=True)).float()
    spread = (running - lowest) * (255.0 / (total - lowest).clamp(min=1.0))
    table = torch.where(total > lowest, spread, torch.arange(levels, device=values.device).float()).round_()
    return table.view(-1)[(values + offsets)]
