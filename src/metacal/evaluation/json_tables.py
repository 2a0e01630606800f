"""JSON as tables: records and arrays, JSON lines, logs of language models and output of text-classification pipelines.

A format is recognised by its structure. lm-evaluation-harness and Inspect give log-probabilities of the options where a
log has them, else the confidence in one answer; sampled answers give the share of the most frequent one.
"""

import gzip
import itertools
import json
import math
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from metacal.errors import InvalidFileError
from metacal.evaluation.columns import MORE_TARGET_WORDS, TARGET_WORDS
from metacal.evaluation.tables import ArrayTable, BadRow, Column, Strings, Table, first_line, is_number, named_arrays

SAMPLE_WORDS = ("answers", "samples", "responses", "completions", "sampled_answers")
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
STATED = re.compile(r"confidence\W{1,5}(\d+(?:\.\d+)?\s*%?)", re.IGNORECASE)
Columns = dict[str, list[Any]]


def open_json(path: Path, target: str | None = None, file_format: str = "auto") -> Table:
    """Open a list of records, JSON lines, an object of arrays, or a log; ``.eval`` is an Inspect archive.

    Lines that are plain records are read in batches; all else is kept in memory.
    """
    suffix = path.suffix.lower()
    if suffix == ".eval":
        return _convert(path, _inspect_archive(path), "inspect")
    if suffix != ".json":
        first = next(_lines(path), None)
        name = _recognise(first) if file_format == "auto" else file_format
        if first is None or name == "table":
            return JSONLinesTable(path)
        return _convert(path, list(_lines(path)), name, target)
    try:
        value = json.loads(path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError:
        raise
    except (ValueError, RecursionError) as error:
        raise InvalidFileError(f"{path}: is not JSON ({first_line(error)}); write it again, or as .jsonl.") from None
    if isinstance(value, dict):
        if "eval" in value and isinstance(value.get("samples"), list):
            return _convert(path, value["samples"], "inspect")
        if isinstance(value.get("results"), dict) and ("configs" in value or "config" in value):
            raise InvalidFileError(f"{path}: is a summary of lm-eval; run it with --log_samples, name samples_*.jsonl.")
        lists = {key: each for key, each in value.items() if isinstance(each, list)}
        if len(lists) != 1 or not all(isinstance(row, dict) for row in next(iter(lists.values()))):
            return _arrays(path, lists)
        value = next(iter(lists.values()))
    if not isinstance(value, list):
        raise InvalidFileError(f"{path}: must hold a list of records or an object of arrays; write it as either.")
    if file_format == "auto":
        file_format = _recognise(value[0]) if value else "table"
    return _convert(path, value, file_format, target)


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
        raise InvalidFileError(f"{path}: holds no rows; write the predictions again.")
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


def _lm_eval(rows: list[Any]) -> tuple[Columns, list[str]]:
    options, targets = [], []
    for number, row in enumerate(rows):
        values = [_first(option) for option in row.get("filtered_resps") or row["resps"]]
        if len(values) < 2 or not all(is_number(str(value)) for value in values):
            raise BadRow(number, "has no log-likelihoods of several options; run a multiple-choice task")
        options.append([float(value) for value in values])
        target = str(_first(row["target"])).strip()
        given = row.get("arguments") or []
        pairs = list(given.values()) if isinstance(given, dict) else given
        texts = [str(pair.get("arg_1") if isinstance(pair, dict) else pair[-1]).strip() for pair in pairs]
        if texts.count(target) == 1 and not target.isdecimal():
            place = texts.index(target)
        else:
            place = int(target) if target.isdecimal() else LETTERS.find(target) if len(target) == 1 else -1
        if not 0 <= place < len(values):
            count = len(values)
            raise BadRow(number, f"target is {target[:40]!r}, not one of its {count} options; fix or drop the row")
        targets.append(place)
    return _options("lm-eval", options, targets, [str(row["doc_id"]) for row in rows])


def _options(
    name: str, options: list[list[float]], targets: list[int], identities: list[str]
) -> tuple[Columns, list[str]]:
    """Log-probabilities if all rows have the same number of options, else probabilities with 0 for missing ones."""
    least, most = min(map(len, options)), max(map(len, options))
    columns: Columns = {"logprobs": options}
    if least < most:
        columns = {"probs": []}
        for row in options:
            shares = np.exp(np.array(row) - max(row))
            columns["probs"].append([*(shares / shares.sum()).tolist(), *[0.0] * (most - len(row))])
    count = str(most) if least == most else f"{least} to {most}"
    notes = [f"{name}: log-probabilities of {count} options, normalised over them"]
    return columns | {"target": targets, "id": identities}, notes


def _inspect(rows: list[Any]) -> tuple[Columns, list[str]]:
    unscored = next((number for number, row in enumerate(rows) if not row.get("scores")), None)
    if unscored is not None:
        raise BadRow(unscored, "has no score; score the log with `inspect score`, or drop the sample")
    scores = [next(iter(row["scores"].values())) for row in rows]
    correct = [str(score["value"]).lower() in ("c", "1", "1.0", "true") for score in scores]
    identities = [str(row["id"]) for row in rows]
    if len(set(identities)) < len(rows):
        return _epochs(identities, [_spelled(str(score.get("answer", ""))) for score in scores], correct)
    tokens = [token for row in rows if (token := _option_tokens(row)) is not None]
    if len(tokens) == len(rows):
        letters = [LETTERS[: len(row.get("choices") or ())] for row in rows]
        pairs = [(each, others) for each, (_, others) in zip(letters, tokens, strict=True)]
        if all(len(each) > 1 and set(each) <= others.keys() for each, others in pairs):
            options = [[others[letter] for letter in each] for each, others in pairs]
            targets = [LETTERS.index(str(_first(row["target"])).strip()) for row in rows]
            return _options("Inspect", options, targets, identities)
        confidences: list[Any] = [math.exp(logprob) for logprob, _ in tokens]
        note = "Inspect: probability of the answer's token"
    else:
        confidences = [_stated(row, score) for row, score in zip(rows, scores, strict=True)]
        if None in confidences:
            problem = "has no log-probabilities, no stated confidence and one epoch; run with --logprobs or --epochs"
            raise BadRow(confidences.index(None), problem)
        note = "Inspect: confidence as stated"
    return {"confidence": confidences, "correct": correct, "id": identities}, [note]


def _epochs(identities: list[str], answers: list[str], correct: list[bool]) -> tuple[Columns, list[str]]:
    groups: dict[str, list[int]] = {}
    for number, identity in enumerate(identities):
        groups.setdefault(identity, []).append(number)
    columns: Columns = {"confidence": [], "correct": [], "id": list(groups)}
    for numbers in groups.values():
        answer, count = Counter(answers[number] for number in numbers).most_common(1)[0]
        columns["confidence"].append(count / len(numbers))
        columns["correct"].append(correct[next(number for number in numbers if answers[number] == answer)])
    return columns, ["Inspect: share of the most frequent answer over epochs"]


def _option_tokens(row: dict[str, Any]) -> tuple[float, dict[str, float]] | None:
    """Log-probability of the last token that is an option's letter, and those of all options beside it."""
    content = ((row["output"].get("choices") or [{}])[0].get("logprobs") or {}).get("content") or []
    for token in reversed(content):
        if token["token"].strip() in tuple(LETTERS):
            others = {each["token"].strip(): each["logprob"] for each in reversed(token.get("top_logprobs") or [])}
            return token["logprob"], others
    return None


def _stated(row: dict[str, Any], score: dict[str, Any]) -> str | None:
    metadata = score.get("metadata") or {}
    if "confidence" in metadata:
        return str(metadata["confidence"])
    choices = row["output"].get("choices") or [{}]
    text = row["output"].get("completion") or choices[0].get("message", {}).get("content") or ""
    found = STATED.findall(text) if isinstance(text, str) else []
    return found[-1] if found else None


def _inspect_archive(path: Path) -> list[Any]:
    try:
        with zipfile.ZipFile(path) as archive:
            names = sorted(name for name in archive.namelist() if re.fullmatch(r"samples/.*\.json", name))
            return [json.loads(archive.read(name)) for name in names]
    except OSError:
        raise
    except Exception as error:  # whatever zipfile raises for bytes that are no archive
        reason = first_line(error)
        raise InvalidFileError(f"{path}: is not a whole .eval log ({reason}); convert it to .json.") from None


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
        most.append(Counter(map(_spelled, row[word])).most_common(1)[0])
    shares = [count / len(row[word]) for (_, count), row in zip(most, rows, strict=True)]
    found: Columns = {"prediction": [answer for answer, _ in most], "confidence": shares}
    return plain | found, [f"share of the most frequent of {word}"]


def _spelled(answer: str) -> str:
    """Normalise an answer: without surrounding spaces, final full stop and capitals."""
    return answer.strip().removesuffix(".").lower()


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


def _first(value: Any) -> Any:
    while isinstance(value, list):
        value = value[0]
    return value


FORMATS: dict[str, Callable[[list[Any]], tuple[Columns, list[str]]]] = {
    "table": _records,
    "lm-eval": _lm_eval,
    "inspect": _inspect,
    "pipeline": _pipeline,
    "samples": _samples,
}
