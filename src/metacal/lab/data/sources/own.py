"""A user's own data: arrays in an ``.npz`` file, or images in folders by class."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps

from metacal.errors import DamagedFileError, InvalidTypeError, InvalidValueError
from metacal.functional.arguments import check_integer
from metacal.lab.data.arrays import from_arrays
from metacal.lab.data.dataset import Dataset

SPELLINGS = (
    ("train_inputs", "train_targets", "test_inputs", "test_targets"),
    ("x_train", "y_train", "x_test", "y_test"),
    ("inputs", "targets"),
)
"""Arrays that are looked for, first come first served; a pair alone is split into training and test set."""
SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff", ".gif"}
MODES = {1: "L", 3: "RGB"}
PARTS = ("train", "test")
UNREADABLE = (OSError, ValueError, SyntaxError, Image.DecompressionBombError, Image.DecompressionBombWarning)


def load_npz(
    path: Path,
    *,
    kind: str | None = None,
    class_names: Sequence[str] | None = None,
    num_classes: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    augment: bool = False,
    test_share: float = 0.2,
    seed: int = 0,
) -> Dataset:
    """A dataset from an ``.npz`` file; no pickled object is ever loaded.

    The arrays are ``train_inputs``, ``train_targets``, ``test_inputs``, ``test_targets`` (or Keras's ``x_train``, ...),
    or ``inputs`` and ``targets``, of which ``test_share`` becomes the test set. The file may also hold ``class_names``
    (strings) and, for text, ``embeddings``. Where samples come from may be said by ``domains`` (names or numbers), or
    ``train_domains`` and ``test_domains``. The options are those of `from_arrays`.
    """
    arrays = read_npz(path)
    keys = next((keys for keys in SPELLINGS if set(keys) <= set(arrays)), None)
    if keys is None:
        wanted = "; or ".join(", ".join(keys) for keys in SPELLINGS)
        raise InvalidValueError(f"{path} must hold the arrays {wanted}; got {', '.join(sorted(arrays)) or 'none'}.")
    if class_names is None and "class_names" in arrays:
        if arrays["class_names"].dtype.kind not in "USiuf" or not arrays["class_names"].dtype.itemsize:
            raise InvalidTypeError(f"{path}: `class_names` must hold text, got dtype {arrays['class_names'].dtype}.")
        class_names = [str(name) for name in arrays["class_names"].reshape(-1).astype(str)]
    try:
        return from_arrays(
            *(arrays[key] for key in keys),
            name=path.stem,
            kind=kind,
            class_names=class_names,
            num_classes=num_classes,
            embeddings=arrays.get("embeddings"),
            mean=mean,
            std=std,
            augment=augment,
            test_share=test_share,
            seed=seed,
            files=(str(path),),
            train_domains=arrays.get("train_domains", arrays.get("domains")),
            test_domains=arrays.get("test_domains"),
        )
    except (InvalidValueError, InvalidTypeError) as error:
        raise type(error)(f"{path}: {error}") from None


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Every array of an ``.npz`` file."""
    try:
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not hasattr(archive, "files"):
                raise InvalidValueError(f"{path} must be an .npz archive of arrays, got a single array.")
            arrays = {name: archive[name] for name in archive.files}
            if other := [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]:
                raise InvalidValueError(f"{path} must hold arrays only, got {other[0]}.")
            return arrays
    except InvalidValueError:
        raise
    except Exception as error:  # NumPy and zipfile raise a dozen kinds for bytes that they have not written
        if isinstance(error, ValueError) and "pickle" in str(error):
            raise InvalidValueError(
                f"{path} must hold plain arrays; it holds pickled objects, which are never loaded because loading them "
                "runs code. Save numbers and strings, not dtype=object."
            ) from None
        raise DamagedFileError(f"{path} cannot be read as .npz: {error}.") from None


def load_image_folder(
    path: Path,
    *,
    size: int | Sequence[int] | None = None,
    channels: int = 3,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    augment: bool = False,
    test_share: float = 0.2,
    seed: int = 0,
    domains: bool = False,
) -> Dataset:
    """Images in ``train/<class>/`` and ``test/<class>/``, or in ``<class>/`` with a test set drawn from them.

    Classes are in the order of the alphabet. Other files than images are passed over.

    Args:
        path: the folder.
        size: resize every image to this height and width, a number or a pair; without it all must have one size.
        channels: 3 for colour, 1 for grey; images are converted.
        mean: of every channel, as a fraction of 255; without it that of the training images. ``std`` likewise.
        std: see ``mean``.
        augment: pad, crop and flip in training.
        test_share: share of the images (stratified) in the test set, where there is no ``test`` folder.
        seed: of that split.
        domains: the folders hold domains, and classes within them: ``<domain>/<class>/``.
    """
    if channels not in MODES:
        raise InvalidValueError(f"`channels` must be 1 or 3, got {channels!r}.")
    shape = _height_and_width(size)
    if domains:
        roots = _domain_folders(path)
        names = sorted({each for root in roots for each in _classes(root)})
    else:
        is_split = all((path / part).is_dir() for part in PARTS)
        roots = [path / part for part in PARTS] if is_split else [path]
        names = _class_names(roots)
    arrays: list[torch.Tensor] = []
    for root in roots:
        files = [(file, number) for number, name in enumerate(names) for file in _images(root / name)]
        if not files:
            raise InvalidValueError(f"{root} must hold images in folders by class, got none.")
        if shape is None:
            width, height = read_image(files[0][0]).size
            shape = height, width
        arrays += [read_images([file for file, _ in files], shape, channels, resize=size is not None)]
        arrays += [torch.tensor([number for _, number in files])]
    come_from = None
    if domains:
        come_from = [root.name for root, targets in zip(roots, arrays[1::2], strict=True) for _ in targets]
        arrays = [torch.cat(arrays[::2]), torch.cat(arrays[1::2])]
    return from_arrays(
        *arrays,
        name=path.resolve().name,
        kind="image",
        class_names=names,
        mean=mean,
        std=std,
        augment=augment,
        test_share=test_share,
        seed=seed,
        files=(str(path),),
        train_domains=come_from,
    )


def read_images(files: Sequence[Path], shape: tuple[int, int], channels: int, *, resize: bool) -> torch.Tensor:
    """uint8 ``(n, C, H, W)``; an image of another shape is resized, or refused."""
    images = np.empty((len(files), *shape, channels), np.uint8)
    for row, file in zip(images, files, strict=True):
        image = read_image(file).convert(MODES[channels])
        if resize:
            image = image.resize((shape[1], shape[0]), Image.Resampling.BILINEAR)
        elif image.size != (shape[1], shape[0]):
            raise InvalidValueError(
                f"{file} must be {shape[0]} x {shape[1]} pixels (height x width) like the first image, got "
                f"{image.size[1]} x {image.size[0]}; size=32 resizes all images to 32 x 32."
            )
        row[:] = np.asarray(image).reshape(*shape, channels)
    return torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))


def read_image(file: Path) -> Image.Image:
    """An image, turned as its EXIF data says; one so large that it must be a trap is refused."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(file) as raw:
                return ImageOps.exif_transpose(raw)  # a copy, read to its end
    except UNREADABLE as error:
        raise DamagedFileError(f"{file} cannot be read as an image: {str(error).rstrip('.')}.") from None


def _height_and_width(size: int | Sequence[int] | None) -> tuple[int, int] | None:
    if size is None:
        return None
    pair = (size, size) if isinstance(size, int) else tuple(size)
    if len(pair) != 2:
        raise InvalidValueError(f"`size` must be a number or (height, width), got {size!r}.")
    for number in pair:
        check_integer("size", number, 1)
    return pair[0], pair[1]


def _domain_folders(path: Path) -> list[Path]:
    """Folders that hold folders of images."""
    folders = [each for each in sorted(path.iterdir()) if each.is_dir() and not each.name.startswith(".")]
    found = [each for each in folders if _classes(each)]
    if len(found) < 2:
        raise InvalidValueError(
            f"{path} must hold images in at least 2 folders by domain (<domain>/<class>/*.png), got "
            f"{', '.join(each.name for each in found) or 'none'}."
        )
    return found


def _class_names(roots: Sequence[Path]) -> list[str]:
    """Names of the folders that hold images; those of training and test must be the same."""
    found = [_classes(root) for root in roots]
    if len(found[0]) < 2:
        raise InvalidValueError(
            f"{roots[0]} must hold images in at least 2 folders by class (<class>/*.png), got "
            f"{', '.join(found[0]) or 'none'}."
        )
    unknown = sorted(set(found[-1]) - set(found[0]))
    if unknown:
        raise InvalidValueError(f"{roots[-1]} must hold classes of {roots[0]} only, got {', '.join(unknown)}.")
    return found[0]


def _classes(root: Path) -> list[str]:
    return sorted(each.name for each in root.iterdir() if not each.name.startswith(".") and _images(each))


def _images(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(file for file in folder.iterdir() if file.suffix.lower() in SUFFIXES and file.is_file())
