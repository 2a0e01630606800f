"""JSON as tables: records and arrays, JSON lines, logs of language models and output of text-classification pipelines.

A format is recognised by its structure. Sampled answers give the share of the most frequent one.
"""

import gzip
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from metacal.errors import InvalidFileError
from metacal.evaluation.columns import MORE_TARGET_WORDS, TARGET_WORDS
from metacal.evaluation.language_model_logs import (
    Columns,
    read_inspect,
    read_inspect_archive,
    read_lm_eval,
    spelled,
)
from metacal.evaluation.tables import ArrayTable, BadRow, Column, Strings, Table, first_line, named_arrays

SAMPLED_WORDS = ("sampled_answers", "sampled_responses", "generated_answers", "generations")
SAMPLE_WORDS = ("answers", "samples", "responses", "completions", *SAMPLED_WORDS)


def open_json(path: Path, target: str | None = None, file_format: str = "auto") -> Table:
    """Open a list of records, JSON lines, an object of arrays, or a log; ``.eval`` is an Inspect archive.

    Lines that are plain records are read in batches; all else is kept in memory.
    """
    suffix = path.suffix.lower()
    if suffix == ".eval":
        return _convert(path, read_inspect_archive(path), "inspect")
    if suffix != ".json":
        return _open_lines(path, target, file_format)
    try:
        value = json.loads(path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError:
        raise
    except (ValueError, RecursionError) as error:
        if str(error).startswith("Extra data: line 2 column 1 "):
            return _open_lines(path, target, file_format)
        raise InvalidFileError(f"{path}: is not JSON ({first_line(error)}); write it again, or as .jsonl.") from None
    if isinstance(value, dict):
        if "eval" in value and (isinstance(value.get("samples"), list) or "status" in value):
            return _convert(path, value.get("samples") or [], "inspect")
        if isinstance(value.get("results"), dict) and ("configs" in value or "config" in value):
            raise InvalidFileError(f"{path}: is a summary of lm-eval; run it with --log_samples, name samples_*.jsonl.")
        lists = {key: each for key, each in _from_pandas(value).items() if isinstance(each, list)}
        if len(lists) != 1 or not all(isinstance(row, dict) for row in next(iter(lists.values()))):
            return _arrays(path, lists)
        value = next(iter(lists.values()))
    if not isinstance(value, list):
        raise InvalidFileError(f"{path}: must hold a list of records or an object of arrays; write it as either.")
    if file_format == "auto":
        file_format = _recognise(value[0]) if value else "table"
    return _convert(path, value, file_format, target)


def _open_lines(path: Path, target: str | None, file_format: str) -> Table:
    first = next(_lines(path), None)
    name = _recognise(first) if file_format == "auto" else file_format
    if first is None or name == "table":
        return JSONLinesTable(path)
    return _convert(path, list(_lines(path)), name, target)


def _from_pandas(value: dict[str, Any]) -> dict[str, Any]:
    """Arrays by name from what ``DataFrame.to_json`` writes: by column and row, or (``orient="split"``) apart."""
    if value.keys() == {"columns", "index", "data"}:
        return dict(zip(value["columns"], map(list, zip(*value["data"], strict=False)), strict=False))
    columns = list(value.values())
    if columns and all(isinstance(each, dict) and each.keys() == columns[0].keys() for each in columns):
        return {name: list(each.values()) for name, each in value.items()}
    return value


def _recognise(row: Any) -> str:
    if isinstance(row, dict):
        if "doc_id" in row and ("filtered_resps" in row or "resps" in row):
            return "lm-eval"
        if {"id", "epoch", "scores", "output"} <= row.keys():
            return "inspect"
        if any(_is_texts(row.get(word)) for word in SAMPLE_WORDS):
            return "samples"
    return "pipeline" if _ranking(row) is not None else "table"


def _convert(path: Path, rows: list[Any], name: str, target: str | None = None) -> Table:
    """Convert rows of the format ``name`` to a table; ``target`` may name a file with a pipeline's targets."""
    if not rows:
        fix = "run the task again, without --no-log-samples" if name == "inspect" else "write the predictions again"
        raise InvalidFileError(f"{path}: holds no rows; {fix}.")
    targets = _read_targets(path, target) if name == "pipeline" else None
    try:
        columns, notes = FORMATS[name](rows)
        if targets is not None:
            if len(targets) != len(rows):
                raise BadRow(0, f"there are {len(rows)} rows but {len(targets)} targets; give one a row")
            columns["target"] = targets
        table = ArrayTable(path, {key: _column(key, values) for key, values in columns.items()}, notes)
    except BadRow as bad:
        raise InvalidFileError(f"{path}: row {bad.row + 1}: {bad.problem}.") from None
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise InvalidFileError(f"{path}: is not {name} ({first_line(error)}); name another --format.") from None
    table.target = None if targets is None else "target"
    return table


def _read_targets(path: Path, target: str | None) -> list[Any] | None:
    """Read targets from a separate file (NPY, JSON list, or one per line); None if ``target`` is no file."""
    for file in () if target is None else (Path(target), path.parent / target):
        if file.is_file():
            try:
                if file.suffix.lower() == ".npy":
                    return list(np.load(file, allow_pickle=False).tolist())
                text = file.read_text(encoding="utf-8-sig")
                return list(json.loads(text)) if file.suffix.lower() == ".json" else text.splitlines()
            except (ValueError, TypeError, EOFError, RecursionError) as error:
                problem = f"holds no list of targets ({first_line(error)}); write one a row"
                raise InvalidFileError(f"{file}: {problem}.") from None
    return None


def _arrays(path: Path, lists: Columns) -> Table:
    names = lists.pop("class_names", None)
    if not lists:
        raise InvalidFileError(f"{path}: holds no arrays; write a list of records, or an object of arrays.")
    try:
        return named_arrays(path, {key: _column(key, values) for key, values in lists.items()}, names)
    except BadRow as bad:
        raise InvalidFileError(f"{path}: row {bad.row + 1}: {bad.problem}.") from None


def _lines(path: Path) -> Iterator[Any]:
    """Yield parsed lines, skipping blank ones."""
    row, is_zipped = 0, path.suffix.lower() == ".gz"
    with gzip.open(path, "rt", encoding="utf-8-sig") if is_zipped else path.open(encoding="utf-8-sig") as file:
        for line in file:
            if line.strip():
                row += 1
                try:
                    yield json.loads(line)
                except (ValueError, RecursionError) as error:
                    problem = f"row {row} is not JSON ({first_line(error)}); write one object a line"
                    raise InvalidFileError(f"{path}: {problem}.") from None


class JSONLinesTable(Table):
    """Parses rows one by one, without inferring types from the first ones; every message names its row."""

    def __init__(self, path: Path) -> None:
        self._path = path
        first = next(self.records(), None)
        if first is None:
            raise InvalidFileError(f"{path}: holds no rows; write the predictions again.")
        self.names = list(first)

    def batches(self, columns: Sequence[str], rows: int, text: str | None = None) -> Iterator[dict[str, Column]]:
        """Yield columns of batches of parsed lines."""
        records = self.records()
        while block := list(itertools.islice(records, rows)):
            yield {name: _column(name, [record.get(name) for record in block]) for name in columns}

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield objects with the fields of nested objects flattened."""
        for row, record in enumerate(_lines(self._path), start=1):
            if not isinstance(record, dict):
                raise InvalidFileError(f"{self._path}: row {row} is not a JSON object; write one object a line.")
            yield _lift_fields(record)


def _lift_fields(record: dict[str, Any]) -> dict[str, Any]:
    """Flatten nested objects: ``{"probs": {"cat": 1}}`` -> ``{"probs.cat": 1}``."""
    flat = {}
    for name, value in record.items():
        inner = {f"{name}.{field}": each for field, each in value.items()} if isinstance(value, dict) else {name: value}
        flat.update(inner)
    return flat


def _column(name: str, values: list[Any]) -> Column:
    """Return parsed values as a column; BadRow names a value that does not fit the others."""
    if any(isinstance(value, str) for value in values):
        odd = next((row for row, value in enumerate(values) if not isinstance(value, str | None)), None)
        if odd is not None:
            raise BadRow(odd, f"`{name}` is {json.dumps(values[odd])[:40]} where others are text; use one kind")
        distinct = sorted({value for value in values if value is not None})
        codes = {value: code for code, value in enumerate(distinct)}
        return Strings(np.array([codes.get(value, -1) for value in values], dtype=np.int64), tuple(distinct))
    if all(isinstance(value, bool) for value in values):
        return np.array(values)
    length = next((len(value) for value in values if isinstance(value, list)), None)
    for row, value in enumerate(values if length is not None else ()):
        if not isinstance(value, list) or len(value) != length:
            found = f"{len(value)} values" if isinstance(value, list) else "no list"
            raise BadRow(row, f"`{name}` has {found}, others have {length}; give every row one value a class")
    try:
        return np.array(values, dtype=np.float64)  # None becomes NaN, which is refused later with its row
    except (TypeError, ValueError, OverflowError):
        shapes = [_shape(value) for value in values]
        row = next((row for row, shape in enumerate(shapes) if shape is None or shape != shapes[0]), 0)
        raise BadRow(row, f"`{name}` is {json.dumps(values[row])[:40]}, not a number; fix or drop the row") from None


def _shape(value: Any) -> tuple[int, ...] | None:
    try:
        return np.array(value, dtype=np.float64).shape
    except (TypeError, ValueError, OverflowError):
        return None


def _records(rows: list[Any]) -> tuple[Columns, list[str]]:
    odd = next((number for number, row in enumerate(rows) if not isinstance(row, dict)), None)
    if odd is not None:
        raise BadRow(odd, "is not a JSON object; write one object a row")
    flat = [_lift_fields(row) for row in rows]
    return {name: [row.get(name) for row in flat] for name in flat[0]}, []


def _samples(rows: list[Any]) -> tuple[Columns, list[str]]:
    word = next((word for word in SAMPLE_WORDS if word in rows[0]), SAMPLE_WORDS[0])
    if not _is_texts(rows[0].get(word)):
        raise ValueError(f"no list of answers under {', '.join(SAMPLE_WORDS)}")
    columns = {name: each for name, each in _records(rows)[0].items() if name != word}
    plain = {name: each for name, each in columns.items() if not any(isinstance(v, list | dict) for v in each)}
    most = []
    for number, row in enumerate(rows):
        if not _is_texts(row.get(word)):
            raise BadRow(number, f"`{word}` is not a list of answers; fix or drop the row")
        most.append(Counter(map(spelled, row[word])).most_common(1)[0])
    shares = [count / len(row[word]) for (_, count), row in zip(most, rows, strict=True)]
    found: Columns = {"prediction": [answer for answer, _ in most], "confidence": shares}
    return plain | found, [f"share of the most frequent of {word}"]


def _pipeline(rows: list[Any]) -> tuple[Columns, list[str]]:
    ranked = []
    for number, row in enumerate(rows):
        found = _ranking(row)
        if not found:
            raise BadRow(number, "has no list of labels with scores; fix or drop the row")
        ranked.append({str(each["label"]): float(each["score"]) for each in found})
    words = (*TARGET_WORDS, *MORE_TARGET_WORDS)
    is_bare = not isinstance(rows[0], dict) or rows[0].keys() == {"label", "score"}
    names = [] if is_bare else [name for name in rows[0] if name.lower() in words or name == "id"]
    columns: Columns = {name: [row.get(name) for row in rows] for name in names}
    labels = list(ranked[0])
    is_whole = all(row.keys() == set(labels) and abs(sum(row.values()) - 1.0) < 1e-3 for row in ranked)
    if len(labels) > 1 and is_whole:
        scores = {f"probs.{label}": [row[label] for row in ranked] for label in sorted(labels)}
        return scores | columns, ["pipeline output: scores of all labels"]
    best = [max(row, key=row.__getitem__) for row in ranked]
    top: Columns = {"confidence": [row[label] for row, label in zip(ranked, best, strict=True)], "prediction": best}
    return top | columns, ["pipeline output: scores of the top labels alone"]


def _ranking(row: Any) -> list[Any] | None:
    """Return labels with scores: the row itself, one of its fields, or a row with one label and score."""
    if isinstance(row, dict) and row.keys() == {"label", "score"} and isinstance(row["label"], str):
        return [row]
    lists = [value for value in (row.values() if isinstance(row, dict) else [row]) if isinstance(value, list) and value]
    return next(
        (each for each in lists if all(isinstance(x, dict) and {"label", "score"} <= x.keys() for x in each)), None
    )


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, str) for each in value)


FORMATS: dict[str, Callable[[list[Any]], tuple[Columns, list[str]]]] = {
    "table": _records,
    "lm-eval": read_lm_eval,
    "inspect": read_inspect,
    "pipeline": _pipeline,
    "samples": _samples,
}
