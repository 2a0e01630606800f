"""JSON of other tools as tables: logs of language models, text-classification pipelines, plain records and arrays.

A format is recognised by its structure. lm-evaluation-harness and Inspect give log-probabilities of the options where a
log has them, else the confidence in one answer; sampled answers give the share of the most frequent one.
"""

import json
import math
import re
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from metacal.errors import InvalidFileError
from metacal.evaluation.columns import MORE_TARGET_WORDS, TARGET_WORDS
from metacal.evaluation.json_lines import json_column, lift_fields
from metacal.evaluation.tables import ArrayTable, BadRow, Table, first_line, is_number

SAMPLE_WORDS = ("answers", "samples", "responses", "completions", "sampled_answers")
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
STATED = re.compile(r"confidence\W{1,5}(\d+(?:\.\d+)?\s*%?)", re.IGNORECASE)
Columns = dict[str, list[Any]]


def recognise(row: Any) -> str:
    """The format of a row, by its structure."""
    if isinstance(row, dict):
        if "doc_id" in row and ("filtered_resps" in row or "resps" in row):
            return "lm-eval"
        if {"id", "epoch", "scores", "output"} <= row.keys():
            return "inspect"
        if any(_is_texts(row.get(word)) for word in SAMPLE_WORDS):
            return "samples"
    return "pipeline" if _ranking(row) is not None else "table"


def convert_rows(path: Path, rows: list[Any], name: str, targets: list[Any] | None = None) -> Table:
    """Rows of the format ``name`` as a table.

    Raises:
        InvalidFileError: a row is not of this format.
    """
    if not rows:
        raise InvalidFileError(f"{path}: holds no rows; write the predictions again.")
    try:
        if targets is not None and len(targets) != len(rows):
            raise BadRow(0, f"there are {len(rows)} rows but {len(targets)} targets; give one a row")
        columns, notes = FORMATS[name](rows)
        if targets is not None:
            columns["target"] = targets
        table = ArrayTable(path, {key: json_column(key, values) for key, values in columns.items()})
    except BadRow as bad:
        raise InvalidFileError(f"{path}: row {bad.row + 1}: {bad.problem}.") from None
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise InvalidFileError(f"{path}: is not {name} ({first_line(error)}); name another --format.") from None
    table.notes, table.is_records = notes, True
    return table


def open_json(path: Path, target: str | None = None, name: str = "auto") -> Table:
    """A JSON file: a list of records, an object of arrays, or a log; ``.eval`` is Inspect's archive of such."""
    if path.suffix.lower() == ".eval":
        return convert_rows(path, _inspect_archive(path), "inspect")
    try:
        value = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        if isinstance(error, UnicodeDecodeError):
            raise
        raise InvalidFileError(f"{path}: is not JSON ({first_line(error)}); write it again, or as .jsonl.") from None
    if isinstance(value, dict):
        if "eval" in value and isinstance(value.get("samples"), list):
            return convert_rows(path, value["samples"], "inspect")
        if isinstance(value.get("results"), dict) and ("configs" in value or "config" in value):
            raise InvalidFileError(f"{path}: is a summary of lm-eval; run it with --log_samples, name samples_*.jsonl.")
        lists = {key: each for key, each in value.items() if isinstance(each, list)}
        if len(lists) == 1 and all(isinstance(row, dict) for row in next(iter(lists.values()))):
            value = next(iter(lists.values()))
        else:
            return _arrays(path, lists)
    if not isinstance(value, list):
        raise InvalidFileError(f"{path}: must hold a list of records or an object of arrays; write it as either.")
    found = name if name != "auto" else recognise(value[0]) if value else "table"
    return convert_rows(path, value, found, read_targets(path, target) if found == "pipeline" else None)


def read_targets(path: Path, target: str | None) -> list[Any] | None:
    """Targets in a file of their own (NPY, a JSON list, or a line each); None if ``target`` names none."""
    for file in () if target is None else (Path(target), path.parent / target):
        if file.is_file():
            try:
                if file.suffix.lower() == ".npy":
                    return list(np.load(file, allow_pickle=False).tolist())
                text = file.read_text(encoding="utf-8-sig")
                return list(json.loads(text)) if file.suffix.lower() == ".json" else text.splitlines()
            except (ValueError, TypeError, EOFError, RecursionError) as error:
                raise InvalidFileError(
                    f"{file}: holds no list of targets ({first_line(error)}); write one a row."
                ) from None
    return None


def _arrays(path: Path, lists: Columns) -> Table:
    names = lists.pop("class_names", None)
    try:
        columns = {key: json_column(key, values) for key, values in lists.items()}
    except BadRow as bad:
        raise InvalidFileError(f"{path}: row {bad.row + 1}: {bad.problem}.") from None
    if not columns:
        raise InvalidFileError(f"{path}: holds no arrays; write a list of records, or an object of arrays.")
    return ArrayTable(path, columns, None if names is None else [str(name) for name in names])


def _records(rows: list[Any]) -> tuple[Columns, list[str]]:
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise BadRow(number, "is not a JSON object; write one object a row")
    flat = [lift_fields(row) for row in rows]
    return {name: [row.get(name) for row in flat] for name in flat[0]}, []


def _lm_eval(rows: list[Any]) -> tuple[Columns, list[str]]:
    options, targets = [], []
    for number, row in enumerate(rows):
        values = [_first(option) for option in row.get("filtered_resps") or row["resps"]]
        if len(values) < 2 or not all(is_number(str(value)) for value in values):
            raise BadRow(number, "has no log-likelihoods of several options; run a multiple-choice task")
        options.append([float(value) for value in values])
        targets.append(_option_number(row, len(values), number))
    return _options(options, targets) | {"id": [str(row["doc_id"]) for row in rows]}, _said(options, "lm-eval")


def _option_number(row: dict[str, Any], count: int, number: int) -> int:
    target = str(_first(row["target"])).strip()
    given = row.get("arguments") or []
    pairs = list(given.values()) if isinstance(given, dict) else given
    texts = [str(pair.get("arg_1") if isinstance(pair, dict) else pair[-1]).strip() for pair in pairs]
    if texts.count(target) == 1 and not target.isdecimal():
        return texts.index(target)
    place = int(target) if target.isdecimal() else LETTERS.find(target) if len(target) == 1 else -1
    if not 0 <= place < count:
        raise BadRow(number, f"target is {target[:40]!r}, not one of its {count} options; fix or drop the row")
    return place


def _options(options: list[list[float]], targets: list[int]) -> Columns:
    """Log-probabilities where all rows have as many options, else probabilities with 0 for those that are missing."""
    most = max(map(len, options))
    if min(map(len, options)) == most:
        return {"logprobs": options, "target": targets}
    probs = []
    for row in options:
        shares = np.exp(np.array(row) - max(row))
        probs.append([*(shares / shares.sum()).tolist(), *[0.0] * (most - len(row))])
    return {"probs": probs, "target": targets}


def _said(options: list[list[float]], name: str) -> list[str]:
    least, most = min(map(len, options)), max(map(len, options))
    count = str(most) if least == most else f"{least} to {most}"
    return [f"{name}: log-probabilities of {count} options, normalised over them"]


def _inspect(rows: list[Any]) -> tuple[Columns, list[str]]:
    scores = []
    for number, row in enumerate(rows):
        if not row.get("scores"):
            raise BadRow(number, "has no score; score the log with `inspect score`, or drop the sample")
        scores.append(next(iter(row["scores"].values())))
    correct = [str(score["value"]).lower() in ("c", "1", "1.0", "true") for score in scores]
    identities = [str(row["id"]) for row in rows]
    if len(set(identities)) < len(rows):
        return _epochs(identities, [_spelled(str(score.get("answer", ""))) for score in scores], correct)
    chosen = [_option_tokens(row) for row in rows]
    if all(token is not None for token in chosen):
        tokens = [token for token in chosen if token is not None]
        letters = [LETTERS[: len(row.get("choices") or ())] for row in rows]
        is_whole = all(
            len(each) > 1 and set(each) <= token[1].keys() for each, token in zip(letters, tokens, strict=True)
        )
        if is_whole:
            options = [[token[1][letter] for letter in each] for each, token in zip(letters, tokens, strict=True)]
            targets = [LETTERS.index(str(_first(row["target"])).strip()) for row in rows]
            return _options(options, targets) | {"id": identities}, _said(options, "Inspect")
        confidences = [math.exp(token[0]) for token in tokens]
        return _top(confidences, correct, identities), ["Inspect: probability of the answer's token"]
    stated = [_stated(row, score) for row, score in zip(rows, scores, strict=True)]
    missing = next((number for number, value in enumerate(stated) if value is None), None)
    if missing is not None:
        raise BadRow(
            missing, "has no log-probabilities, no stated confidence and one epoch; run with --logprobs or --epochs"
        )
    return _top(stated, correct, identities), ["Inspect: confidence as stated"]


def _top(confidences: list[Any], correct: list[bool], identities: list[str]) -> Columns:
    return {"confidence": confidences, "correct": correct, "id": identities}


def _epochs(identities: list[str], answers: list[str], correct: list[bool]) -> tuple[Columns, list[str]]:
    groups: dict[str, list[int]] = {}
    for number, identity in enumerate(identities):
        groups.setdefault(identity, []).append(number)
    shares, right = [], []
    for numbers in groups.values():
        answer, count = Counter(answers[number] for number in numbers).most_common(1)[0]
        shares.append(count / len(numbers))
        right.append(correct[next(number for number in numbers if answers[number] == answer)])
    return _top(shares, right, list(groups)), ["Inspect: share of the most frequent answer over epochs"]


def _option_tokens(row: dict[str, Any]) -> tuple[float, dict[str, float]] | None:
    """Log-probability of the last token that is an option's letter, and those of all options beside it."""
    content = ((row["output"].get("choices") or [{}])[0].get("logprobs") or {}).get("content") or []
    for token in reversed(content):
        if token["token"].strip() in tuple(LETTERS):
            others = {each["token"].strip(): each["logprob"] for each in reversed(token.get("top_logprobs") or [])}
            return token["logprob"], others
    return None


def _stated(row: dict[str, Any], score: dict[str, Any]) -> Any:
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
    columns, _ = _records(rows)
    columns["prediction"], columns["confidence"] = [], []
    for number, row in enumerate(rows):
        if not _is_texts(row.get(word)):
            raise BadRow(number, f"`{word}` is not a list of answers; fix or drop the row")
        answer, count = Counter(map(_spelled, row[word])).most_common(1)[0]
        columns["prediction"].append(answer)
        columns["confidence"].append(count / len(row[word]))
    del columns[word]
    return _plain(columns), [f"share of the most frequent of {word}"]


def _spelled(answer: str) -> str:
    """An answer in one spelling: without spaces around it, a full stop at its end, and capitals."""
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
    columns = {name: [row.get(name) for row in rows] for name in names}
    labels = list(ranked[0])
    sums = [abs(sum(row.values()) - 1.0) < 1e-3 for row in ranked]
    if len(labels) > 1 and all(sums) and all(row.keys() == set(labels) for row in ranked):
        scores = {f"probs.{label}": [row[label] for row in ranked] for label in sorted(labels)}
        return scores | columns, ["pipeline output: scores of all labels"]
    best = [max(row, key=row.__getitem__) for row in ranked]
    top: Columns = {"confidence": [row[label] for row, label in zip(ranked, best, strict=True)], "prediction": best}
    return top | columns, ["pipeline output: scores of the top labels alone"]


def _ranking(row: Any) -> list[Any] | None:
    """Labels with scores: the row itself, one of its fields, or a row that is one label with its score."""
    if isinstance(row, dict) and row.keys() == {"label", "score"} and isinstance(row["label"], str):
        return [row]
    for value in row.values() if isinstance(row, dict) else [row]:
        if (
            isinstance(value, list)
            and value
            and all(isinstance(x, dict) and {"label", "score"} <= x.keys() for x in value)
        ):
            return value
    return None


def _plain(columns: Columns) -> Columns:
    return {name: values for name, values in columns.items() if not any(isinstance(v, list | dict) for v in values)}


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
