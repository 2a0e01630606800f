"""Training runs: the spec, its pipeline, the loop, and the run folder with the results.

A spec can be built without torch: names that need torch are imported on first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

from metacal.errors import needs

with needs("lab"):
    from metacal.lab.training.recipes import are_hardware_settings, build_spec, read_assignments, read_hardware
    from metacal.lab.training.spec import METHODS, Domains, Hardware, Method, RunSpec, Term

if TYPE_CHECKING:
    from metacal.lab.training.build import build_model, evaluation_batches, load_data, make_fabric
    from metacal.lab.training.checkpoints import Checkpoints
    from metacal.lab.training.events import Stopped, StopRequest
    from metacal.lab.training.loop import Phase, Training, predict, train
    from metacal.lab.training.pipeline import run
    from metacal.lab.training.run_folder import RunFolder, RunStore
    from metacal.lab.training.training_loss import MetaCalibratedLoss, PlainLoss

__all__ = [
    "METHODS",
    "Checkpoints",
    "Domains",
    "Hardware",
    "MetaCalibratedLoss",
    "Method",
    "Phase",
    "PlainLoss",
    "RunFolder",
    "RunSpec",
    "RunStore",
    "StopRequest",
    "Stopped",
    "Term",
    "Training",
    "are_hardware_settings",
    "build_model",
    "build_spec",
    "evaluation_batches",
    "load_data",
    "make_fabric",
    "predict",
    "read_assignments",
    "read_hardware",
    "run",
    "train",
]

_NEED_TORCH = ("events", "run_folder", "checkpoints", "training_loss", "loop", "build", "pipeline")


def __getattr__(name: str) -> Any:
    """Import a name that needs torch on first use."""
    if name in __all__:
        with needs("lab"):
            modules = (importlib.import_module(f"metacal.lab.training.{module}") for module in _NEED_TORCH)
            return next(getattr(module, name) for module in modules if hasattr(module, name))
    raise AttributeError(f"module 'metacal.lab.training' has no attribute {name!r}")
