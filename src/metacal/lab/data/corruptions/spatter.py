"""Spatter: drops of water (severities 1 to 3) or mud (4 and 5) on the lens.

A drop of water is drawn by its rim: edges of the drops are found as Canny does it, and how far a pixel is from an edge
becomes light and shade.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from metacal.lab.data.corruptions.blur import scale_of
from metacal.lab.data.corruptions.colour import paint
from metacal.lab.data.corruptions.draws import Draws
from metacal.lab.data.corruptions.filters import blurred

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
    drops = layer.mul(255.0).floor_().clamp_(0.0, 255.0).mul_(layer.ge(threshold).float())
    shine = drops * _shading(drops, scale)
    shine = shine / shine.amax(dim=(1, 2, 3), keepdim=True).clamp(min=1e-8) * strength
    return images + shine * paint(WATER, images)


def _shading(drops: Tensor, scale: float) -> Tensor:
    """Light and shade ``(n, 1, H, W)`` from 0 to 255 by the distance from the rims of the drops."""
    furthest = round(FURTHEST * max(1.0, scale))
    distance = _mean_of_nine(_distances(_edges(drops), furthest)).floor_()
    even = pad(_equalised(distance.to(torch.int32), furthest), (1,) * 4, mode="reflect")
    relief = torch.zeros_like(drops)
    for down, row in enumerate(RELIEF):
        for right, weight in enumerate(row):
            if weight:
                relief.add_(_moved(even, down, right), alpha=weight)
    return _mean_of_nine(relief.clamp_(0.0, 255.0)).round_()


def _moved(padded: Tensor, down: int, right: int) -> Tensor:
    """What is ``down - 1`` below and ``right - 1`` right of every pixel, in values with a rim of one."""
    height, width = padded.shape[-2:]
    return padded[..., down : down + height - 2, right : right + width - 2]


def _mean_of_nine(values: Tensor) -> Tensor:
    around = pad(values, (1,) * 4, mode="reflect")
    lines = around[..., :-2] + around[..., 1:-1] + around[..., 2:]
    return (lines[..., :-2, :] + lines[..., 1:-1, :] + lines[..., 2:, :]).div_(9.0)


def _edges(drops: Tensor) -> Tensor:
    """Edges as Canny's method finds them, bool ``(n, 1, H, W)``: ridges of the gradient, weak ones next to strong."""
    around = pad(drops, (1,) * 4, mode="replicate")
    columns = around[..., :-2, :] + 2 * around[..., 1:-1, :] + around[..., 2:, :]
    rows = around[..., :, :-2] + 2 * around[..., :, 1:-1] + around[..., :, 2:]
    dx, dy = columns[..., 2:] - columns[..., :-2], rows[..., 2:, :] - rows[..., :-2, :]
    across, down = dx.abs(), dy.abs()
    size = across + down
    beside = pad(size, (1,) * 4)
    flat, steep = down < 0.41421356 * across, down > 2.41421356 * across
    along = (size > _moved(beside, 1, 0)) & (size >= _moved(beside, 1, 2))
    upright = (size > _moved(beside, 0, 1)) & (size >= _moved(beside, 2, 1))
    falling = (size > _moved(beside, 0, 0)) & (size > _moved(beside, 2, 2))
    rising = (size > _moved(beside, 0, 2)) & (size > _moved(beside, 2, 0))
    opposed = (dx < 0) ^ (dy < 0)
    slanted = ~(flat | steep) & ((opposed & rising) | (~opposed & falling))
    ridge = ((flat & along) | (steep & upright) | slanted) & (size > WEAK)
    strong = ridge & (size > STRONG)
    for _ in range(4):  # weak edges here are a few pixels inside a drop, whose rim is strong
        wide = pad(strong, (1,) * 4)
        lines = wide[..., :-2] | wide[..., 1:-1] | wide[..., 2:]
        strong = (lines[..., :-2, :] | lines[..., 1:-1, :] | lines[..., 2:, :]) & ridge
    return strong


def _distances(edges: Tensor, furthest: int) -> Tensor:
    """Distance of every pixel from the nearest edge, at most ``furthest``."""
    height, width = edges.shape[-2:]
    place = torch.arange(width, device=edges.device, dtype=torch.float32)
    far = float(2 * furthest)
    before = torch.where(edges, place, -far).cummax(dim=-1).values
    after = torch.where(edges, place, far + width).flip(-1).cummin(dim=-1).values.flip(-1)
    along = torch.minimum(place - before, after - place).clamp_(max=far).square_()
    along = along.to(torch.int16 if furthest < 90 else torch.int32)  # small numbers are quick to compare
    nearest = along.clone()
    for step in range(1, min(furthest, height)):
        moved = along + step**2
        torch.minimum(nearest[..., step:, :], moved[..., :-step, :], out=nearest[..., step:, :])
        torch.minimum(nearest[..., :-step, :], moved[..., step:, :], out=nearest[..., :-step, :])
    return nearest.float().sqrt_().clamp_(max=float(furthest))


def _equalised(values: Tensor, highest: int) -> Tensor:
    """Integers from 0 to ``highest`` spread over 0..255 so that every image's histogram becomes even."""
    count = len(values)
    levels = highest + 1
    offsets = torch.arange(count, device=values.device, dtype=torch.int32).view(-1, 1, 1, 1) * levels
    histogram = torch.bincount((values + offsets).view(-1), minlength=count * levels).view(count, levels)
    running = histogram.cumsum(dim=1).float()
    total = running[:, -1:]
    lowest = histogram.gather(1, (histogram > 0).int().argmax(dim=1, keepdim=True)).float()
    spread = (running - lowest) * (255.0 / (total - lowest).clamp(min=1.0))
    table = torch.where(
        total > lowest, spread, torch.arange(levels, device=values.device, dtype=torch.float32)
    ).round_()
    return table.view(-1).index_select(0, (values + offsets).view(-1)).view(values.shape)
