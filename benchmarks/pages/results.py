"""Figures and tables by where they stand in ``results``. Whatever is not there is an error, never a blank."""

import csv
import json
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Step = str | int | dict[str, Any]
Place = str | list[Any]
"""A file, or a file and the first steps of the path into it."""
TABLE = re.compile(r"(?:^\|.*\n?)+", re.M)


class MissingFigureError(LookupError):
    """A file, key, row or column that a template asks for and that is not there."""


class Results:
    """The files below a folder, each read once.

    A path into a file is a list of steps: a key of a mapping; the number of an item, of a list or of a cell such as
    ``"10.68, 7.17, 0.597"``; or a mapping that picks the rows of a table with these values. A CSV file is a list of
    rows, a Markdown file a list of tables. A column's name that is there again has a number, ``"lost"``, ``"lost 2"``.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    @cached_property
    def _files(self) -> dict[str, Any]:
        return {}

    def read(self, file: str) -> Any:
        """The content of a JSON, CSV or Markdown file."""
        if file not in self._files:
            path = self.root / file
            if not path.is_file():
                raise MissingFigureError(f"{path} is not there.")
            text = path.read_text(encoding="utf-8")
            self._files[file] = READERS[path.suffix](text)
        return self._files[file]

    def value(self, place: Place, *steps: Step) -> Any:
        """What stands at the end of a path; every selection of rows picks exactly one."""
        found = self.values(place, *steps)
        if len(found) != 1:
            raise MissingFigureError(f"{place}: {list(steps)} is at {len(found)} places; exactly one is needed.")
        return found[0]

    def values(self, place: Place, *steps: Step) -> list[Any]:
        """The same, of all rows that are selected; at least one."""
        file, *before = [place] if isinstance(place, str) else place
        found = [self.read(file)]
        for step in (*before, *steps):
            found = [inner for value in found for inner in _take(value, step, file)]
        if not found:
            raise MissingFigureError(f"{file} has nothing at {[*before, *steps]}.")
        return found

    def number(self, place: Place, *steps: Step) -> float:
        """A value as a number, to compute with."""
        return _number(self.value(place, *steps), place)

    def figure(self, place: Place, *steps: Step, digits: int = 2, percent: bool = False) -> str:
        """A number as a page shows it; a fraction in percent on demand."""
        return _shown(self.number(place, *steps), digits, percent)

    def span(self, place: Place, *steps: Step, digits: int = 2, percent: bool = False) -> str:
        """The least and the greatest of several, ``1.35 to 1.36``; a single one if they are shown alike."""
        found = [_number(value, place) for value in self.values(place, *steps)]
        low, high = (_shown(value, digits, percent) for value in (min(found), max(found)))
        return low if low == high else f"{low} to {high}"

    def beyond_noise(self, place: Place, name: str, column: str) -> dict[str, list[str]]:
        """Names of the rows whose difference ``-0.08 ± 0.04`` in a column is below 0 for sure, and of those above."""
        found: dict[str, list[str]] = {"rows": [], "lower": [], "higher": []}
        for row in self.values(place, {}):
            mean, _, half = str(_take(row, column, str(place))[0]).partition(" ± ")
            is_clear = abs(_number(mean, place)) > _number(half, place)
            found["rows"].append(row[name])
            if is_clear:
                found["higher" if _number(mean, place) > 0.0 else "lower"].append(row[name])
        return found

    def items(self, file: str) -> str:
        """The list items of a Markdown file, as they are."""
        self.read(file)
        found = [line for line in (self.root / file).read_text(encoding="utf-8").splitlines() if line.startswith("- ")]
        if not found:
            raise MissingFigureError(f"{file} has no list.")
        return "\n".join(found)

    def table(self, file: str, number: int = 0) -> str:
        """A table of a Markdown file, as it is; the first unless its number is given."""
        path = self.root / file
        tables = TABLE.findall(path.read_text(encoding="utf-8")) if path.is_file() else []
        if number >= len(tables):
            raise MissingFigureError(f"{path} has {len(tables)} tables, asked for number {number}.")
        return str(tables[number]).rstrip("\n")


def markdown(rows: Sequence[Row], digits: int = 4) -> str:
    """A table of rows that have the same keys."""
    head = list(rows[0])
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(_cell(row[name], digits) for name in head)} |" for row in rows)])


def _rows(head: list[str], *lines: list[str]) -> list[Row]:
    seen = [head[: i + 1].count(name) for i, name in enumerate(head)]
    names = [name if count == 1 else f"{name} {count}" for name, count in zip(head, seen, strict=True)]
    return [dict(zip(names, line, strict=True)) for line in lines]


def _csv_rows(text: str) -> list[Row]:
    return _rows(*csv.reader(text.splitlines()))


def _markdown_tables(text: str) -> list[list[Row]]:
    blocks = [[_cells(line) for line in block.splitlines()] for block in TABLE.findall(text)]
    return [_rows(head, *body) for head, _, *body in blocks]


def _cells(line: str) -> list[str]:
    return [cell.strip().removeprefix("**").removesuffix("**") for cell in line.strip().strip("|").split("|")]


READERS: dict[str, Callable[[str], Any]] = {".json": json.loads, ".csv": _csv_rows, ".md": _markdown_tables}


def _take(value: Any, step: Step, file: str) -> list[Any]:
    if isinstance(step, dict) and isinstance(value, list):
        return [row for row in value if all(_is_same(row, name, wanted, file) for name, wanted in step.items())]
    if isinstance(step, int) and isinstance(value, str):
        value = value.split(", ")
    try:
        return [value[step]]
    except (LookupError, TypeError):
        raise MissingFigureError(f"{file} has no {step!r} in {str(value)[:80]}.") from None


def _is_same(row: Row, name: str, wanted: Any, file: str) -> bool:
    if name not in row:
        raise MissingFigureError(f"{file} has no column {name!r}; its columns are {list(row)}.")
    return str(row[name]) == str(wanted)


def _number(value: Any, place: Place) -> float:
    text = str(value).replace(",", "").removesuffix("%")
    try:
        return float(text)
    except ValueError:
        raise MissingFigureError(f"{place}: {value!r} is not a number.") from None


def _shown(value: float, digits: int, percent: bool) -> str:
    return f"{100.0 * value if percent else value:,.{digits}f}"


def _cell(value: Any, digits: int) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"
    return "" if value is None else str(value)
