"""The exceptions that metacal raises: one base class and a class for each kind of bad input; name suggestions."""

import difflib
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from types import FrameType

OURS_AND_BELOW = ("metacal", "torch", "torchmetrics")
"""Packages whose frames lie between a caller and a warning of ours."""

_CLI = ("jinja2", "matplotlib", "pyarrow", "rich", "safetensors", "typer")
_LAB = (*_CLI, "PIL", "filelock", "lightning_fabric", "pooch", "pydantic")
EXTRAS = {
    "cli": _CLI,
    "lab": _LAB,
    "lightning": ("lightning", "matplotlib"),
    "transformers": ("accelerate", "transformers"),
    "evaluate": ("datasets", "evaluate"),
    "ray": (*_LAB, "ray"),
    "tensorboard": ("tensorboard",),
    "mlflow": ("mlflow",),
    "onnx": ("onnx", "onnxruntime", "onnxscript"),
}
"""Packages that each extra brings, by the name that is imported."""


class MetacalError(Exception):
    """Base of every error that metacal raises on purpose."""


class InvalidValueError(MetacalError, ValueError):
    """An argument has the right type but a value outside its domain."""


class InvalidTypeError(MetacalError, TypeError):
    """An argument is of the wrong type, or has the wrong dtype."""


class NotFittedError(MetacalError, ValueError):
    """A calibrator was asked for probabilities before it was fitted."""


class MetacalWarning(UserWarning):
    """A result is defined but may be unreliable: the message says why."""


class InvalidFileError(InvalidValueError):
    """A file cannot be read as predictions: the message names the file, the row or column, and the fix."""


class MissingDataError(MetacalError, FileNotFoundError):
    """A dataset was not found."""


class DownloadError(MetacalError, OSError):
    """A file could not be downloaded or saved."""


class DamagedFileError(MetacalError, ValueError):
    """A file of a known format is truncated, altered, or not what its name says."""


class StorageError(MetacalError, OSError):
    """A file could not be written or read: no space, no permission, or damage."""


class InUseError(StorageError):
    """A run folder is held by another process."""


class TrainingError(MetacalError, RuntimeError):
    """Training cannot go on: the loss is no longer finite."""


class MissingExtraError(MetacalError, ImportError):
    """A package of an extra is not installed: the message has the command that installs it."""


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Name the extra to install if one of its packages is missing; a context manager or decorator.

    Any other missing package is left as it is: a model of the user's may import what it likes.

    Examples:
        >>> with needs("cli"):
        ...     raise ModuleNotFoundError(name="rich.table")
        Traceback (most recent call last):
        metacal.errors.MissingExtraError: `rich` must be installed for this: pip install 'metacal[cli]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or extra).partition(".")[0]
        brings = [name for name in (extra, *EXTRAS) if package in EXTRAS[name]]
        if not brings:
            raise
        raise missing_extra(brings[0], package) from None


def missing_extra(extra: str, package: str) -> MissingExtraError:
    """Return the error that names the package and the command that installs it."""
    return MissingExtraError(f"`{package}` must be installed for this: pip install 'metacal[{extra}]'")


def missing_package(extra: str) -> str | None:
    """The first package of an extra that is not installed; None if all are."""
    return next((package for package in EXTRAS[extra] if find_spec(package) is None), None)


def warn(message: str) -> None:
    """Issue a `MetacalWarning` that points to the caller's line outside of metacal."""
    frame: FrameType | None = sys._getframe()
    level = 0
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in OURS_AND_BELOW:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, MetacalWarning, stacklevel=level + 1)


def nearest(name: str, known: Iterable[str]) -> str:
    """Suggest the known names closest to a misspelt one; all of them if none is close."""
    spelled = {each.lower(): each for each in known if each}
    return ", ".join(spelled[each] for each in difflib.get_close_matches(name.lower(), spelled, cutoff=0.4) or spelled)
