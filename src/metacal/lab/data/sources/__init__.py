"""`load_dataset` loads a dataset by name or path; `SOURCES` are the named datasets."""

import os
import re
from pathlib import Path
from typing import Any

from metacal.errors import InvalidTypeError, InvalidValueError, MissingDataError, nearest, needs
from metacal.lab.data.dataset import Dataset
from metacal.lab.data.files import Source, data_folder
from metacal.lab.data.sources.built_in import DIGITS, SIMULATED
from metacal.lab.data.sources.cifar import CIFAR10, CIFAR100
from metacal.lab.data.sources.cifar_c import CIFAR10_C, CIFAR100_C
from metacal.lab.data.sources.fashion_mnist import FASHION_MNIST
from metacal.lab.data.sources.newsgroups import NEWSGROUPS
from metacal.lab.data.sources.svhn import SVHN

LISTED = (DIGITS, SIMULATED, CIFAR10, CIFAR100, SVHN, FASHION_MNIST, CIFAR10_C, CIFAR100_C, NEWSGROUPS)
SOURCES = {source.name: source for source in LISTED}


def load_dataset(name: str | Path, *, folder: str | Path | None = None, **options: Any) -> Dataset:
    """Load a dataset by name, or your own by path.

    Args:
        name: one that ``metacal data ls`` lists, such as ``cifar10``; or the path of an ``.npz`` file or image folder.
        folder: the data folder of named datasets; by default METACAL_DATA, else the user's cache folder.
        options: of the source, e.g. ``seed=1`` of ``simulated``; see its loader in `metacal.lab.data.sources`.

    Raises:
        InvalidValueError: unknown name (the nearest ones are suggested), or invalid data.
        InvalidTypeError: an option that the source does not have.
        MissingDataError: files are missing; the message says which, where they belong, and how to get them.
        DamagedFileError: a file is truncated or altered.

    Examples:
        >>> digits = load_dataset("digits")
        >>> digits.kind, digits.input_shape, digits.num_classes, len(digits.train), len(digits.test)
        ('image', (1, 8, 8), 10, 1438, 359)
    """
    if not isinstance(name, str | Path):
        raise InvalidTypeError(f"`dataset` must be a name or a path, got {type(name).__name__}.")
    path = Path(name).expanduser() if _is_path(name) else None
    source = find_source(str(name)) if path is None else _own_source(path)
    unknown = [option for option in options if option not in source.options]
    if unknown:
        takes = f"the options {', '.join(source.options)}" if source.options else "no options"
        raise InvalidTypeError(f"{source.name} takes {takes}, got {', '.join(unknown)}.")
    return source.load(**options) if source.built_in else source.load(path or data_folder(folder), **options)


def find_source(name: str) -> Source:
    """Find a source by name; ``CIFAR-10`` and ``cifar_10`` are ``cifar10``."""
    for known, source in SOURCES.items():
        if _bare(name) == _bare(known):
            return source
    raise InvalidValueError(
        f"`dataset` must be a known name, or the path of an .npz file or of a folder of images by class, got {name!r}; "
        f"nearest: {nearest(name, SOURCES)}."
    )


def _is_path(name: str | Path) -> bool:
    if isinstance(name, Path):
        return True
    if _bare(name) in map(_bare, SOURCES):
        return False
    return os.sep in name or "/" in name or name.endswith(".npz") or Path(name).is_dir()


def _own_source(path: Path) -> Source:
    """Make a source of the user's file or folder; its loader takes this path instead of the data folder."""
    if not path.exists():
        raise MissingDataError(f"`dataset` must name a file or folder that exists, got {path}.")
    if path.is_file() and path.suffix != ".npz":
        raise InvalidValueError(f"`dataset` must be an .npz file or a folder of images by class, got {path}.")
    with needs("lab"):
        from metacal.lab.data.sources.own import IMAGE_OPTIONS, NPZ_OPTIONS, load_image_folder, load_npz
    load, passed_on = (load_image_folder, IMAGE_OPTIONS) if path.is_dir() else (load_npz, NPZ_OPTIONS)
    return Source(str(path), "", load, ((str(path),),), passed_on=passed_on)


def _bare(name: str) -> str:
    return re.sub(r"[-_ ]", "", name.lower())
