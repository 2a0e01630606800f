"""Checks of plain arguments: every message names the argument, its domain and the value received."""

import math
from collections.abc import Callable
from functools import partial
from numbers import Integral, Real

import torch
from torch import Tensor

from metacal.errors import InvalidTypeError, InvalidValueError

NORMS = ("l1", "l2", "max")


def check_tensor(name: str, value: Tensor) -> None:
    """Raise unless ``value`` is a dense tensor."""
    if not isinstance(value, Tensor):
        raise InvalidTypeError(
            f"`{name}` must be a torch.Tensor, got {type(value).__name__}; torch.as_tensor converts arrays."
        )
    if value.layout is not torch.strided:
        raise InvalidTypeError(f"`{name}` must be a dense tensor, got layout {value.layout}; `.to_dense()` converts.")


def check_labels(name: str, value: Tensor) -> None:
    """Raise unless ``value`` is a tensor of integers."""
    check_tensor(name, value)
    if value.is_floating_point() or value.is_complex():
        raise InvalidTypeError(f"`{name}` must be integer class labels, got {value.dtype}.")


def check_float_tensor(name: str, value: Tensor) -> None:
    """Raise unless ``value`` is a tensor of floating point numbers."""
    check_tensor(name, value)
    if not value.is_floating_point():
        raise InvalidTypeError(f"`{name}` must be a floating point tensor, got {value.dtype}.")


def check_samples(confidences: Tensor, correct: Tensor) -> None:
    """Raise unless these are float and bool columns of one length; values are not checked."""
    check_float_tensor("confidences", confidences)
    check_tensor("correct", correct)
    if correct.dtype is not torch.bool:
        raise InvalidTypeError(f"`correct` must be a bool tensor, got {correct.dtype}.")
    if confidences.ndim != 1 or confidences.shape != correct.shape:
        got = f"{tuple(confidences.shape)} and {tuple(correct.shape)}"
        raise InvalidValueError(f"`confidences` and `correct` must both have shape (n,), got {got}.")


def is_integer(value: object) -> bool:
    """Whether ``value`` is an integer: numpy's are, True and False are not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_integer(name: str, value: int, least: int) -> None:
    """Raise unless ``value`` is an integer >= ``least``."""
    if not is_integer(value) or value < least:
        kind = InvalidValueError if is_integer(value) else InvalidTypeError
        raise kind(f"`{name}` must be an integer >= {least}, got {value if is_integer(value) else repr(value)}.")


def check_flag(name: str, value: bool) -> None:
    """Raise unless ``value`` is True or False."""
    if not isinstance(value, bool):
        raise InvalidTypeError(f"`{name}` must be True or False, got {value!r}.")


def check_ignore_index(ignore_index: int | None) -> None:
    """Raise unless ``ignore_index`` is None or an integer, of any sign."""
    if ignore_index is not None and not is_integer(ignore_index):
        raise InvalidTypeError(f"`ignore_index` must be None or an integer, got {ignore_index!r}.")


def check_number(name: str, value: float, rule: str, *, holds: Callable[[float], bool]) -> None:
    """Raise unless ``value`` is a number that satisfies ``holds``; ``rule`` describes the condition."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise InvalidTypeError(f"`{name}` must be {rule}, got {value!r}.")
    if not holds(float(value)):
        raise InvalidValueError(f"`{name}` must be {rule}, got {value}.")


# Each is called with the argument's name and value.
check_share = partial(check_number, rule="in [0, 1]", holds=lambda x: 0.0 <= x <= 1.0)
check_inside = partial(check_number, rule="in (0, 1)", holds=lambda x: 0.0 < x < 1.0)
check_positive = partial(check_number, rule="a number > 0", holds=lambda x: 0.0 < x < math.inf)
check_not_negative = partial(check_number, rule=">= 0", holds=lambda x: 0.0 <= x < math.inf)
check_num_bins = partial(check_integer, "num_bins", least=1)


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise unless ``value`` is one of ``choices``."""
    if value not in choices:
        raise InvalidValueError(f"`{name}` must be one of {', '.join(map(repr, choices))}, got {value!r}.")


def check_resampling(num_resamples: int, level: float, seed: int) -> None:
    """Raise unless ``num_resamples`` is an integer >= 1, ``level`` is in (0, 1) and ``seed`` an integer >= 0."""
    check_integer("num_resamples", num_resamples, 1)
    check_inside("level", level)
    check_integer("seed", seed, 0)


def check_threshold(threshold: float | None) -> None:
    """Raise unless ``threshold`` is None or in [0, 1)."""
    if threshold is not None:
        check_number("threshold", threshold, "None or in [0, 1)", holds=lambda x: 0.0 <= x < 1.0)
