"""metacal: classifiers whose confidence can be trusted.

``metacal.functional`` holds pure tensor functions, ``metacal.losses`` losses that add and scale, ``metacal.metrics``
torchmetrics metrics, and `MetaCalibrator` learns hyper-parameters inside your training loop.

``import metacal`` loads torch and numpy, nothing heavier: a part is imported when it is used.
"""

import importlib
from types import ModuleType

from metacal import data, functional, losses
from metacal.errors import InvalidTypeError, InvalidValueError, MetacalError, MetacalWarning, NotFittedError
from metacal.metalearning import (
    Hyperparameter,
    LearnableFocalGamma,
    LearnableTemperature,
    MetaCalibrator,
    NonUniformLabelSmoothing,
    ScalarLabelSmoothing,
    UnitwiseL2,
    VectorLabelSmoothing,
)

__version__ = "0.1.0"

_LAZY_PARTS = ("evaluation", "metrics", "models", "posthoc", "reporting")

__all__ = [
    "Hyperparameter",
    "InvalidTypeError",
    "InvalidValueError",
    "LearnableFocalGamma",
    "LearnableTemperature",
    "MetaCalibrator",
    "MetacalError",
    "MetacalWarning",
    "NonUniformLabelSmoothing",
    "NotFittedError",
    "ScalarLabelSmoothing",
    "UnitwiseL2",
    "VectorLabelSmoothing",
    "__version__",
    "data",
    "evaluation",
    "functional",
    "losses",
    "metrics",
    "models",
    "posthoc",
    "reporting",
]


def __getattr__(name: str) -> ModuleType:
    """Import a part of the package on first use."""
    if name in _LAZY_PARTS:
        return importlib.import_module(f"metacal.{name}")
    raise AttributeError(f"module 'metacal' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
