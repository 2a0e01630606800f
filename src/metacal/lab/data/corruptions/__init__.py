"""The 19 corruptions of CIFAR-C at 5 severities: whole batches, on their device, seeded by sample, at any size."""

import zlib
from numbers import Integral

import torch
from torch import Tensor

from metacal.errors import InvalidTypeError, InvalidValueError, nearest
from metacal.functional.arguments import check_integer, check_labels, check_tensor
from metacal.lab.data.corruptions import blur, digital, noise, weather
from metacal.lab.data.corruptions.base import REGISTERED, Corruption, Draws
from metacal.seeding import mixed

__all__ = ["CORRUPTIONS", "SEVERITIES", "Corruption", "check_images", "check_severity", "corrupt", "find_corruption"]

FAMILIES = [module.__name__.rpartition(".")[2] for module in (noise, blur, weather, digital)]
CORRUPTIONS = {each.name: each for each in sorted(REGISTERED, key=lambda each: FAMILIES.index(each.family))}
"""By name; families in this order, each as its module has them."""
SEVERITIES = (1, 2, 3, 4, 5)
CORRUPTION = 10
"""Sets the random numbers of corruptions apart from those of others with the same seed."""
SMALLEST = 4
AT_ONCE = {"cpu": 2**18}
"""Values worked on at a time: on a CPU they stay in its cache."""
AT_ONCE_ELSEWHERE = 2**25


def corrupt(
    images: Tensor,
    name: str,
    severity: int,
    *,
    seed: int,
    samples: Tensor | None = None,
    validate: bool = True,
) -> Tensor:
    """Images under one of the 19 corruptions of CIFAR-C, at one of its 5 severities.

    What happens to an image is a function of seed, corruption and sample number alone: not of the other images of the
    batch. Severities share their random numbers, so they differ by severity only.

    Args:
        images: ``(n, C, H, W)`` with 3 channels or 1: uint8, or floats in [0, 1].
        name: one of `CORRUPTIONS`.
        severity: from 1 to 5.
        seed: of the random numbers.
        samples: the number of each image in its dataset, ``(n,)``; without it 0, 1, ...
        validate: check the values of float images, which makes a GPU wait.

    Returns:
        A new tensor of the same shape and dtype on the same device; uint8 is cut off to whole numbers as the published
        arrays were.

    Examples:
        >>> import torch
        >>> images = torch.randint(256, (4, 3, 32, 32), dtype=torch.uint8)
        >>> foggy = corrupt(images, "fog", 3, seed=0)
        >>> alone = corrupt(images[2:3], "fog", 3, seed=0, samples=torch.tensor([2]))
        >>> foggy.dtype, torch.equal(foggy[2:3], alone)
        (torch.uint8, True)
    """
    corruption = find_corruption(name)
    check_severity(severity)
    check_integer("seed", seed, 0)
    check_images(images, validate=validate)
    if samples is None:
        samples = torch.arange(len(images), device=images.device)
    check_labels("samples", samples)
    if samples.shape != images.shape[:1]:
        raise InvalidValueError(f"`samples` must hold a number for each of {len(images)} images, got {samples.shape}.")
    numbers = samples.to(images.device, torch.int64)
    if not len(images):
        return images.clone()
    constant, key = corruption.constants[severity - 1], mixed(CORRUPTION, seed, zlib.crc32(corruption.name.encode()))
    limit = AT_ONCE.get(images.device.type, AT_ONCE_ELSEWHERE)
    size = max(1, limit // images[0].numel())
    parts = []
    with torch.no_grad():
        for part, rows in zip(torch.split(images, size), torch.split(numbers, size), strict=True):
            clean = part.to(torch.float32, memory_format=torch.contiguous_format)
            clean = clean.mul_(1.0 / 255.0) if images.dtype is torch.uint8 else clean
            parts.append(_stored(corruption.apply(clean, constant, Draws(key, rows)), images.dtype))
    return torch.cat(parts) if len(parts) != 1 else parts[0]


def _stored(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Values clipped to [0, 1] in the dtype that images came in; a new tensor."""
    if dtype is torch.uint8:
        # A little is added so that whole numbers stay what they are.
        return values.mul(255.0).add_(2.0**-10).clamp_(0.0, 255.0).to(dtype)
    return values.clamp(0.0, 1.0).to(dtype)


def check_images(images: Tensor, *, validate: bool = True) -> None:
    """Raise unless these are images that can be corrupted."""
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
    if not (low >= 0.0 and high <= 1.0):  # NaN is neither
        raise InvalidValueError(
            f"`images` must be uint8, or floats in [0, 1], got values from {low:g} to {high:g}; corrupt images before "
            "they are normalised."
        )


def find_corruption(name: str) -> Corruption:
    """The corruption with this name; ``fog``, ``jpeg-compression`` and ``JPEG Compression`` are understood."""
    if not isinstance(name, str):
        raise InvalidTypeError(f"`name` must be the name of a corruption, got {name!r}.")
    found = CORRUPTIONS.get(name.lower().replace("-", "_").replace(" ", "_"))
    if found is None:
        near = nearest(name, CORRUPTIONS)
        raise InvalidValueError(f"`name` must be one of the 19 corruptions, got {name!r}; nearest: {near}.")
    return found


def check_severity(severity: int) -> None:
    """Raise unless it is an integer from 1 to 5."""
    if not isinstance(severity, Integral) or isinstance(severity, bool) or severity not in SEVERITIES:
        raise InvalidValueError(f"`severity` must be an integer from 1 to 5, got {severity!r}.")
