"""Your own data: arrays in an ``.npz`` file, or images in folders by class."""

import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps

from metacal.errors import DamagedFileError, InvalidTypeError, InvalidValueError
from metacal.functional.arguments import check_integer
from metacal.lab.data.dataset import Dataset, from_arrays

SPELLINGS = (
    ("train_inputs", "train_targets", "test_inputs", "test_targets"),
    ("x_train", "y_train", "x_test", "y_test"),
    ("inputs", "targets"),
)
"""Accepted names of the arrays, by priority. A single pair is split into training and test set."""
IMAGE_OPTIONS = ("mean", "std", "augment", "test_share", "seed")
NPZ_OPTIONS = ("kind", "class_names", "num_classes", *IMAGE_OPTIONS)
"""Options that a loader passes on to `from_arrays`."""
SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff", ".gif"}
MODES = {1: "L", 3: "RGB"}
PARTS = ("train", "test")
UNREADABLE = (OSError, ValueError, SyntaxError, Image.DecompressionBombError, Image.DecompressionBombWarning)


def load_npz(path: Path, **options: Any) -> Dataset:
    """Load a dataset from an ``.npz`` file; pickled objects are never loaded.

    The arrays are ``train_inputs``, ``train_targets``, ``test_inputs``, ``test_targets`` (or Keras's ``x_train``, ...),
    or ``inputs`` and ``targets``, of which ``test_share`` becomes the test set. The file may also hold ``class_names``
    (strings) and, for text, ``embeddings``. The options are `NPZ_OPTIONS`; see `from_arrays`.
    """
    arrays = _read_npz(path)
    keys = next((keys for keys in SPELLINGS if set(keys) <= set(arrays)), None)
    if keys is None:
        wanted = "; or ".join(", ".join(keys) for keys in SPELLINGS)
        raise InvalidValueError(f"{path} must hold the arrays {wanted}; got {', '.join(sorted(arrays)) or 'none'}.")
    if options.get("class_names") is None and "class_names" in arrays:
        names = arrays["class_names"]
        if names.dtype.kind not in "USiuf" or not names.dtype.itemsize:
            raise InvalidTypeError(f"{path}: `class_names` must hold text, got dtype {names.dtype}.")
        options["class_names"] = [str(name) for name in names.reshape(-1).astype(str)]
    options |= {"name": path.stem, "files": (str(path),), "embeddings": arrays.get("embeddings")}
    try:
        return from_arrays(*(arrays[key] for key in keys), **options)
    except (InvalidValueError, InvalidTypeError) as error:
        raise type(error)(f"{path}: {error}") from None


def _read_npz(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not hasattr(archive, "files"):
                raise InvalidValueError(f"{path} must be an .npz archive of arrays, got a single array.")
            arrays = {name: archive[name] for name in archive.files}
    except InvalidValueError:
        raise
    except Exception as error:  # NumPy and zipfile raise a dozen kinds for damaged bytes
        if isinstance(error, ValueError) and "pickle" in str(error):
            raise InvalidValueError(
                f"{path} must hold plain arrays, got pickled objects, which are not loaded because that would run "
                "code; save numbers and strings, not dtype=object."
            ) from None
        raise DamagedFileError(f"{path} cannot be read as .npz: {error}.") from None
    if other := [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]:
        raise InvalidValueError(f"{path} must hold arrays only, got {other[0]}.")
    return arrays


def load_image_folder(path: Path, *, size: int | None = None, channels: int = 3, **options: Any) -> Dataset:
    """Load images in ``train/<class>/`` and ``test/<class>/``, or in ``<class>/`` with a test set drawn from them.

    Classes are sorted by name. Files that are not images are ignored.

    Args:
        path: the folder.
        size: resize every image to this height and width; by default all must have the same size.
        channels: 3 for colour, 1 for grey; images are converted.
        options: `IMAGE_OPTIONS`; see `from_arrays`.
    """
    if channels not in MODES:
        raise InvalidValueError(f"`channels` must be 1 or 3, got {channels!r}.")
    if size is not None:
        check_integer("size", size, 1)
    is_split = all((path / part).is_dir() for part in PARTS)
    roots = [path / part for part in PARTS] if is_split else [path]
    names = _classes(roots[0])
    if len(names) < 2:
        got = ", ".join(names) or "none"
        raise InvalidValueError(f"{roots[0]} must hold at least 2 folders by class (<class>/*.png), got {got}.")
    if unknown := sorted(set(_classes(roots[-1])) - set(names)):
        raise InvalidValueError(f"{roots[-1]} must hold classes of {roots[0]} only, got {', '.join(unknown)}.")
    shape = None if size is None else (size, size)
    arrays: list[torch.Tensor] = []
    for root in roots:
        labels = {file: number for number, name in enumerate(names) for file in _images(root / name)}
        if not labels:
            raise InvalidValueError(f"{root} must hold images in folders by class, got none.")
        shape = shape or _read_image(next(iter(labels))).size[::-1]
        arrays += [_read_images(labels, shape, channels, resize=size is not None), torch.tensor(list(labels.values()))]
    options |= {"name": path.resolve().name, "kind": "image", "class_names": names, "files": (str(path),)}
    return from_arrays(*arrays, **options)


def _read_images(files: Collection[Path], shape: tuple[int, int], channels: int, *, resize: bool) -> torch.Tensor:
    """Return uint8 ``(n, C, H, W)``; an image of another shape is resized, or refused."""
    images = np.empty((len(files), *shape, channels), np.uint8)
    for row, file in zip(images, files, strict=True):
        image = _read_image(file).convert(MODES[channels])
        if resize:
            image = image.resize(shape[::-1], Image.Resampling.BILINEAR)
        elif image.size != shape[::-1]:
            raise InvalidValueError(
                f"{file} must be {shape[0]} x {shape[1]} pixels (height x width) like the first image, got "
                f"{image.size[1]} x {image.size[0]}; size=32 resizes all images to 32 x 32."
            )
        row[:] = np.asarray(image).reshape(*shape, channels)
    return torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))


def _read_image(file: Path) -> Image.Image:
    """Read an image, rotated according to its EXIF data; a decompression bomb is refused."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(file) as raw:
                return ImageOps.exif_transpose(raw)  # a fully loaded copy
    except UNREADABLE as error:
        raise DamagedFileError(f"{file} cannot be read as an image: {str(error).rstrip('.')}.") from None


def _classes(root: Path) -> list[str]:
    return [each.name for each in sorted(root.iterdir()) if not each.name.startswith(".") and _images(each)]


def _images(folder: Path) -> list[Path]:
    files = folder.iterdir() if folder.is_dir() else ()
    return sorted(file for file in files if file.suffix.lower() in SUFFIXES and file.is_file())
