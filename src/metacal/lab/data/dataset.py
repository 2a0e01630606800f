"""What every source gives: `Examples` (inputs with labels) and `Dataset` (training and test examples, names)."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.functional.arguments import check_choice, check_labels, check_tensor

KINDS = {
    "image": ((torch.uint8,), 4, "uint8 images (n, C, H, W) with values 0..255"),
    "text": ((torch.int16, torch.int32, torch.int64), 2, "integer tokens (n, L), left-padded with 0"),
    "vector": ((torch.float32,), 2, "float32 vectors (n, d)"),
}
"""Dtypes and dimensions of the inputs of each kind of data, and the same in words."""


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs ``(n, ...)``, labels int64 ``(n,)`` and, where the data says it, the number of each sample's domain.

    Examples:
        >>> import torch
        >>> few = Examples(torch.arange(6.0).reshape(3, 2), torch.tensor([0, 1, 0]))
        >>> len(few), few.select(torch.tensor([2, 0])).inputs.tolist()
        (3, [[4.0, 5.0], [0.0, 1.0]])
    """

    inputs: Tensor
    targets: Tensor
    domains: Tensor | None = None

    def __post_init__(self) -> None:
        check_tensor("inputs", self.inputs)
        check_tensor("targets", self.targets)
        if self.targets.dtype is not torch.int64:
            raise InvalidTypeError(f"`targets` must be int64 class labels, got {self.targets.dtype}.")
        if self.targets.ndim != 1 or self.inputs.ndim < 1 or len(self.inputs) != len(self.targets):
            raise InvalidValueError(
                f"`targets` must have shape (n,) for inputs (n, ...), got {tuple(self.targets.shape)} for inputs "
                f"{tuple(self.inputs.shape)}."
            )
        if self.domains is not None and (
            self.domains.dtype is not torch.int64 or self.domains.shape != self.targets.shape
        ):
            raise InvalidValueError(
                f"`domains` must be int64 ({len(self)},), one for each sample, got {self.domains.dtype} "
                f"{tuple(self.domains.shape)}."
            )

    def __len__(self) -> int:
        return len(self.targets)

    def select(self, index: Tensor) -> "Examples":
        """The examples with these numbers, in this order (a copy)."""
        check_labels("index", index)
        rows = index.to(self.targets.device, torch.int64)
        return self._map(lambda values: values.index_select(0, rows))

    def to(self, device: torch.device | str | None) -> "Examples":
        """The same examples on a device; None leaves them where they are."""
        return self if device is None else self._map(lambda values: values.to(device))

    def _map(self, change: Callable[[Tensor], Tensor]) -> "Examples":
        domains = None if self.domains is None else change(self.domains)
        return Examples(change(self.inputs), change(self.targets), domains)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test examples with all that training on them needs; checked when it is made.

    Attributes:
        name: what it is called, e.g. ``cifar10``.
        kind: ``image`` (uint8 ``(n, C, H, W)``), ``text`` (integer tokens ``(n, L)``, left-padded with 0) or ``vector``
            (float32 ``(n, d)``).
        train: all training examples; `make_splits` cuts validation and meta sets from them.
        test: examples that nothing is chosen on.
        class_names: K names.
        superclasses: number of the superclass of every class, where classes have them (CIFAR-100).
        superclass_names: names of those.
        embeddings: text: frozen word vectors; row 0 is the padding.
        mean: what is subtracted from every channel (images, as fractions of 255) or feature (vectors).
        std: what that is divided by.
        augment: whether images are padded, cropped and flipped in training.
        files: the files it was read from.
        domain_names: names of the domains that samples come from, where the data says it.
    """

    name: str
    kind: str
    train: Examples
    test: Examples
    class_names: tuple[str, ...]
    superclasses: tuple[int, ...] | None = None
    superclass_names: tuple[str, ...] | None = None
    embeddings: Tensor | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    augment: bool = False
    files: tuple[str, ...] = ()
    domain_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, tuple(KINDS))
        if len(self.class_names) < 2:
            raise InvalidValueError(f"`class_names` must hold at least 2 names, got {self.class_names}.")
        for part, examples in (("train", self.train), ("test", self.test)):
            check_inputs(f"{part}_inputs", examples.inputs, self.kind)
            check_label_range(f"{part}_targets", examples.targets, self.class_names)
        if self.train.inputs.shape[1:] != self.test.inputs.shape[1:]:
            raise InvalidValueError(
                f"`test_inputs` must have the shape of the training inputs, {self.input_shape}, got "
                f"{tuple(self.test.inputs.shape[1:])}."
            )
        if self.augment and self.kind != "image":
            raise InvalidValueError(f"`augment` must be False for {self.kind} data: it pads, crops and flips images.")
        self._check_names()
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

    def _check_names(self) -> None:
        """Domains and superclasses have names."""
        for part, examples in (("train", self.train), ("test", self.test)):
            if (examples.domains is None) != (self.domain_names is None):
                raise InvalidValueError(f"`domain_names` and domains of {part} samples must be given both or neither.")
            if self.domain_names is not None and examples.domains is not None:
                check_label_range(f"{part}_domains", examples.domains, self.domain_names)
        numbers, count = self.superclasses, len(self.superclass_names or ())
        if numbers is not None and not (len(numbers) == self.num_classes and all(0 <= n < count for n in numbers)):
            raise InvalidValueError("`superclasses` must give every class the number of one of `superclass_names`.")

    def _check_scaling(self) -> None:
        if (self.mean is None) != (self.std is None):
            raise InvalidValueError("`mean` and `std` must be given both or neither.")
        if self.mean is None or self.std is None:
            return
        wanted = self.input_shape[0]
        if len(self.mean) != wanted or len(self.std) != wanted:
            raise InvalidValueError(
                f"`mean` and `std` must hold {wanted} numbers each, got {len(self.mean)} and {len(self.std)}."
            )
        if not all(math.isfinite(value) for value in self.mean) or not all(0.0 < s < math.inf for s in self.std):
            raise InvalidValueError(f"`mean` must be finite and `std` > 0, got {self.mean} and {self.std}.")

    def _check_embeddings(self) -> None:
        if self.embeddings is None:
            return
        check_tensor("embeddings", self.embeddings)
        if self.kind != "text" or self.embeddings.ndim != 2 or not self.embeddings.is_floating_point():
            raise InvalidValueError(
                f"`embeddings` must be float vectors (words, d) of text data, got {self.embeddings.dtype} "
                f"{tuple(self.embeddings.shape)} with {self.kind} data."
            )
        highest = int(max(self.train.inputs.max(), self.test.inputs.max()))
        if highest >= len(self.embeddings):
            raise InvalidValueError(
                f"`embeddings` must have a row for every token, got {len(self.embeddings)} rows and token {highest}."
            )


def check_inputs(name: str, inputs: Tensor, kind: str) -> None:
    """Raise unless ``inputs`` have the dtype and shape of this kind, at least one sample, and values that can be."""
    dtypes, ndim, wanted = KINDS[kind]
    if inputs.dtype not in dtypes or inputs.ndim != ndim:
        raise InvalidValueError(f"`{name}` must be {wanted}, got {inputs.dtype} {tuple(inputs.shape)}.")
    if not inputs.numel():
        raise InvalidValueError(f"`{name}` must hold at least one sample, got shape {tuple(inputs.shape)}.")
    if kind == "text" and int(inputs.min()) < 0:
        raise InvalidValueError(f"`{name}` must hold tokens >= 0, got {int(inputs.min())}.")
    if kind == "vector" and not bool(torch.isfinite(inputs).all()):
        row, column = (int(i) for i in (~torch.isfinite(inputs)).nonzero()[0])
        value = float(inputs[row, column])
        raise InvalidValueError(f"`{name}` must be finite, got {value} in row {row}, column {column}.")


def check_label_range(name: str, targets: Tensor, class_names: tuple[str, ...]) -> None:
    """Raise unless every label is one of 0..K-1."""
    count = len(class_names)
    outside = ((targets < 0) | (targets >= count)).nonzero()
    if len(outside):
        row, wanted = int(outside[0]), f"0..{count - 1} ({count} classes)"
        raise InvalidValueError(f"`{name}` must lie in {wanted}, got {int(targets[row])} in row {row}.")
