"""Weather corruptions: snow, frost, fog, brightness and spatter."""

import math
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import pad

from metacal.lab.data.corruptions.base import Draws, highest, luma, paint
from metacal.lab.data.corruptions.blur import blurred, filtered, scale_of, smeared, zoom_matrix
from metacal.seeding import generator

TINY = 1e-7
WIBBLE = 100.0
SIDE, LARGEST = 192, 1024
FROST = 20
"""Stream number of the textures' random numbers."""
ICE = (
    ((0.30, 0.58, 0.65), 0.07),
    ((0.79, 0.81, 0.84), 0.086),
    ((0.79, 0.81, 0.84), 0.086),
    ((0.54, 0.60, 0.65), 0.115),
    ((0.44, 0.48, 0.53), 0.169),
)
"""Mean colour and spread of each texture, taken from the five photographs behind CIFAR-C."""
WATER = (175 / 255, 238 / 255, 238 / 255)
MUD = (63 / 255, 42 / 255, 20 / 255)
FURTHEST = 20
WEAK, STRONG = 50.0, 150.0
RELIEF = {(-1, -1): -2.0, (-1, 0): -1.0, (0, -1): -1.0, (0, 0): 1.0, (0, 1): 1.0, (1, 0): 1.0, (1, 1): 2.0}


def snow(images: Tensor, flakes: tuple[float, ...], draws: Draws) -> Tensor:
    """Whiten the image and add flakes twice: as drawn, and rotated by 180 degrees.

    ``flakes`` is mean and deviation of the noise, the size of flakes, the threshold, radius and sigma of the motion
    blur, and the share of the image that is kept.
    """
    mean, deviation, size, threshold, radius, sigma, kept = flakes
    height, width = images.shape[-2:]
    layer = draws.normals(1, height, width).mul_(deviation).add_(mean)
    factor = max(1.0, size * scale_of(images))
    rows, columns = (zoom_matrix(side, factor, images.device) for side in (height, width))
    layer = filtered(layer, rows, columns).clamp_(0.0, 1.0)
    layer = layer * layer.ge(threshold).float()
    layer = smeared(layer, radius, sigma, draws.uniforms(low=-0.75 * math.pi, high=-0.25 * math.pi))
    white = torch.maximum(images, luma(images).mul(1.5).add_(0.5))
    return torch.lerp(white, images, kept).add_(layer).add_(layer.flip(-1, -2))


def frost(images: Tensor, ice: tuple[float, float], draws: Draws) -> Tensor:
    """Add a random crop of an ice texture; ``ice`` is the weight of the image and that of the texture.

    The published arrays used photographs, which we may not distribute. The textures here are generated, with the same
    mean colour and spread: fine needles in several directions over soft patches.
    """
    kept, added = ice
    _, channels, height, width = images.shape
    bank = _frost_textures(min(LARGEST, max(SIDE, int(SIDE * scale_of(images)))), images.device)
    side = bank.shape[-1]
    bank = bank if channels == 3 else luma(bank)
    places = draws.uniforms(3)
    texture = (places[:, 0] * len(ICE)).long().view(-1, 1, 1)
    top, left = ((places[:, axis] * side).long().view(-1, 1, 1) for axis in (1, 2))
    plane = texture * channels + torch.arange(channels, device=images.device).view(1, -1, 1)
    row = (top + torch.arange(height, device=images.device)) % side
    wide = torch.cat([bank] * (1 + math.ceil(width / side)), dim=-1)  # wraps around
    starts = (plane * side + row) * wide.shape[-1] + left
    piece = wide.reshape(-1).unfold(0, width, 1).index_select(0, starts.view(-1)).view(images.shape)
    return images.mul(kept).add_(piece, alpha=added)


@lru_cache(maxsize=8)
def _frost_textures(side: int, device: torch.device) -> Tensor:
    """Textures ``(5, 3, side, side)`` in [0, 1] that tile seamlessly."""
    textures = [
        torch.tensor(colour).view(-1, 1, 1) + spread * _texture(number, side)
        for number, (colour, spread) in enumerate(ICE)
    ]
    return torch.stack(textures).clamp_(0.0, 1.0).to(device)


def _texture(number: int, side: int) -> Tensor:
    """Soft patches with needles in three directions where they are thick; mean 0 and standard deviation 1."""
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
    """Noise of standard deviation 1 whose amplitude falls with frequency, faster along ``angle`` than across it."""
    spectrum = torch.fft.fft2(torch.randn(SIDE, SIDE, generator=random))
    frequency = torch.fft.fftfreq(SIDE) * SIDE
    down, across = frequency.unsqueeze(1), frequency.unsqueeze(0)
    along = math.cos(angle) * across + math.sin(angle) * down
    beside = -math.sin(angle) * across + math.cos(angle) * down
    spectrum *= (1.0 + (stretch * along) ** 2 + beside**2) ** (-slope / 2) * (along**2 + beside**2 > 4)
    if side > SIDE:  # the same texture at a higher resolution
        places = frequency.long() % side
        wide = torch.zeros(side, side, dtype=spectrum.dtype)
        wide[places.unsqueeze(1), places] = spectrum
        spectrum = wide
    field: Tensor = torch.fft.ifft2(spectrum).real
    return field / field.std()


def fog(images: Tensor, cloud: tuple[float, float], draws: Draws) -> Tensor:
    """Mix in a plasma fractal; ``cloud`` is its share and the decay of its details."""
    share, decay = cloud
    height, width = images.shape[-2:]
    clouds = _plasma_fractal(2 ** (max(height, width, 2) - 1).bit_length(), decay, draws)[:, None, :height, :width]
    brightest = images.amax(dim=(1, 2, 3), keepdim=True)
    return (images + share * clouds) * (brightest / (brightest + share))


def _plasma_fractal(side: int, decay: float, draws: Draws) -> Tensor:
    """Height maps ``(n, side, side)`` in [0, 1] by the diamond-square algorithm; ``side`` is a power of two."""
    chance = draws.uniforms(side, side, low=-1.0, high=1.0)
    field = torch.zeros_like(chance)
    step, wibble = side, WIBBLE
    while step >= 2:
        half = step // 2
        corners = field[:, ::step, ::step]
        across = corners + corners.roll(-1, 1)
        middles = (across + across.roll(-1, 2)) / 4 + wibble**2 * chance[:, half::step, half::step]
        field[:, half::step, half::step] = middles
        # Each point between two corners also has two neighbouring middles.
        beside = (middles + middles.roll(1, 1) + corners + corners.roll(-1, 2)) / 4
        above = (middles + middles.roll(1, 2) + corners + corners.roll(-1, 1)) / 4
        field[:, ::step, half::step] = beside + wibble**2 * chance[:, ::step, half::step]
        field[:, half::step, ::step] = above + wibble**2 * chance[:, half::step, ::step]
        step, wibble = half, wibble / decay
    field -= field.amin(dim=(1, 2), keepdim=True)
    return field / field.amax(dim=(1, 2), keepdim=True)


def brightness(images: Tensor, more: float, draws: Draws) -> Tensor:
    """Raise the HSV value: every channel in proportion, and black to grey."""
    value = highest(images)
    raised = (value + more).clamp_(max=1.0)
    # TINY is far below what 8 bits show, and turns black into grey without a special case.
    return (images + TINY).mul_(raised.div_(value.add_(TINY)))


def spatter(images: Tensor, liquid: tuple[float, ...], draws: Draws) -> Tensor:
    """Add drops of water or mud on the lens; water is shaded by the distance from the rim of the drop.

    ``liquid`` is mean, deviation and blur of the noise, the threshold, the strength (of mud: the blur), and whether it
    is mud.
    """
    mean, deviation, sigma, threshold, strength, is_mud = liquid
    scale = scale_of(images)
    # Blurring over more pixels averages out more noise: a larger deviation keeps the number of drops.
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
    """Shading ``(n, 1, H, W)`` from 0 to 255 by the distance from the rims of the drops."""
    furthest = round(FURTHEST * max(1.0, scale))
    distance = _mean_of_nine(_distances(_edges(drops), furthest)).floor_()
    even = pad(_equalised(distance.to(torch.int32), furthest), (1,) * 4, mode="reflect")
    relief = torch.zeros_like(drops)
    for (down, right), weight in RELIEF.items():
        relief.add_(_moved(even, down, right), alpha=weight)
    return _mean_of_nine(relief.clamp_(0.0, 255.0)).round_()


def _moved(padded: Tensor, down: int, right: int) -> Tensor:
    """Return the values shifted by ``down`` and ``right``, cropped from values padded by one."""
    height, width = padded.shape[-2:]
    return padded[..., 1 + down : height - 1 + down, 1 + right : width - 1 + right]


def _mean_of_nine(values: Tensor) -> Tensor:
    around = pad(values, (1,) * 4, mode="reflect")
    lines = around[..., :-2] + around[..., 1:-1] + around[..., 2:]
    return (lines[..., :-2, :] + lines[..., 1:-1, :] + lines[..., 2:, :]).div_(9.0)


def _edges(drops: Tensor) -> Tensor:
    """Canny edges, bool ``(n, 1, H, W)``: strong ridges of the gradient, and weak ones connected to them."""
    around = pad(drops, (1,) * 4, mode="replicate")
    columns = around[..., :-2, :] + 2 * around[..., 1:-1, :] + around[..., 2:, :]
    rows = around[..., :, :-2] + 2 * around[..., :, 1:-1] + around[..., :, 2:]
    dx, dy = columns[..., 2:] - columns[..., :-2], rows[..., 2:, :] - rows[..., :-2, :]
    across, down = dx.abs(), dy.abs()
    size, opposed = across + down, (dx < 0) ^ (dy < 0)
    beside = pad(size, (1,) * 4)
    flat, steep = down < 0.41421356 * across, down > 2.41421356 * across
    along = (size > _moved(beside, 0, -1)) & (size >= _moved(beside, 0, 1))
    upright = (size > _moved(beside, -1, 0)) & (size >= _moved(beside, 1, 0))
    falling = (size > _moved(beside, -1, -1)) & (size > _moved(beside, 1, 1))
    rising = (size > _moved(beside, -1, 1)) & (size > _moved(beside, 1, -1))
    slanted = ~(flat | steep) & ((opposed & rising) | (~opposed & falling))
    ridge = ((flat & along) | (steep & upright) | slanted) & (size > WEAK)
    strong = ridge & (size > STRONG)
    for _ in range(4):  # weak edges are at most a few pixels from the strong rim of a drop
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
    along = along.to(torch.int16 if furthest < 90 else torch.int32)  # small integers compare faster
    nearest = along.clone()
    for step in range(1, min(furthest, height)):
        moved = along + step**2
        torch.minimum(nearest[..., step:, :], moved[..., :-step, :], out=nearest[..., step:, :])
        torch.minimum(nearest[..., :-step, :], moved[..., step:, :], out=nearest[..., :-step, :])
    return nearest.float().sqrt_().clamp_(max=float(furthest))


def _equalised(values: Tensor, most: int) -> Tensor:
    """Histogram equalisation per image, from integers 0..``most`` to 0..255."""
    count, levels = len(values), most + 1
    offsets = torch.arange(count, device=values.device, dtype=torch.int32).view(-1, 1, 1, 1) * levels
    histogram = torch.bincount((values + offsets).view(-1), minlength=count * levels).view(count, levels)
    running = histogram.cumsum(dim=1).float()
    total = running[:, -1:]
    lowest = histogram.gather(1, (histogram > 0).int().argmax(dim=1, keepdim=True)).float()
    spread = (running - lowest) * (255.0 / (total - lowest).clamp(min=1.0))
    identity = torch.arange(levels, device=values.device, dtype=torch.float32)
    table = torch.where(total > lowest, spread, identity).round_()
    return table.view(-1).index_select(0, (values + offsets).view(-1)).view(values.shape)
