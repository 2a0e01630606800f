"""metacal: classifiers whose confidence can be trusted.

``metacal.functional`` holds pure tensor functions, ``metacal.losses`` losses that add and scale, ``metacal.metrics``
torchmetrics metrics. ``import metacal`` loads torch and numpy, nothing heavier: a part is imported when it is used.
"""

import importlib
from types import ModuleType

from metacal import functional, losses
from metacal.errors import InvalidTypeError, InvalidValueError, MetacalError

__version__ = "0.1.0"

_LAZY_PARTS = ("evaluation", "metrics")

__all__ = [
    "InvalidTypeError",
    "InvalidValueError",
    "MetacalError",
    "__version__",
    "evaluation",
    "functional",
    "losses",
    "metrics",
]


def __getattr__(name: str) -> ModuleType:
    """Import a part of the package on first use."""
    if name in _LAZY_PARTS:
        return importlib.import_module(f"metacal.{name}")
    raise AttributeError(f"module 'metacal' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
