"""Logs of lm-evaluation-harness and Inspect as columns.

Both give log-probabilities of the options where a log has them, else the confidence in one answer.
"""

import json
import math
import re
import struct
import zipfile
import zlib
from collections import Counter
from pathlib import Path
from typing import IO, Any

import numpy as np

from metacal.errors import InvalidFileError, MetacalError, needs
from metacal.evaluation.tables import BadRow, first_line, is_number

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
STATED = re.compile(r"confidence\W{1,5}(\d+(?:\.\d+)?\s*%?)", re.IGNORECASE)
SAMPLE = re.compile(r"samples/.*_epoch_\d+(/sample)?\.json")
ZSTANDARD = 93
"""What Inspect compresses with; ``zipfile`` knows it from Python 3.14 on."""

Columns = dict[str, list[Any]]


def read_lm_eval(rows: list[Any]) -> tuple[Columns, list[str]]:
    """Columns of samples of a multiple-choice task, and how they were made."""
    options, targets, differ = [], [], 0
    for number, row in enumerate(rows):
        values = [first_value(option) for option in row.get("filtered_resps") or row["resps"]]
        if len(values) < 2 or not all(is_number(str(value)) for value in values):
            raise BadRow(number, "has no log-likelihoods of several options; run a multiple-choice task")
        options.append([float(value) for value in values])
        target = str(first_value(row["target"])).strip()
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
        is_right = options[-1].index(max(options[-1])) == place
        differ += row.get("acc", is_right) != is_right
        targets.append(place)
    columns, notes = _options("lm-eval", options, targets, [str(row["doc_id"]) for row in rows])
    why = "a task with several correct options, or with options scored twice"
    return columns, notes + ([f"`acc` of {differ} rows is not that of the most likely option: {why}"] if differ else [])


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


def read_inspect(rows: list[Any]) -> tuple[Columns, list[str]]:
    """Columns of the samples that have a score, and how they were made."""
    scored = [row for row in rows if row.get("scores")]
    if not scored:
        raise BadRow(0, "has no score; score the log with `inspect score`")
    names = list(dict.fromkeys(name for row in scored for name in row["scores"]))
    notes = [f"score {names[0]} of {', '.join(names)}"] if len(names) > 1 else []
    notes += [f"{len(rows) - len(scored)} samples without a score left out"] if len(scored) < len(rows) else []
    columns, how = _scored_samples(scored)
    return columns, how + notes


def _scored_samples(rows: list[Any]) -> tuple[Columns, list[str]]:
    scores = [next(iter(row["scores"].values())) for row in rows]
    correct = [str(score["value"]).lower() in ("c", "1", "1.0", "true") for score in scores]
    identities = [str(row["id"]) for row in rows]
    if len(set(identities)) < len(rows):
        return _epochs(identities, [spelled(str(score.get("answer", ""))) for score in scores], correct)
    tokens = [token for row in rows if (token := _option_tokens(row)) is not None]
    if len(tokens) == len(rows):
        letters = [LETTERS[: len(row.get("choices") or ())] for row in rows]
        pairs = [(each, others) for each, (_, others) in zip(letters, tokens, strict=True)]
        if all(len(each) > 1 and set(each) <= others.keys() for each, others in pairs):
            options = [[others[letter] for letter in each] for each, others in pairs]
            targets = [LETTERS.index(str(first_value(row["target"])).strip()) for row in rows]
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


def read_inspect_archive(path: Path) -> list[Any]:
    """Samples of an ``.eval`` log, one file each; of a large one, what is beside its messages and events."""
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            # A sample that was written again is there twice, and the last one counts.
            members = {each.filename: each for each in archive.infolist() if SAMPLE.fullmatch(each.filename)}
            return [json.loads(_unpack(archive, members[name], file)) for name in sorted(members)]
    except (OSError, MetacalError):
        raise
    except Exception as error:  # whatever zipfile raises for bytes that are no archive
        reason = first_line(error)
        raise InvalidFileError(f"{path}: is not a whole .eval log ({reason}); convert it to .json.") from None


def _unpack(archive: zipfile.ZipFile, member: zipfile.ZipInfo, file: IO[bytes]) -> bytes:
    if member.compress_type != ZSTANDARD:
        return archive.read(member)
    with needs("cli"):
        import pyarrow as pa
    file.seek(member.header_offset)
    header = file.read(30)  # that of the member: lengths of its name and of extra bytes come last
    file.seek(sum(struct.unpack("<HH", header[26:30])), 1)
    packed = pa.BufferReader(file.read(member.compress_size))
    try:
        with pa.CompressedInputStream(packed, "zstd") as stream:
            found = bytes(stream.read())
    except OSError as error:  # Arrow's, for bytes that are not Zstandard
        raise ValueError(f"{member.filename}: {first_line(error)}") from None
    if zlib.crc32(found) != member.CRC:
        raise ValueError(f"{member.filename} is damaged")
    return found


def spelled(answer: str) -> str:
    """Normalise an answer: without surrounding spaces, final full stop and capitals."""
    return answer.strip().removesuffix(".").lower()


def first_value(value: Any) -> Any:
    """The first value of nested lists."""
    while isinstance(value, list):
        value = value[0]
    return value
