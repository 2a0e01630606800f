"""`Examples` (inputs with labels), `Dataset` (training and test examples), and `from_arrays`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.functional.arguments import check_choice, check_integer, check_labels, check_tensor
from metacal.functional.boundary import to_tensor

KINDS = {
    "image": ((torch.uint8,), 4, "uint8 images (n, C, H, W) with values 0..255"),
    "text": ((torch.int16, torch.int32, torch.int64), 2, "integer tokens (n, L), left-padded with 0"),
    "vector": ((torch.float32,), 2, "float32 vectors (n, d)"),
}
"""For each kind of data: dtypes and number of dimensions of the inputs, and their description."""
CHANNELS = (1, 3)
MOST_CLASSES = 10**6
"""A higher label is a mistake, and would allocate memory for every class below it."""


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs ``(n, ...)`` and labels, int64 ``(n,)``.

    Examples:
        >>> import torch
        >>> few = Examples(torch.arange(6.0).reshape(3, 2), torch.tensor([0, 1, 0]))
        >>> len(few), few.select(torch.tensor([2, 0])).inputs.tolist()
        (3, [[4.0, 5.0], [0.0, 1.0]])
    """

    inputs: Tensor
    targets: Tensor

    def __post_init__(self) -> None:
        check_tensor("inputs", self.inputs)
        check_tensor("targets", self.targets)
        if self.targets.dtype is not torch.int64:
            raise InvalidTypeError(f"`targets` must be int64 class labels, got {self.targets.dtype}.")
        _check_pairs("targets", self.inputs, self.targets)

    def __len__(self) -> int:
        return len(self.targets)

    def select(self, index: Tensor) -> "Examples":
        """Return a copy of the rows with these numbers, in this order."""
        check_labels("index", index)
        rows = index.to(self.targets.device, torch.int64)
        return Examples(self.inputs.index_select(0, rows), self.targets.index_select(0, rows))

    def to(self, device: torch.device | str | None) -> "Examples":
        """Return the examples on a device; None leaves them in place."""
        return self if device is None else Examples(self.inputs.to(device), self.targets.to(device))


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test examples, and what training needs to know about them; checked on construction."""

    name: str  # e.g. ``cifar10``
    kind: str  # one of `KINDS`
    train: Examples  # `make_splits` takes validation and meta sets from these
    test: Examples  # never used to choose anything
    class_names: tuple[str, ...]  # K names
    superclasses: tuple[int, ...] | None = None  # superclass number of every class (CIFAR-100)
    embeddings: Tensor | None = None  # text: frozen word vectors; row 0 is the padding
    mean: tuple[float, ...] | None = None  # of every channel (as fractions of 255) or feature
    std: tuple[float, ...] | None = None
    augment: bool = False  # whether images are padded, cropped and flipped in training
    files: tuple[str, ...] = ()  # the files it was read from

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, tuple(KINDS))
        if len(self.class_names) < 2:
            raise InvalidValueError(f"`class_names` must hold at least 2 names, got {self.class_names}.")
        for part, examples in (("train", self.train), ("test", self.test)):
            _check_inputs(f"{part}_inputs", examples.inputs, self.kind)
            outside = ((examples.targets < 0) | (examples.targets >= self.num_classes)).nonzero()
            if len(outside):
                row, wanted = int(outside[0]), f"0..{self.num_classes - 1} ({self.num_classes} classes)"
                got = f"{int(examples.targets[row])} in row {row}"
                raise InvalidValueError(f"`{part}_targets` must lie in {wanted}, got {got}.")
        if (shape := tuple(self.test.inputs.shape[1:])) != self.input_shape:
            raise InvalidValueError(
                f"`test_inputs` must have the shape of the training inputs, {self.input_shape}, got {shape}."
            )
        if self.augment and self.kind != "image":
            raise InvalidValueError(f"`augment` must be False for {self.kind} data: it pads, crops and flips images.")
        self._check_scaling()
        self._check_embeddings()

    @property
    def num_classes(self) -> int:
        """K."""
        return len(self.class_names)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(self.train.inputs.shape[1:])

    def _check_scaling(self) -> None:
        mean, std, channels = self.mean, self.std, self.input_shape[0]
        if (mean is None) != (std is None):
            raise InvalidValueError("`mean` and `std` must be given together, or not at all.")
        if mean is None or std is None:
            return
        are_good = all(map(math.isfinite, mean)) and all(0.0 < value < math.inf for value in std)
        if not are_good or len(mean) != channels or len(std) != channels:
            rule = f"`mean` and `std` must hold {channels} finite numbers each, `std` > 0"
            raise InvalidValueError(f"{rule}, got {mean} and {std}.")

    def _check_embeddings(self) -> None:
        embeddings = self.embeddings
        if embeddings is None:
            return
        if self.kind != "text" or embeddings.ndim != 2 or not embeddings.is_floating_point():
            got = f"{embeddings.dtype} {tuple(embeddings.shape)} with {self.kind} data"
            raise InvalidValueError(f"`embeddings` must be float vectors (words, d) of text data, got {got}.")
        highest = int(max(self.train.inputs.max(), self.test.inputs.max()))
        if highest >= len(embeddings):
            got = f"{len(embeddings)} rows and token {highest}"
            raise InvalidValueError(f"`embeddings` must have a row for every token, got {got}.")


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
) -> Dataset:
    """Make a dataset of NumPy arrays, tensors or lists.

    Args:
        train_inputs: uint8 images ``(n, C, H, W)``, ``(n, H, W, C)`` with 1 or 3 channels, or ``(n, H, W)``; float
            vectors ``(n, d)``; or integer tokens ``(n, L)``, left-padded with 0 (pass ``kind="text"``).
        train_targets: integer labels ``(n,)`` from 0 to K - 1.
        test_inputs: as ``train_inputs``; without them ``test_share`` of the samples becomes the test set.
        test_targets: as ``train_targets``.
        name: of the dataset.
        kind: ``image``, ``text`` or ``vector``; by default inferred from dtype and shape.
        class_names: K names; without them and ``num_classes``, K is the highest label + 1.
        num_classes: K, instead of names.
        embeddings: text: word vectors ``(words, d)``; row 0 is the padding.
        mean: of every channel (as fractions of 255) or feature; by default that of the training images.
        std: likewise.
        augment: pad, crop and flip images in training.
        test_share: stratified share of the samples that becomes the test set if none is given.
        seed: of that split.
        files: where the arrays come from.

    Examples:
        >>> import numpy as np
        >>> data = from_arrays(np.eye(4, dtype=np.float32).repeat(5, 0), np.arange(4).repeat(5))
        >>> data.kind, data.num_classes, len(data.train), len(data.test)
        ('vector', 4, 16, 4)
    """
    from metacal.lab.data.batches import draw_test_set  # imports this module

    if kind is not None:
        check_choice("kind", kind, tuple(KINDS))
    if (test_inputs is None) != (test_targets is None):
        raise InvalidValueError("`test_inputs` and `test_targets` must be given together, or not at all.")
    train = _to_examples("train", train_inputs, train_targets, kind)
    if test_inputs is None:
        train, test = (train.select(rows) for rows in draw_test_set(train.targets, test_share, seed))
    else:
        test = _to_examples("test", test_inputs, test_targets, kind)
    kind = kind or _kind("train_inputs", train.inputs)
    if kind == "image" and mean is None and std is None and train.inputs.ndim == 4:
        mean, std = channel_statistics(train.inputs)
    return Dataset(
        name,
        kind,
        train,
        test,
        _to_class_names(class_names, num_classes, torch.cat((train.targets, test.targets))),
        embeddings=None if embeddings is None else to_tensor("embeddings", embeddings).float(),
        mean=None if mean is None else tuple(map(float, mean)),
        std=None if std is None else tuple(map(float, std)),
        augment=augment,
        files=tuple(files),
    )


def channel_statistics(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of every channel of uint8 images, as fractions of 255; 1 for a constant channel.

    Computed from counts of the 256 values: exact, and without a float copy of the images.
    """
    values = torch.arange(256, dtype=torch.float64) / 255.0
    mean, std = [], []
    for channel in range(images.shape[1]):
        counts = torch.bincount(images[:, channel].reshape(-1).int().cpu(), minlength=256).double()
        share = counts / counts.sum()
        mean.append(float((share * values).sum()))
        spread = float((share * (values - mean[-1]) ** 2).sum()) ** 0.5
        std.append(spread if spread > 1e-12 else 1.0)
    return tuple(mean), tuple(std)


def _to_examples(part: str, inputs: Any, targets: Any, kind: str | None) -> Examples:
    """Convert inputs and labels to the dtypes and layouts of a Dataset, which checks their ranges."""
    x, y = to_tensor(f"{part}_inputs", inputs), to_tensor(f"{part}_targets", targets)
    if y.is_floating_point() or y.is_complex():
        raise InvalidTypeError(f"`{part}_targets` must be integer class labels 0..K-1, got {y.dtype}.")
    y = y.reshape(-1) if y.ndim == 2 and y.shape[1] == 1 else y
    _check_pairs(f"{part}_targets", x, y)
    if not len(y):
        raise InvalidValueError(f"`{part}_targets` must hold at least one sample, got none.")
    if int(y.max()) >= MOST_CLASSES:
        raise InvalidValueError(f"`{part}_targets` must be class labels 0..K-1, got {int(y.max())}; renumber them.")
    kind = kind or _kind(f"{part}_inputs", x)
    if kind == "image" and x.ndim == 3:
        x = x.unsqueeze(1)
    elif kind == "image" and x.ndim == 4 and x.shape[1] not in CHANNELS and x.shape[3] in CHANNELS:
        x = x.movedim(3, 1)
    elif kind == "vector":
        x = x.float()
    elif kind == "text" and not x.is_floating_point() and x.dtype is not torch.bool:
        x = x.int() if x.numel() and int(x.max()) < 2**31 and int(x.min()) >= -(2**31) else x.long()
    return Examples(x.clone(memory_format=torch.contiguous_format), y.to(torch.int64, copy=True))


def _kind(name: str, inputs: Tensor) -> str:
    got = f"{inputs.dtype} {tuple(inputs.shape)}"
    if inputs.ndim in (3, 4) and inputs.dtype is torch.uint8:
        return "image"
    if inputs.ndim == 2 and inputs.is_floating_point():
        return "vector"
    if inputs.ndim in (3, 4):
        raise InvalidValueError(
            f"`{name}` must be uint8 images with values 0..255, or vectors (n, d), got {got}; "
            "convert images in [0, 1] with (255 * images).round() to uint8."
        )
    raise InvalidValueError(f"`kind` must be given for inputs of {got}: 'vector' for features, 'text' for tokens.")


def _to_class_names(class_names: Sequence[str] | None, num_classes: int | None, targets: Tensor) -> tuple[str, ...]:
    if num_classes is not None:
        check_integer("num_classes", num_classes, 2)
    if class_names is not None:
        if num_classes not in (None, len(class_names)):
            raise InvalidValueError(f"`class_names` must hold {num_classes} names, got {len(class_names)}.")
        return tuple(map(str, class_names))
    if num_classes is None and not bool(targets.any()):
        raise InvalidValueError("`num_classes` must be given if every label is 0: at least 2 classes are needed.")
    return tuple(map(str, range(num_classes or max(2, int(targets.max()) + 1))))


def _check_pairs(name: str, inputs: Tensor, targets: Tensor) -> None:
    if targets.ndim != 1 or inputs.ndim < 1 or len(inputs) != len(targets):
        got = f"{tuple(targets.shape)} for inputs {tuple(inputs.shape)}"
        raise InvalidValueError(f"`{name}` must have shape (n,) for inputs (n, ...), got {got}.")


def _check_inputs(name: str, inputs: Tensor, kind: str) -> None:
    """Raise unless the inputs have the dtype and shape of this kind, at least one sample, and valid values."""
    dtypes, ndim, wanted = KINDS[kind]
    if inputs.dtype not in dtypes or inputs.ndim != ndim:
        raise InvalidValueError(f"`{name}` must be {wanted}, got {inputs.dtype} {tuple(inputs.shape)}.")
    if not inputs.numel():
        raise InvalidValueError(f"`{name}` must hold at least one sample, got shape {tuple(inputs.shape)}.")
    if kind == "text" and int(inputs.min()) < 0:
        raise InvalidValueError(f"`{name}` must hold tokens >= 0, got {int(inputs.min())}.")
    if kind == "vector" and not bool(torch.isfinite(inputs).all()):
        row, column = (int(i) for i in (~torch.isfinite(inputs)).nonzero()[0])
        got = f"{float(inputs[row, column])} in row {row}, column {column}"
        raise InvalidValueError(f"`{name}` must be finite, got {got}.")
