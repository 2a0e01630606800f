"""metacal: classifiers whose confidence can be trusted.

``metacal.functional`` holds pure tensor functions, ``metacal.losses`` losses that add and scale, ``metacal.metrics``
torchmetrics metrics, `evaluate` says how calibrated predictions are, and `MetaCalibrator` learns hyper-parameters
inside your training loop.

``import metacal`` loads neither torch nor anything else that is slow: a name is imported when it is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from metacal.errors import (
    InvalidTypeError,
    InvalidValueError,
    MetacalError,
    MetacalWarning,
    MissingExtraError,
    NotFittedError,
)

if TYPE_CHECKING:
    from metacal import evaluation, functional, lab, losses, metalearning, metrics, posthoc, reporting
    from metacal.evaluation import evaluate
    from metacal.metalearning import (
        PAPER,
        Finish,
        HierarchicalLabelSmoothing,
        Hyperparameter,
        LearnableFocalGamma,
        LearnableTemperature,
        LogitPenalty,
        MetaCalibrator,
        NonUniformLabelSmoothing,
        OuterStep,
        ScalarLabelSmoothing,
        TemperatureScaled,
        UnitwiseL2,
        VectorLabelSmoothing,
    )

__version__ = "0.2.0"

__all__ = [
    "PAPER",
    "Finish",
    "HierarchicalLabelSmoothing",
    "Hyperparameter",
    "InvalidTypeError",
    "InvalidValueError",
    "LearnableFocalGamma",
    "LearnableTemperature",
    "LogitPenalty",
    "MetaCalibrator",
    "MetacalError",
    "MetacalWarning",
    "MissingExtraError",
    "NonUniformLabelSmoothing",
    "NotFittedError",
    "OuterStep",
    "ScalarLabelSmoothing",
    "TemperatureScaled",
    "UnitwiseL2",
    "VectorLabelSmoothing",
    "__version__",
    "evaluate",
    "evaluation",
    "functional",
    "lab",
    "losses",
    "metalearning",
    "metrics",
    "posthoc",
    "reporting",
]


_PARTS = ("evaluation", "functional", "lab", "losses", "metalearning", "metrics", "posthoc", "reporting")


def __getattr__(name: str) -> Any:
    """Import a subpackage, `evaluate`, or a name of `metacal.metalearning` on first use."""
    if name in _PARTS:
        return importlib.import_module(f"metacal.{name}")
    if name in __all__:
        room = "evaluation" if name == "evaluate" else "metalearning"
        return getattr(importlib.import_module(f"metacal.{room}"), name)
    raise AttributeError(f"module 'metacal' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
