"""Datasets from arrays in memory: what the user has becomes the checked form that training reads."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.functional.arguments import check_choice, check_integer
from metacal.lab.data.dataset import KINDS, Dataset, Examples
from metacal.lab.data.splits import draw_test_set

CHANNELS = (1, 3)
MOST_CLASSES = 10**6
"""A label that is higher is a mistake, and would take memory for all the classes below it."""


def from_arrays(
    train_inputs: Any,
    train_targets: Any,
    test_inputs: Any = None,
    test_targets: Any = None,
    *,
    name: str = "arrays",
    kind: str | None = None,
    class_names: Sequence[str] | None = None,
    num_classes: int | None = None,
    embeddings: Any = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    augment: bool = False,
    test_share: float = 0.2,
    seed: int = 0,
    files: Sequence[str] = (),
    train_domains: Any = None,
    test_domains: Any = None,
) -> Dataset:
    """A dataset from NumPy arrays, tensors or lists.

    Args:
        train_inputs: uint8 images ``(n, C, H, W)``, ``(n, H, W, C)`` with 1 or 3 channels, or ``(n, H, W)``; float
            vectors ``(n, d)``; or integer tokens ``(n, L)``, left-padded with 0 (say ``kind="text"``).
        train_targets: integer labels ``(n,)`` from 0 to K - 1.
        test_inputs: as ``train_inputs``; without them ``test_share`` of the samples becomes the test set.
        test_targets: as ``train_targets``.
        name: what to call it.
        kind: ``image``, ``text`` or ``vector``; read from dtype and shape where they say it.
        class_names: K names; without them and ``num_classes``, K is the highest label + 1.
        num_classes: K, where there are no names.
        embeddings: text: word vectors ``(words, d)``; row 0 is the padding.
        mean: subtracted from every channel (as fractions of 255) or feature; images without one are scaled by the mean
            and standard deviation of the training images.
        std: what that is divided by.
        augment: pad, crop and flip images in training.
        test_share: of the samples (stratified) that become the test set, where none is given.
        seed: of that split.
        files: where the arrays come from.
        train_domains: names or numbers ``(n,)``: the domain that each sample comes from, such as a hospital.
        test_domains: as ``train_domains``, where there are test inputs.

    Examples:
        >>> import numpy as np
        >>> data = from_arrays(np.eye(4, dtype=np.float32).repeat(5, 0), np.arange(4).repeat(5))
        >>> data.kind, data.num_classes, len(data.train), len(data.test)
        ('vector', 4, 16, 4)
    """
    if kind is not None:
        check_choice("kind", kind, tuple(KINDS))
    if (test_inputs is None) != (test_targets is None):
        raise InvalidValueError("`test_inputs` and `test_targets` must be given both or neither.")
    if (test_domains is None) != (train_domains is None or test_inputs is None):
        raise InvalidValueError("`train_domains` and `test_domains` must be given for all inputs or for none.")
    parts = [(_examples("train", train_inputs, train_targets, kind), train_domains)]
    if test_inputs is not None:
        parts.append((_examples("test", test_inputs, test_targets, kind), test_domains))
    domain_names, examples = _with_domains(parts)
    if test_inputs is None:
        rows = draw_test_set(examples[0].targets, test_share, seed)
        examples = [examples[0].select(part) for part in rows]
    train, test = examples
    found_kind = kind or _kind(train.inputs)
    names = _class_names(class_names, num_classes, torch.cat((train.targets, test.targets)))
    if found_kind == "image" and mean is None and std is None and train.inputs.ndim == 4:
        mean, std = channel_statistics(train.inputs)
    return Dataset(
        name,
        found_kind,
        train,
        test,
        names,
        embeddings=None if embeddings is None else _tensor("embeddings", embeddings).float(),
        mean=None if mean is None else tuple(float(value) for value in mean),
        std=None if std is None else tuple(float(value) for value in std),
        augment=augment,
        files=tuple(files),
        domain_names=domain_names,
    )


def channel_statistics(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of every channel of uint8 images, as fractions of 255; a constant channel has 1.

    Sums over counts of the 256 values: exact, and without a float copy of the images.
    """
    values = torch.arange(256, dtype=torch.float64) / 255.0
    mean, std = [], []
    for channel in range(images.shape[1]):
        counts = torch.bincount(images[:, channel].reshape(-1).int().cpu(), minlength=256).double()
        share = counts / counts.sum()
        middle = float((share * values).sum())
        spread = float((share * (values - middle) ** 2).sum()) ** 0.5
        mean.append(middle)
        std.append(spread if spread > 1e-12 else 1.0)
    return tuple(mean), tuple(std)


def _with_domains(parts: Sequence[tuple[Examples, Any]]) -> tuple[tuple[str, ...] | None, list[Examples]]:
    """Names of all domains in order, and examples that know theirs; None and the examples where nothing is known."""
    if parts[0][1] is None:
        return None, [examples for examples, _ in parts]
    named = [np.asarray(domains).reshape(-1).astype(str) for _, domains in parts]
    every = np.unique(np.concatenate(named))
    known = []
    for (examples, _), names in zip(parts, named, strict=True):
        if len(names) != len(examples):
            raise InvalidValueError(f"`domains` must hold one for each of {len(examples)} samples, got {len(names)}.")
        known.append(replace(examples, domains=torch.from_numpy(np.searchsorted(every, names))))
    return tuple(map(str, every)), known


def _examples(part: str, inputs: Any, targets: Any, kind: str | None) -> Examples:
    """Inputs and labels in the dtypes and layouts that a Dataset has; ranges are checked there."""
    x, y = _tensor(f"{part}_inputs", inputs), _tensor(f"{part}_targets", targets)
    if y.is_floating_point() or y.is_complex():
        raise InvalidTypeError(f"`{part}_targets` must be integer class labels 0..K-1, got {y.dtype}.")
    if y.ndim == 2 and y.shape[1] == 1:
        y = y.reshape(-1)
    if y.ndim != 1 or x.ndim < 2 or len(x) != len(y):
        raise InvalidValueError(
            f"`{part}_targets` must have shape (n,) for inputs (n, ...), got {tuple(y.shape)} for inputs "
            f"{tuple(x.shape)}."
        )
    if not len(y):
        raise InvalidValueError(f"`{part}_targets` must hold at least one sample, got none.")
    if int(y.max()) >= MOST_CLASSES:
        raise InvalidValueError(f"`{part}_targets` must be class labels 0..K-1, got {int(y.max())}; number them.")
    found_kind = kind or _kind(x, f"{part}_inputs")
    if found_kind == "image" and x.ndim == 3:
        x = x.unsqueeze(1)
    elif found_kind == "image" and x.ndim == 4 and x.shape[1] not in CHANNELS and x.shape[3] in CHANNELS:
        x = x.movedim(3, 1)
    elif found_kind == "vector":
        x = x.float()
    elif found_kind == "text" and not x.is_floating_point() and x.dtype is not torch.bool:
        x = x.int() if x.numel() and int(x.max()) < 2**31 and int(x.min()) >= -(2**31) else x.long()
    return Examples(x.contiguous(), y.long())


def _kind(inputs: Tensor, name: str = "train_inputs") -> str:
    if inputs.ndim in (3, 4) and inputs.dtype is torch.uint8:
        return "image"
    if inputs.ndim == 2 and inputs.is_floating_point():
        return "vector"
    if inputs.ndim in (3, 4):
        raise InvalidValueError(
            f"`{name}` must be uint8 images with values 0..255, or vectors (n, d), got {inputs.dtype} "
            f"{tuple(inputs.shape)}; (255 * images).round() converts images from [0, 1]."
        )
    raise InvalidValueError(
        f"`kind` must be given for inputs of {inputs.dtype} {tuple(inputs.shape)}: 'vector' for features, 'text' for "
        "tokens."
    )


def _class_names(class_names: Sequence[str] | None, num_classes: int | None, targets: Tensor) -> tuple[str, ...]:
    if num_classes is not None:
        check_integer("num_classes", num_classes, 2)
    if class_names is not None:
        if num_classes is not None and len(class_names) != num_classes:
            raise InvalidValueError(f"`class_names` must hold {num_classes} names, got {len(class_names)}.")
        return tuple(map(str, class_names))
    if num_classes is None:
        if not bool(targets.any()):
            raise InvalidValueError("`num_classes` must be given when every label is 0: at least 2 are needed.")
        num_classes = max(2, int(targets.max()) + 1)
    return tuple(map(str, range(num_classes)))


def _tensor(name: str, values: Any) -> Tensor:
    if isinstance(values, Tensor):
        return values.detach()
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise InvalidTypeError(f"`{name}` must hold numbers, got dtype {array.dtype}.")
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)
    if array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    return torch.from_numpy(np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="), copy=False)).copy())
