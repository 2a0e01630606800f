"""Finding the labels in a batch, whatever it looks like."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from metacal.errors import InvalidTypeError, InvalidValueError

KEYS = ("labels", "label", "targets", "target", "y")
"""Where labels are looked for in a batch that is a dictionary, in this order."""

Targets = str | int | Callable[[Any], Tensor] | None
"""How to find the labels: a key or position, a function of the batch, or None to look in the usual places."""


def labels_of(batch: Any, targets: Targets = None) -> Tensor:
    """The labels of a batch.

    Examples:
        >>> import torch
        >>> labels_of((torch.zeros(2, 4), torch.tensor([1, 0])))
        tensor([1, 0])
        >>> labels_of({"pixels": torch.zeros(2, 4), "label": torch.tensor([1, 0])})
        tensor([1, 0])
    """
    found = _found(batch, targets)
    if not isinstance(found, Tensor):
        raise InvalidTypeError(f"`targets` must lead to a tensor of class labels, got {type(found).__name__}.")
    return found


def split_batch(batch: Any) -> tuple[Any, Tensor]:
    """A batch as the input of a model and labels.

    A pair is that already; of a longer tuple the last is the labels; a dictionary holds them under a usual name.

    Examples:
        >>> import torch
        >>> split_batch({"pixels": 1, "label": torch.tensor([1, 0])})
        ({'pixels': 1}, tensor([1, 0]))
    """
    if isinstance(batch, Mapping):
        key = next((key for key in KEYS if key in batch), None)
        if key is None:
            raise InvalidValueError(f"`meta` must give batches with labels; {_description(batch)}")
        return {name: value for name, value in batch.items() if name != key}, _checked(batch[key])
    if not isinstance(batch, (tuple, list)) or len(batch) < 2:
        raise InvalidTypeError(f"`meta` must give batches (x, y); {_description(batch)}")
    return (batch[0] if len(batch) == 2 else tuple(batch[:-1])), _checked(batch[-1])


def _checked(labels: Any) -> Tensor:
    if not isinstance(labels, Tensor):
        raise InvalidTypeError(f"`meta targets` must be a tensor of class labels, got {type(labels).__name__}.")
    if not labels.numel():
        raise InvalidValueError("`meta targets` must hold at least one sample, got none.")
    return labels


def _found(batch: Any, targets: Targets) -> Any:
    if callable(targets):
        return targets(batch)
    if targets is not None:
        try:
            return batch[targets]
        except (KeyError, IndexError, TypeError):
            raise InvalidValueError(
                f"`targets` must be a key of the batches, got {targets!r}; {_description(batch)}"
            ) from None
    if isinstance(batch, Mapping):
        key = next((key for key in KEYS if key in batch), None)
        if key is not None:
            return batch[key]
    elif isinstance(batch, (tuple, list)) and len(batch) == 2:
        return batch[1]
    raise InvalidValueError(
        f"`targets` must say where the labels of a batch are (a key, or a function), got None; {_description(batch)}"
    )


def _description(batch: Any) -> str:
    if isinstance(batch, Mapping):
        return f"its keys are {', '.join(map(repr, batch))}."
    if isinstance(batch, (tuple, list)):
        return f"a batch is a {type(batch).__name__} of {len(batch)}."
    return f"a batch is a {type(batch).__name__}."
