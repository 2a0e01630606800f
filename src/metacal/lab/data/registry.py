"""`load_dataset`: from a name or a path to a `Dataset`."""

import importlib
import inspect
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metacal.errors import InvalidTypeError, InvalidValueError, MissingDataError, nearest, needs
from metacal.lab.data.dataset import Dataset
from metacal.lab.data.folder import data_folder


@dataclass(frozen=True)
class Source:
    """A dataset with a name.

    Attributes:
        name: e.g. ``cifar10``.
        title: one line about it.
        module: where its ``load`` (and, unless it is built in, its ``find``) is.
        built_in: whether it needs no files.
    """

    name: str
    title: str
    module: str
    built_in: bool = False


SOURCES = {
    source.name: source
    for source in (
        Source("digits", "scikit-learn's 1,797 digits, 8 x 8, 10 classes", "digits", built_in=True),
        Source("simulated", "points in the plane with a known logistic model", "simulated", built_in=True),
        Source("cifar10", "60,000 colour images, 32 x 32, 10 classes", "cifar10"),
        Source("cifar100", "60,000 colour images, 32 x 32, 100 classes in 20 superclasses", "cifar100"),
        Source("svhn", "99,289 house numbers in colour, 32 x 32, 10 classes", "svhn"),
        Source("fashion-mnist", "70,000 grey images of clothes, 28 x 28, 10 classes", "fashion_mnist"),
        Source("cifar10-c", "CIFAR-10's test images under 19 corruptions at 5 severities", "cifar_c"),
        Source("cifar100-c", "CIFAR-100's test images under 19 corruptions at 5 severities", "cifar100_c"),
        Source("20newsgroups", "18,846 or 19,997 messages of 20 newsgroups, with GloVe vectors", "newsgroups"),
    )
}


def load_dataset(name: str | Path, *, folder: str | Path | None = None, **options: Any) -> Dataset:
    """Load a dataset by name, or a user's own by path.

    Args:
        name: one that ``metacal data ls`` lists, such as ``cifar10``; or the path of an ``.npz`` file, or of a folder
            of images by class.
        folder: where the files of named datasets are; without it the folder that METACAL_DATA names, else the user's
            cache folder.
        options: those of the source, e.g. ``seed=1`` of ``simulated``; see its ``load`` in `metacal.lab.data.sources`.

    Raises:
        InvalidValueError: unknown name (the nearest ones are suggested), or data that cannot be right.
        InvalidTypeError: an option that the source does not have.
        MissingDataError: the files are not there; says what was looked for, where, and the command that gets them.
        DamagedFileError: a file is truncated or altered.

    Examples:
        >>> digits = load_dataset("digits")
        >>> digits.kind, digits.input_shape, digits.num_classes, len(digits.train), len(digits.test)
        ('image', (1, 8, 8), 10, 1438, 359)
    """
    path = as_path(name)
    if path is not None:
        return _load_path(path, options)
    source = find_source(str(name))
    load = source_module(source).load
    _check_options(load, options, source.name)
    found: Dataset = load(**options) if source.built_in else load(data_folder(folder), **options)
    return found


def find_source(name: str) -> Source:
    """The source with this name; ``CIFAR-10`` and ``cifar_10`` are ``cifar10``."""
    spelled = {_bare(known): source for known, source in SOURCES.items()}
    if _bare(name) in spelled:
        return spelled[_bare(name)]
    raise InvalidValueError(
        f"`dataset` must be a known name, or the path of an .npz file or of a folder of images by class, got {name!r}; "
        f"nearest: {nearest(name, SOURCES)}."
    )


def source_module(source: Source) -> Any:
    """The module of a source, imported when it is used."""
    return importlib.import_module(f"metacal.lab.data.sources.{source.module}")


def as_path(name: str | Path) -> Path | None:
    """The path that a user means, or None if it is the name of a dataset."""
    if not isinstance(name, str | Path):
        raise InvalidTypeError(f"`dataset` must be a name or a path, got {type(name).__name__}.")
    text = str(name)
    if isinstance(name, str) and _bare(text) in {_bare(known) for known in SOURCES}:
        return None
    looks_like_one = isinstance(name, Path) or os.sep in text or "/" in text or text.endswith(".npz") or text == "."
    return Path(text).expanduser() if looks_like_one or Path(text).is_dir() else None


def _load_path(path: Path, options: dict[str, Any]) -> Dataset:
    if not path.exists():
        raise MissingDataError(f"`dataset` must name a file or folder that exists, got {path}.")
    if path.is_file() and path.suffix != ".npz":
        raise InvalidValueError(f"`dataset` must be an .npz file or a folder of images by class, got {path}.")
    kind = "image_folder" if path.is_dir() else "npz"
    with needs("lab"):
        load = importlib.import_module(f"metacal.lab.data.sources.{kind}").load
    _check_options(load, options, str(path))
    found: Dataset = load(path, **options)
    return found


def _check_options(load: Callable[..., Dataset], options: dict[str, Any], name: str) -> None:
    known = [each.name for each in inspect.signature(load).parameters.values() if each.kind is each.KEYWORD_ONLY]
    unknown = [option for option in options if option not in known]
    if unknown:
        takes = f"the options {', '.join(known)}" if known else "no options"
        raise InvalidTypeError(f"{name} takes {takes}, got {', '.join(unknown)}.")


def _bare(name: str) -> str:
    return re.sub(r"[-_ ]", "", name.lower())
