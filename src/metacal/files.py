"""Atomic file writes: a file is written under a temporary name, synced and renamed."""

import csv
import errno
import io
import json
import math
import os
import shutil
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from metacal.errors import StorageError

IRREPLACEABLE = (errno.EACCES, errno.EPERM, errno.EBUSY)
"""What says that a folder must not be changed, or that a file is mounted by itself."""


def write_whole(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Let ``write`` fill a file that atomically replaces ``path``; it is on disk before this returns.

    Of a link, what it points to is replaced; permissions stay. What cannot be replaced, a pipe, a terminal or a file in
    a folder that must not be changed, is written to. A `StorageError` says whether what was there is kept.
    """
    kept = " What was there is kept."
    place = Path(os.path.realpath(path))
    temporary = place.with_name(f".{place.name}.{uuid4().hex}")
    try:
        if path.exists() and not path.is_file():
            kept = ""
            _write_in_place(path, write)
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        fill = write
        try:
            with temporary.open("xb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            fill = partial(_copy, temporary)
            if place.exists():
                os.chmod(temporary, stat.S_IMODE(place.stat().st_mode))
            os.replace(temporary, place)
        except OSError as error:
            if error.errno not in IRREPLACEABLE or not place.exists():
                raise
            kept = ""
            _write_in_place(place, fill)
        _sync_folder(place.parent)
    except OSError as error:
        raise StorageError(f"{path} could not be written: {error.strerror or error}.{kept}") from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_leftovers(folder: Path) -> None:
    """Remove temporary files of killed processes from a folder that nobody writes to."""
    for file in folder.glob(f".*.{'[0-9a-f]' * 32}"):
        file.unlink(missing_ok=True)


def _copy(path: Path, file: IO[bytes]) -> None:
    with path.open("rb") as written:
        shutil.copyfileobj(written, file)


def _write_in_place(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    with path.open("wb") as stream:
        write(stream)


def write_text(path: Path, text: str) -> None:
    """Replace a text file; characters that UTF-8 cannot encode become ``?``."""
    write_whole(path, lambda file: file.write(text.encode("utf-8", "replace")))


def write_json(path: Path, value: Any) -> None:
    """Replace a JSON file; numbers that are not finite become null."""
    write_text(path, json_text(value))


def json_text(value: Any) -> str:
    """Return the text that `write_json` writes."""
    return json.dumps(_as_json(value), indent=2, allow_nan=False) + "\n"


def _as_json(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_json(item) for item in value]
    return value


def csv_text(rows: Sequence[Mapping[str, object]]) -> str:
    """Return rows as CSV with a header; a key that a row lacks is an empty field."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_figures(value: Any) -> Any:
    """Turn the nulls of a JSON file of numbers back into NaN."""
    if value is None:
        return math.nan
    if isinstance(value, dict):
        return {key: as_figures(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_figures(item) for item in value]
    return value


def read_bytes(path: Path) -> bytes:
    """Read a file; raise `StorageError` if it is missing or unreadable."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise StorageError(f"{path} could not be read: {error.strerror}.") from None


def read_json(path: Path) -> Any:
    """Read a JSON file; NaN and Infinity, which earlier versions wrote, are accepted."""
    try:
        return json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise StorageError(f"{path} must hold JSON, got something else: {error}.") from None
