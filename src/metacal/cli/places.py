"""Where a command will write: looked at before the work, not after it."""

from pathlib import Path

from metacal.errors import InvalidValueError


def check_places(**places: Path | None) -> None:
    """Raise unless every file can be put where it is to go; an option that was not given is None.

    Args:
        places: paths by the name of their option, without its dashes.

    Raises:
        InvalidValueError: the folder is not there, or the path is a folder; the message names the option.
    """
    for option, path in places.items():
        if path is None:
            continue
        if path.is_dir():
            raise InvalidValueError(f"`--{option}` must name a file that can be written, got the folder {path}.")
        if not path.parent.is_dir():
            raise InvalidValueError(f"`--{option}` must name a file in a folder that exists, got {path}.")
