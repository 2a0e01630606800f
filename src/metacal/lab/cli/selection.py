"""Which tables, figures, rows, methods and seeds a command is about; what is unknown is named with its neighbours."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from metacal.errors import InvalidValueError, nearest
from metacal.lab.paper.exhibits import Column, Exhibit
from metacal.lab.paper.experiments import EXHIBITS


def find_exhibits(name: str) -> list[Exhibit]:
    """Tables and figures by name (``main-ece``), number (``table-1``), or the beginning of several names (``main``).

    Examples:
        >>> [exhibit.name for exhibit in find_exhibits("interleaved")]
        ['interleaved-ece', 'interleaved-error']
    """
    for exhibit in EXHIBITS.values():
        if name in (exhibit.name, exhibit.tag) or name == exhibit.label != "":
            return [exhibit]
    together = [exhibit for exhibit in EXHIBITS.values() if exhibit.name.startswith(f"{name}-")]
    if together:
        return together
    known = [*EXHIBITS, *(exhibit.tag for exhibit in EXHIBITS.values())]
    raise InvalidValueError(
        f"`NAME` must be a table or figure that `metacal ls` lists, got {name!r}; nearest: {nearest(name, known)}."
    )


def in_order(exhibits: Iterable[Exhibit]) -> list[Exhibit]:
    """Tables, then figures, each in the order of the paper; what is not in it comes last."""
    return sorted(exhibits, key=lambda each: (not each.number, each.kind != "table", int(each.number or 0)))


def narrowed(
    exhibits: Sequence[Exhibit], rows: Sequence[str] = (), methods: Sequence[str] = (), seeds: Sequence[int] = ()
) -> list[Exhibit]:
    """The parts of tables and figures that were asked for; nothing asked is all of them.

    Args:
        exhibits: the wholes; those that have none of the rows or methods are left out, and each is taken once.
        rows: whole words of row names, such as ``cifar-10`` (which is not ``cifar-100``) or ``cifar-10/resnet18``.
        methods: column labels in any case, with dashes for spaces and without commas (``ce-equal-data``), what stands
            before a colon in them (``m1``), or, where no column is called so, method names.
        seeds: which.

    Raises:
        InvalidValueError: a row or method that none of them has, or nothing has all that was asked for.
    """
    whole = {exhibit.name: exhibit for exhibit in exhibits}.values()
    known_rows = [row.name for exhibit in whole for row in exhibit.rows]
    _check_known("--rows", [row for row in rows if not any(_is_in(row, name) for name in known_rows)], known_rows)
    columns_of = [column for exhibit in whole for column in exhibit.columns]
    known_methods = [name for column in columns_of for name in (*_names(column), _method(column)) if name]
    methods = [_dashed(name) for name in methods]
    _check_known("--methods", [name for name in methods if name not in known_methods], known_methods)
    parts = []
    for exhibit in whole:
        picked = tuple(row for row in exhibit.rows if not rows or any(_is_in(wanted, row.name) for wanted in rows))
        columns = _called(methods, exhibit.columns) if methods else exhibit.columns
        if (picked or not rows) and (columns or not methods):
            chosen = tuple(dict.fromkeys(seeds)) or exhibit.seeds
            parts.append(replace(exhibit, rows=picked, columns=columns, seeds=chosen))
    if not parts:
        raise InvalidValueError(
            f"`--rows` and `--methods` must leave something, got {', '.join(rows)} with {', '.join(methods)}, "
            "which no table or figure has together."
        )
    return parts


def _is_in(wanted: str, name: str) -> bool:
    """Whether a row's name has these words: ``cifar-10`` is in ``cifar-10-c/average``, and not in ``cifar-100/...``."""
    words = re.escape(wanted.lower().strip("/"))
    return re.search(rf"(?<![a-z0-9]){words}(?![a-z0-9])", name) is not None


def _called(wanted: Sequence[str], columns: Sequence[Column]) -> tuple[Column, ...]:
    """The columns that are called so, and those of a method that no column is called after."""
    labels = {name for column in columns for name in _names(column)}
    return tuple(c for c in columns if {*_names(c)} & {*wanted} or _method(c) in {*wanted} - labels)


def _names(column: Column) -> list[str]:
    label = _dashed(column.label)
    return [*dict.fromkeys((label, label.partition(":")[0]))]


def _dashed(label: str) -> str:
    return label.lower().replace(",", "").replace(" ", "-")


def _method(column: Column) -> str:
    return str((column.settings or {}).get("method", ""))


def _check_known(option: str, unknown: list[str], known: list[str]) -> None:
    if unknown:
        if not known:
            raise InvalidValueError(f"`{option}` must be left out: what was named has none, got {', '.join(unknown)}.")
        near = "; ".join(f"{name!r}, nearest: {nearest(name, known)}" for name in unknown)
        raise InvalidValueError(f"`{option}` must name what the tables and figures have, got {near}.")
