"""Which tables, rows, methods and seeds a command is about; what is unknown is named with its nearest neighbours."""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import replace

from metacal.errors import InvalidValueError
from metacal.experiments import GROUPS, TABLES
from metacal.runs.paper import Column, PaperTable


def find_table(name: str) -> PaperTable:
    """A table by name (``main-ece``) or number (``table-1``)."""
    for table in TABLES.values():
        if name in (table.name, f"table-{table.number}", table.label):
            return table
    known = [*TABLES, *(f"table-{table.number}" for table in TABLES.values())]
    raise InvalidValueError(
        f"`NAME` must be a table that `metacal ls` lists, got {name!r}; nearest: {_near(name, known)}."
    )


def find_tables(name: str) -> tuple[PaperTable, ...]:
    """The tables of a name: one, or those that are made together (``cross-domain``)."""
    return GROUPS[name] if name in GROUPS else (find_table(name),)


def narrowed(
    table: PaperTable, rows: Sequence[str] = (), methods: Sequence[str] = (), seeds: Sequence[int] = ()
) -> PaperTable:
    """The part of a table that was asked for; nothing asked is all of it.

    Args:
        table: the whole.
        rows: parts of row names, such as ``cifar-10`` or ``cifar-10/resnet18``.
        methods: column labels or method names, in any case.
        seeds: which.
    """
    picked = table.rows
    if rows:
        picked = tuple(row for row in table.rows if any(wanted.lower() in row.name for wanted in rows))
        _check_known(
            "--rows",
            [row for row in rows if not any(row.lower() in each.name for each in table.rows)],
            [row.name for row in table.rows],
        )
    columns = table.columns
    if methods:
        columns = tuple(c for c in table.columns if any(m.lower() in _names(c) for m in methods))
        known = [name for column in table.columns for name in _names(column)]
        _check_known("--methods", [name for name in methods if name.lower() not in known], known)
    return replace(table, rows=picked, columns=columns, seeds=tuple(seeds) or table.seeds)


def _names(column: Column) -> list[str]:
    return [column.label.lower(), str((column.settings or {}).get("method", "")).lower()]


def _check_known(option: str, unknown: list[str], known: list[str]) -> None:
    if unknown:
        near = "; ".join(f"{name!r}, nearest: {_near(name, known)}" for name in unknown)
        raise InvalidValueError(f"`{option}` must name what the table has, got {near}.")


def _near(name: str, known: Iterable[str]) -> str:
    names = [each for each in dict.fromkeys(known) if each]
    return ", ".join(difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.3) or names)
