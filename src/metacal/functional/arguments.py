"""Checks of plain arguments: every message names the argument, its domain and the value received."""

from metacal.errors import InvalidTypeError, InvalidValueError


def check_num_bins(num_bins: int) -> None:
    """Raise unless ``num_bins`` is an integer >= 1."""
    if not isinstance(num_bins, int) or isinstance(num_bins, bool):
        raise InvalidTypeError(f"`num_bins` must be an integer >= 1, got {num_bins!r}.")
    if num_bins < 1:
        raise InvalidValueError(f"`num_bins` must be an integer >= 1, got {num_bins}.")


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise unless ``value`` is one of ``choices``."""
    if value not in choices:
        raise InvalidValueError(f"`{name}` must be one of {', '.join(map(repr, choices))}, got {value!r}.")


def check_resampling(num_resamples: int, level: float) -> None:
    """Raise unless ``num_resamples`` is an integer >= 1 and ``level`` is in (0, 1)."""
    if not isinstance(num_resamples, int) or isinstance(num_resamples, bool):
        raise InvalidTypeError(f"`num_resamples` must be an integer >= 1, got {num_resamples!r}.")
    if num_resamples < 1:
        raise InvalidValueError(f"`num_resamples` must be an integer >= 1, got {num_resamples}.")
    if not 0.0 < level < 1.0:
        raise InvalidValueError(f"`level` must be in (0, 1), got {level}.")


def check_threshold(threshold: float | None) -> None:
    """Raise unless ``threshold`` is None or in [0, 1)."""
    if threshold is not None and not 0.0 <= threshold < 1.0:
        raise InvalidValueError(f"`threshold` must be None or in [0, 1), got {threshold}.")


def check_positive(name: str, value: float) -> None:
    """Raise unless ``value`` is a number > 0."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise InvalidTypeError(f"`{name}` must be a number > 0, got {value!r}.")
    if not value > 0.0:
        raise InvalidValueError(f"`{name}` must be a number > 0, got {value}.")
