"""`CORRUPTIONS`: the 19 corruptions of CIFAR-C by name, with the constants of Hendrycks and Dietterich for CIFAR."""

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from torch import Tensor

from metacal.errors import InvalidTypeError, InvalidValueError, nearest
from metacal.lab.data.corruptions.blur import defocus_blur, gaussian_blur, glass_blur, motion_blur, zoom_blur
from metacal.lab.data.corruptions.colour import brightness, contrast, saturate
from metacal.lab.data.corruptions.digital import pixelate
from metacal.lab.data.corruptions.draws import Draws
from metacal.lab.data.corruptions.elastic import elastic_transform
from metacal.lab.data.corruptions.frost import frost
from metacal.lab.data.corruptions.jpeg import jpeg_compression
from metacal.lab.data.corruptions.noise import gaussian_noise, impulse_noise, shot_noise, speckle_noise
from metacal.lab.data.corruptions.spatter import spatter
from metacal.lab.data.corruptions.weather import fog, snow

SEVERITIES = (1, 2, 3, 4, 5)


@dataclass(frozen=True)
class Corruption:
    """A corruption.

    Attributes:
        name: as the files of CIFAR-10-C are called.
        family: ``noise``, ``blur``, ``weather`` or ``digital``.
        apply: takes float32 images ``(n, C, H, W)`` in [0, 1], a constant and random numbers; its result is clipped.
        constants: one for each severity.
        is_random: whether it draws random numbers.
    """

    name: str
    family: str
    apply: Callable[[Tensor, Any, Draws], Tensor]
    constants: tuple[Any, Any, Any, Any, Any]
    is_random: bool = True


CORRUPTIONS: dict[str, Corruption] = {
    each.name: each
    for each in (
        Corruption("gaussian_noise", "noise", gaussian_noise, (0.04, 0.06, 0.08, 0.09, 0.10)),
        Corruption("shot_noise", "noise", shot_noise, (500, 250, 100, 75, 50)),
        Corruption("impulse_noise", "noise", impulse_noise, (0.01, 0.02, 0.03, 0.05, 0.07)),
        Corruption("speckle_noise", "noise", speckle_noise, (0.06, 0.1, 0.12, 0.16, 0.2)),
        Corruption(
            "defocus_blur", "blur", defocus_blur, ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1)), False
        ),
        Corruption(
            "glass_blur",
            "blur",
            glass_blur,
            ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
        ),
        Corruption("motion_blur", "blur", motion_blur, ((6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5))),
        Corruption("zoom_blur", "blur", zoom_blur, (1.06, 1.11, 1.16, 1.21, 1.26), False),
        Corruption("gaussian_blur", "blur", gaussian_blur, (0.4, 0.6, 0.7, 0.8, 1.0), False),
        Corruption(
            "snow",
            "weather",
            snow,
            (
                (0.1, 0.2, 1.0, 0.6, 8, 3, 0.95),
                (0.1, 0.2, 1.0, 0.5, 10, 4, 0.9),
                (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
                (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
                (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
            ),
        ),
        Corruption("frost", "weather", frost, ((1.0, 0.2), (1.0, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))),
        Corruption("fog", "weather", fog, ((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75))),
        Corruption("brightness", "weather", brightness, (0.05, 0.1, 0.15, 0.2, 0.3), False),
        Corruption(
            "spatter",
            "weather",
            spatter,
            (
                (0.62, 0.1, 0.7, 0.7, 0.5, False),
                (0.65, 0.1, 0.8, 0.7, 0.5, False),
                (0.65, 0.3, 1.0, 0.69, 0.5, False),
                (0.65, 0.1, 0.7, 0.69, 0.6, True),
                (0.65, 0.1, 0.5, 0.68, 0.6, True),
            ),
        ),
        Corruption("contrast", "digital", contrast, (0.75, 0.5, 0.4, 0.3, 0.15), False),
        Corruption(
            "elastic_transform",
            "digital",
            elastic_transform,
            ((0.0, 0.0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
        ),
        Corruption("pixelate", "digital", pixelate, (0.95, 0.9, 0.85, 0.75, 0.65), False),
        Corruption("jpeg_compression", "digital", jpeg_compression, (80, 65, 58, 50, 40), False),
        Corruption(
            "saturate", "digital", saturate, ((0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2)), False
        ),
    )
}


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
