"""Logs of language models and other JSON: the files in samples/ are read without an option, as NumPy computes them."""

import json
import struct
import zipfile
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from safetensors.torch import save_file
from tests.evaluation.files import draw
from tests.evaluation.test_confidences import oracle

from metacal.errors import InvalidFileError, InvalidValueError
from metacal.evaluation import PredictionFile, evaluate_file, read_predictions
from metacal.evaluation.confidences import WORDS
from metacal.evaluation.language_model_logs import ZSTANDARD

SAMPLES = Path(__file__).parent / "samples"


def lines(name):
    return [json.loads(line) for line in (SAMPLES / name).read_text().splitlines()]


def whole(logits, targets):
    """Confidences, which are right, and the mean -log p(target)."""
    probs = np.exp(logits - np.max(logits, axis=1, keepdims=True))
    probs /= probs.sum(axis=1, keepdims=True)
    right = probs.argmax(axis=1) == targets
    return probs.max(axis=1), right, -np.mean(np.log(probs[np.arange(len(targets)), targets]))


def lm_eval():
    rows = lines("lm-eval.jsonl")
    return whole(
        np.array([[float(r[0]) for r in row["filtered_resps"]] for row in rows]), [int(r["target"]) for r in rows]
    )


def inspect():
    rows = json.loads((SAMPLES / "inspect.json").read_text())["samples"]
    tokens = [row["output"]["choices"][0]["logprobs"]["content"][-1]["top_logprobs"] for row in rows]
    return whole(np.array([[each["logprob"] for each in row] for row in tokens]), np.ones(len(rows), dtype=int))


def epochs():
    answers = {}
    with zipfile.ZipFile(SAMPLES / "inspect-epochs.eval") as archive:
        for name in archive.namelist():
            if name.startswith("samples/"):
                row = json.loads(archive.read(name))
                answers.setdefault(row["id"], {})[row["epoch"]] = row["scores"]["choice"]["answer"]
    most = [Counter(each[epoch] for epoch in sorted(each)).most_common(1)[0] for each in answers.values()]
    return np.array([count / 5 for _, count in most]), np.array([answer == "B" for answer, _ in most]), None


def options():
    rows = lines("options.jsonl")
    logits = np.array([[row["logprobs"][letter] for letter in "ABCD"] for row in rows])
    return whole(logits, ["ABCD".index(row["target"]) for row in rows])


def verbalised():
    rows = lines("verbalised.jsonl")
    spelled = {"90%": 0.9, "75%": 0.75} | WORDS
    return (
        np.array([spelled[r["confidence"]] for r in rows]),
        np.array([r["response"] == r["target"] for r in rows]),
        None,
    )


def percent():
    rows = lines("percent.jsonl")
    return np.array([r["confidence"] / 100 for r in rows]), np.array([r["answer"] == r["target"] for r in rows]), None


def samples():
    rows = lines("samples.jsonl")
    most = [Counter(row["answers"]).most_common(1)[0] for row in rows]
    right = [answer.lower() == row["target"].lower() for (answer, _), row in zip(most, rows)]
    return np.array([count / 5 for _, count in most]), np.array(right), None


def pipeline(rows=None):
    rows = json.loads((SAMPLES / "pipeline.json").read_text()) if rows is None else rows
    best = [max(row["scores"], key=lambda each: each["score"]) for row in rows]
    target = [next((e["score"] for e in row["scores"] if e["label"] == row["label"]), np.nan) for row in rows]
    right = np.array([each["label"] == row["label"] for each, row in zip(best, rows)])
    return np.array([each["score"] for each in best]), right, -np.mean(np.log(target))


def pipeline_top():
    return *pipeline(lines("pipeline-top.jsonl"))[:2], None


ORACLES = {
    "lm-eval.jsonl": lm_eval,
    "inspect.json": inspect,
    "inspect-epochs.eval": epochs,
    "options.jsonl": options,
    "verbalised.jsonl": verbalised,
    "percent.jsonl": percent,
    "samples.jsonl": samples,
    "pipeline.json": pipeline,
    "pipeline-top.jsonl": pipeline_top,
}


def test_every_sample_is_tested():
    assert {path.name for path in SAMPLES.iterdir()} == set(ORACLES)


@pytest.mark.parametrize("name", ORACLES)
def test_samples_are_read_without_an_option(name):
    confidences, correct, nll = ORACLES[name]()
    evaluation = evaluate_file(PredictionFile(SAMPLES / name, top_label=True), num_resamples=10)
    accuracy, ece = oracle(confidences, correct)
    assert evaluation.rows == len(correct)
    assert evaluation.figures["accuracy"] == pytest.approx(accuracy, abs=1e-9)
    assert evaluation.figures["ece"] == pytest.approx(ece, abs=1e-9)
    assert ("nll" in evaluation.figures) == (nll is not None)
    if nll is not None:
        assert evaluation.figures["nll"] == pytest.approx(nll, abs=1e-9)


def test_options_of_different_number(tmp_path):
    rows = lines("lm-eval.jsonl")[:2]
    for row, target in zip(rows, (0, 2)):
        row["target"] = target
    rows[0]["filtered_resps"] = rows[0]["filtered_resps"][:2]
    path = tmp_path / "said.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    predictions = read_predictions(path)
    assert predictions.scores[0, 2:].tolist() == [0.0, 0.0]
    assert predictions.scores.sum(1).tolist() == pytest.approx([1.0, 1.0])


def pack_zstandard(path, members):
    """Write an archive compressed as Inspect does; ``zipfile`` can do so from Python 3.14 on only."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members:
            archive.writestr(name, pa.compress(content, "zstd", asbytes=True))
    with zipfile.ZipFile(path) as archive:
        directory, places = archive.start_dir, [info.header_offset for info in archive.infolist()]
    packed = bytearray(path.read_bytes())
    for place, (name, content) in zip(places, members, strict=True):
        check = zlib.crc32(content)
        struct.pack_into("<H", packed, place + 8, ZSTANDARD)
        struct.pack_into("<H", packed, directory + 10, ZSTANDARD)
        struct.pack_into("<I", packed, directory + 16, check)
        struct.pack_into("<I", packed, directory + 24, len(content))
        directory += 46 + len(name)
    path.write_bytes(packed)


def inspect_rows():
    return json.loads((SAMPLES / "inspect.json").read_text())["samples"]


@pytest.mark.parametrize("name", ["samples/{}_epoch_1.json", "samples/{}_epoch_1/sample.json"])
def test_inspect_compresses_with_zstandard(name, tmp_path):
    """One file a sample, or of a large one a folder with its messages beside it."""
    members = [(name.format(row["id"]), json.dumps(row).encode()) for row in inspect_rows()]
    members += [("samples/1_epoch_1/messages/0.json", b"[]"), ("header.json", b"{}")]
    pack_zstandard(tmp_path / "log.eval", members)
    found, expected = (read_predictions(path) for path in (tmp_path / "log.eval", SAMPLES / "inspect.json"))
    assert sorted(found.scores.tolist()) == sorted(expected.scores.tolist())
    packed = bytearray((tmp_path / "log.eval").read_bytes())
    packed[60] ^= 1
    (tmp_path / "bad.eval").write_bytes(packed)
    with pytest.raises(InvalidFileError, match=r"is not a whole \.eval log"):
        read_predictions(tmp_path / "bad.eval")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_inspect_samples_written_again_count_once(tmp_path):
    with zipfile.ZipFile(tmp_path / "log.eval", "w") as archive:
        for row in (*inspect_rows(), inspect_rows()[0]):
            archive.writestr(f"samples/{row['id']}_epoch_1.json", json.dumps(row))
    assert len(read_predictions(tmp_path / "log.eval")) == len(inspect_rows())


def test_inspect_samples_without_a_score_are_left_out(tmp_path):
    rows = inspect_rows()
    del rows[0]["scores"]
    rows[1]["scores"]["other"] = {"value": "I"}
    (tmp_path / "log.json").write_text(json.dumps({"eval": {}, "samples": rows}))
    file = PredictionFile(tmp_path / "log.json")
    assert sum(len(batch.scores) for batch in file.batches()) == len(rows) - 1
    first = next(iter(rows[1]["scores"]))
    assert file.describe()["notes"][1:] == [f"score {first} of {first}, other", "1 samples without a score left out"]


def test_lm_eval_tasks_with_several_correct_options_are_noted(tmp_path):
    """TruthfulQA's mc2, say: the target is one of them, and `acc` is about all."""
    row = lines("lm-eval.jsonl")[0]
    assert PredictionFile(SAMPLES / "lm-eval.jsonl").describe()["notes"][1:] == []
    row["acc"] = 0.4
    (tmp_path / "samples.jsonl").write_text(json.dumps(row))
    assert "`acc` of 1 rows is not that of" in PredictionFile(tmp_path / "samples.jsonl").describe()["notes"][1]


@pytest.mark.parametrize("orient", ["records", "columns", "split", "table", "lines"])
def test_json_as_pandas_writes_it(orient, tmp_path):
    _, probs, targets = draw(dtype=torch.float64)
    frame = pd.DataFrame(probs.numpy(), columns=["p_cat", "p_dog", "p_eel"]).assign(label=targets.numpy())
    options = {"orient": "records", "lines": True} if orient == "lines" else {"orient": orient}
    frame.to_json(tmp_path / "said.json", double_precision=15, **options)
    predictions = read_predictions(tmp_path / "said.json")
    assert predictions.class_names == ("cat", "dog", "eel")
    np.testing.assert_allclose(predictions.scores.numpy(), probs.numpy(), atol=1e-12)
    assert predictions.targets.tolist() == targets.tolist()


def test_an_answer_beside_the_true_one_is_the_prediction(tmp_path):
    rows = [
        {"answer": "Rome", "confidence": 0.8, "gold": "Rome"},
        {"answer": "Rome", "confidence": 0.6, "gold": "Bonn"},
    ]
    (tmp_path / "said.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    file = PredictionFile(tmp_path / "said.jsonl", top_label=True)
    assert (file.describe()["prediction"], file.describe()["target"]) == ("answer", "gold")
    assert [batch.targets.tolist() for batch in file.batches()] == [[1, 0]]


def test_json_records_and_arrays(tmp_path):
    _, probs, targets = draw(dtype=torch.float64)
    rows = [{"probs": row, "label": t} for row, t in zip(probs.tolist(), targets.tolist())]
    (tmp_path / "records.json").write_text(json.dumps(rows))
    (tmp_path / "arrays.json").write_text(json.dumps({"probs": probs.tolist(), "labels": targets.tolist()}))
    for name in ("records", "arrays"):
        predictions = read_predictions(tmp_path / f"{name}.json")
        assert predictions.scores.tolist() == probs.tolist()
        assert predictions.targets.tolist() == targets.tolist()


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".safetensors"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tensors(suffix, dtype, tmp_path):
    logits, _, targets = draw()
    write = save_file if suffix == ".safetensors" else torch.save
    write({"logits": logits.to(dtype), "targets": targets}, tmp_path / f"said{suffix}")
    predictions = read_predictions(tmp_path / f"said{suffix}")
    assert predictions.is_logits
    assert predictions.scores.tolist() == logits.to(dtype).float().tolist()
    assert predictions.targets.tolist() == targets.tolist()


def test_several_models_of_one_json_file(tmp_path):
    (_, first, targets), (_, second, _) = draw(), draw(seed=1)
    path = tmp_path / "models.json"
    path.write_text(json.dumps({"a": first.tolist(), "b": second.tolist(), "targets": targets.tolist()}))
    assert [model.name for model in PredictionFile.models(path, probs="a,b")] == ["a", "b"]


def test_pipeline_output_with_targets_of_their_own(tmp_path):
    rows = json.loads((SAMPLES / "pipeline.json").read_text())
    (tmp_path / "said.json").write_text(json.dumps([row["scores"] for row in rows]))
    (tmp_path / "labels.txt").write_text("\n".join(row["label"] for row in rows))
    said = read_predictions(tmp_path / "said.json", target=str(tmp_path / "labels.txt"))
    assert said.scores.tolist() == read_predictions(SAMPLES / "pipeline.json").scores.tolist()


@pytest.mark.parametrize(("name", "content"), [("labels.json", "{"), ("labels.npy", "nothing"), ("labels.txt", "joy")])
def test_bad_targets_of_their_own(name, content, tmp_path):
    rows = json.loads((SAMPLES / "pipeline.json").read_text())
    (tmp_path / "said.json").write_text(json.dumps([row["scores"] for row in rows]))
    (tmp_path / name).write_text(content)
    with pytest.raises(InvalidFileError, match=r"said\.json: |labels\."):
        read_predictions(tmp_path / "said.json", target=name)


def test_a_format_that_is_not_there(tmp_path):
    with pytest.raises(InvalidFileError, match=r"is not samples \("):
        PredictionFile(SAMPLES / "pipeline.json", file_format="samples")
    with pytest.raises(InvalidValueError, match=r"`file_format` \(--format\) must be one of auto, table, lm-eval"):
        PredictionFile(SAMPLES / "pipeline.json", file_format="csv")


class Code:
    def __reduce__(self):
        return print, ("this must never be printed",)


BAD = {
    "bad.json": ("{", "bad.json: is not JSON"),
    "number.json": ("1", "must hold a list of records or an object of arrays"),
    "none.json": ("[]", "holds no rows"),
    "empty.json": ("{}", "holds no arrays"),
    "bare.json": ('[{"label": "POSITIVE", "score": 0.9}]', "no column for the target"),
    "mixed.json": ('[{"probs": [0.5, 0.5], "label": 0}, 3]', "row 2: is not a JSON object"),
    "text.jsonl": ('{"doc_id": 0, "resps": [["a"]], "target": "x"}\n', "row 1: has no log-likelihoods of several"),
    "gold.jsonl": ('{"doc_id": 0, "resps": [[-1], [-2]], "target": "x"}\n', "target is 'x', not one of its 2 options"),
    "log.json": ('{"eval": {}, "samples": [{"id": 1, "output": {}}]}', "row 1: has no score; score the log"),
    "plain.json": (
        '{"eval": {}, "samples": [{"id": 1, "output": {}, "scores": {"m": {"value": "C"}}}]}',
        "row 1: has no log-probabilities, no stated confidence and one epoch",
    ),
    "header.json": ('{"version": 2, "status": "error", "eval": {}}', "holds no rows; run the task again, without --no"),
    "bad.eval": ("PK", "is not a whole .eval log"),
    "bad.pt": ("nothing", "is not a dictionary of plain tensors"),
    "bad.safetensors": ("nothing", "is not a dictionary of plain tensors"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files(name, tmp_path):
    content, message = BAD[name]
    (tmp_path / name).write_text(content)
    with pytest.raises(InvalidFileError) as caught:
        list(PredictionFile(tmp_path / name, top_label=True).batches())
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_pickles_are_never_run(tmp_path, capsys):
    torch.save({"logits": Code()}, tmp_path / "bad.pt")
    with pytest.raises(InvalidFileError, match=r"is not a dictionary of plain tensors; write torch\.save"):
        read_predictions(tmp_path / "bad.pt")
    assert capsys.readouterr().out == ""
