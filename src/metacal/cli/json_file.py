"""Figures written as JSON, for scripts."""

import json
from pathlib import Path
from typing import Any

from metacal.errors import InvalidValueError


def write_figures(path: Path, figures: Any) -> None:
    """Write what ``--json FILE`` asks for."""
    try:
        path.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise InvalidValueError(
            f"`--json` must name a file that can be written, got {path}: {error.strerror}."
        ) from None
