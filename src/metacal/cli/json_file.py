"""Figures to a JSON file, or one line that says why not."""

import json
from pathlib import Path

from metacal.errors import InvalidValueError


def write_json(path: Path, figures: object) -> None:
    """Write strict JSON (no NaN); raise InvalidValueError if the file cannot be written."""
    try:
        path.write_text(json.dumps(figures, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise InvalidValueError(
            f"`--json` must name a file that can be written, got {path}: {error.strerror}."
        ) from None
