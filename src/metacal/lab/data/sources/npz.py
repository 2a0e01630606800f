"""A user's arrays in an ``.npz`` file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metacal.errors import DamagedFileError, InvalidTypeError, InvalidValueError
from metacal.lab.data.arrays import from_arrays
from metacal.lab.data.dataset import Dataset

SPELLINGS = (
    ("train_inputs", "train_targets", "test_inputs", "test_targets"),
    ("x_train", "y_train", "x_test", "y_test"),
    ("inputs", "targets"),
)
"""Arrays that are looked for, first come first served; a pair alone is split into training and test set."""


def load(
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
