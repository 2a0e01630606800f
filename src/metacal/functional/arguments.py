"""Checks of plain arguments: every message names the argument, its domain and the value received."""

import math
from collections.abc import Callable
from numbers import Integral, Real

from metacal.errors import InvalidTypeError, InvalidValueError


def check_integer(name: str, value: int, least: int) -> None:
    """Raise unless ``value`` is an integer >= ``least``; numpy's integers are integers."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise InvalidTypeError(f"`{name}` must be an integer >= {least}, got {value!r}.")
    if value < least:
        raise InvalidValueError(f"`{name}` must be an integer >= {least}, got {value}.")


def check_num_bins(num_bins: int) -> None:
    """Raise unless ``num_bins`` is an integer >= 1."""
    check_integer("num_bins", num_bins, 1)


def check_number(name: str, value: float, rule: str, *, holds: Callable[[float], bool]) -> None:
    """Raise unless ``value`` is a number for which ``holds`` says yes; ``rule`` puts that into words."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise InvalidTypeError(f"`{name}` must be {rule}, got {value!r}.")
    if not holds(float(value)):
        raise InvalidValueError(f"`{name}` must be {rule}, got {value}.")


def check_share(name: str, value: float) -> None:
    """Raise unless ``value`` is in [0, 1]."""
    check_number(name, value, "in [0, 1]", holds=lambda x: 0.0 <= x <= 1.0)


def check_inside(name: str, value: float) -> None:
    """Raise unless ``value`` is in (0, 1)."""
    check_number(name, value, "in (0, 1)", holds=lambda x: 0.0 < x < 1.0)


def check_positive(name: str, value: float) -> None:
    """Raise unless ``value`` is a finite number > 0."""
    check_number(name, value, "a number > 0", holds=lambda x: 0.0 < x < math.inf)


def check_not_negative(name: str, value: float) -> None:
    """Raise unless ``value`` is a finite number >= 0."""
    check_number(name, value, ">= 0", holds=lambda x: 0.0 <= x < math.inf)


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise unless ``value`` is one of ``choices``."""
    if value not in choices:
        raise InvalidValueError(f"`{name}` must be one of {', '.join(map(repr, choices))}, got {value!r}.")


def check_resampling(num_resamples: int, level: float) -> None:
    """Raise unless ``num_resamples`` is an integer >= 1 and ``level`` is in (0, 1)."""
    check_integer("num_resamples", num_resamples, 1)
    check_inside("level", level)


def check_threshold(threshold: float | None) -> None:
    """Raise unless ``threshold`` is None or in [0, 1)."""
    if threshold is not None:
        check_number("threshold", threshold, "None or in [0, 1)", holds=lambda x: 0.0 <= x < 1.0)
