"""The 19 corruptions of CIFAR-C at 5 severities, for whole batches of any image size, seeded by sample."""

import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from metacal.errors import InvalidTypeError, InvalidValueError, nearest
from metacal.functional.arguments import check_integer, check_labels, check_tensor, is_integer
from metacal.lab.data.corruptions import blur, digital, noise, weather
from metacal.lab.data.corruptions.base import Draws
from metacal.seeding import mixed

__all__ = ["CORRUPTIONS", "SEVERITIES", "Corruption", "check_images", "check_severity", "corrupt", "find_corruption"]


class Corruption(NamedTuple):
    """A function of float32 images ``(n, C, H, W)`` in [0, 1], a constant and random numbers; its result is clipped.

    The constants, one per severity, are those of Hendrycks and Dietterich for CIFAR.
    """

    apply: Callable[[Tensor, Any, Draws], Tensor]
    constants: tuple[Any, ...]


SNOW = (
    (0.1, 0.2, 1.0, 0.6, 8, 3, 0.95),
    (0.1, 0.2, 1.0, 0.5, 10, 4, 0.9),
    (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
    (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
    (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
)
SPATTER = (
    (0.62, 0.1, 0.7, 0.7, 0.5, False),
    (0.65, 0.1, 0.8, 0.7, 0.5, False),
    (0.65, 0.3, 1.0, 0.69, 0.5, False),
    (0.65, 0.1, 0.7, 0.69, 0.6, True),
    (0.65, 0.1, 0.5, 0.68, 0.6, True),
)
ELASTIC = ((0.0, 0.0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03))
CORRUPTIONS = {
    "gaussian_noise": Corruption(noise.gaussian_noise, (0.04, 0.06, 0.08, 0.09, 0.10)),
    "shot_noise": Corruption(noise.shot_noise, (500, 250, 100, 75, 50)),
    "impulse_noise": Corruption(noise.impulse_noise, (0.01, 0.02, 0.03, 0.05, 0.07)),
    "speckle_noise": Corruption(noise.speckle_noise, (0.06, 0.1, 0.12, 0.16, 0.2)),
    "defocus_blur": Corruption(blur.defocus_blur, ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1))),
    "glass_blur": Corruption(blur.glass_blur, ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2))),
    "motion_blur": Corruption(blur.motion_blur, ((6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5))),
    "zoom_blur": Corruption(blur.zoom_blur, (1.06, 1.11, 1.16, 1.21, 1.26)),
    "gaussian_blur": Corruption(blur.gaussian_blur, (0.4, 0.6, 0.7, 0.8, 1.0)),
    "snow": Corruption(weather.snow, SNOW),
    "frost": Corruption(weather.frost, ((1.0, 0.2), (1.0, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))),
    "fog": Corruption(weather.fog, ((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75))),
    "brightness": Corruption(weather.brightness, (0.05, 0.1, 0.15, 0.2, 0.3)),
    "spatter": Corruption(weather.spatter, SPATTER),
    "contrast": Corruption(digital.contrast, (0.75, 0.5, 0.4, 0.3, 0.15)),
    "elastic_transform": Corruption(digital.elastic_transform, ELASTIC),
    "pixelate": Corruption(digital.pixelate, (0.95, 0.9, 0.85, 0.75, 0.65)),
    "jpeg_compression": Corruption(digital.jpeg_compression, (80, 65, 58, 50, 40)),
    "saturate": Corruption(digital.saturate, ((0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2))),
}
"""By the file names of CIFAR-C."""
SEVERITIES = (1, 2, 3, 4, 5)
CORRUPTION = 10
"""Stream number of the corruptions' random numbers."""
SMALLEST = 4
AT_ONCE, AT_ONCE_ON_CPU = 2**25, 2**18
"""Number of values processed at a time; on a CPU they fit into its cache."""


def corrupt(
    images: Tensor,
    name: str,
    severity: int,
    *,
    seed: int,
    samples: Tensor | None = None,
    validate: bool = True,
) -> Tensor:
    """Apply one of the 19 corruptions of CIFAR-C at one of its 5 severities.

    The result for an image depends only on seed, corruption, severity and sample number, not on the rest of the batch.
    All severities use the same random numbers.

    Args:
        images: ``(n, C, H, W)`` with 3 channels or 1: uint8, or floats in [0, 1].
        name: one of `CORRUPTIONS`.
        severity: from 1 to 5.
        seed: of the random numbers.
        samples: the number of each image in its dataset, ``(n,)``; by default 0, 1, ...
        validate: check the values of float images, which synchronises a GPU.

    Returns:
        A new tensor of the same shape, dtype and device; uint8 values are truncated, as in the published arrays.

    Examples:
        >>> import torch
        >>> images = torch.randint(256, (4, 3, 32, 32), dtype=torch.uint8)
        >>> foggy = corrupt(images, "fog", 3, seed=0)
        >>> alone = corrupt(images[2:3], "fog", 3, seed=0, samples=torch.tensor([2]))
        >>> foggy.dtype, torch.equal(foggy[2:3], alone)
        (torch.uint8, True)
    """
    name = find_corruption(name)
    check_severity(severity)
    check_integer("seed", seed, 0)
    check_images(images, validate=validate)
    if samples is None:
        samples = torch.arange(len(images), device=images.device)
    check_labels("samples", samples)
    if samples.shape != images.shape[:1]:
        shape = tuple(samples.shape)
        raise InvalidValueError(f"`samples` must hold a number for each of {len(images)} images, got shape {shape}.")
    if not len(images):
        return images.clone()
    apply, constants = CORRUPTIONS[name]
    key = mixed(CORRUPTION, seed, zlib.crc32(name.encode()))
    numbers = samples.to(images.device, torch.int64)
    size = max(1, (AT_ONCE_ON_CPU if images.device.type == "cpu" else AT_ONCE) // images[0].numel())
    parts = []
    with torch.no_grad():
        for part, rows in zip(torch.split(images, size), torch.split(numbers, size), strict=True):
            clean = part.to(torch.float32, memory_format=torch.contiguous_format)
            clean = clean.mul_(1.0 / 255.0) if images.dtype is torch.uint8 else clean
            found = apply(clean, constants[severity - 1], Draws(key, rows))
            if images.dtype is torch.uint8:  # the small offset keeps whole numbers from being rounded down
                found = found.mul(255.0).add_(2.0**-10).clamp_(0.0, 255.0)
            else:
                found = found.clamp(0.0, 1.0)
            parts.append(found.to(images.dtype))
    return torch.cat(parts) if len(parts) != 1 else parts[0]


def check_images(images: Tensor, *, validate: bool = True) -> None:
    """Raise unless these images can be corrupted."""
    check_tensor("images", images)
    if images.dtype is not torch.uint8 and not images.is_floating_point():
        raise InvalidTypeError(f"`images` must be uint8, or floats in [0, 1], got {images.dtype}.")
    if images.ndim != 4 or images.shape[1] not in (1, 3) or min(images.shape[2:]) < SMALLEST:
        raise InvalidValueError(
            f"`images` must have shape (n, 3, H, W) or (n, 1, H, W) with sides of at least {SMALLEST}, got "
            f"{tuple(images.shape)}."
        )
    if not validate or images.dtype is torch.uint8 or not images.numel():
        return
    low, high = (float(value) for value in images.aminmax())
    if not (low >= 0.0 and high <= 1.0):  # also true for NaN
        raise InvalidValueError(
            f"`images` must be uint8, or floats in [0, 1], got values from {low:g} to {high:g}; corrupt images before "
            "normalising them."
        )


def find_corruption(name: str) -> str:
    """Return the name in `CORRUPTIONS`; ``jpeg-compression`` and ``JPEG Compression`` are recognised."""
    if not isinstance(name, str):
        raise InvalidTypeError(f"`name` must be the name of a corruption, got {name!r}.")
    found = name.lower().replace("-", "_").replace(" ", "_")
    if found not in CORRUPTIONS:
        near = nearest(name, CORRUPTIONS)
        raise InvalidValueError(f"`name` must be one of the 19 corruptions, got {name!r}; nearest: {near}.")
    return found


def check_severity(severity: int) -> None:
    """Raise unless it is an integer from 1 to 5."""
    if not is_integer(severity) or severity not in SEVERITIES:
        raise InvalidValueError(f"`severity` must be an integer from 1 to 5, got {severity!r}.")
