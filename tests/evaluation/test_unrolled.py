"""Multilabel and segmentation files: every label and every pixel is a row, and figures are those of the functions."""

import json
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import roc_auc_score
from tests.evaluation.files import draw, write

import metacal as package
from metacal.errors import InvalidFileError, InvalidValueError
from metacal.evaluation import PredictionFile, read_predictions
from metacal.functional import expected_calibration_error, negative_log_likelihood

FAST = ["--resamples", "10"]
KINDS = ["columns.csv", "columns.parquet", "lists.jsonl", "array.npz", "truths.csv", "mixed.jsonl"]
NAMES = ("cat", "dog", "eel")


def labels(n=80, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 3))
    return 1 / (1 + np.exp(-z)), (rng.random((n, 3)) < 1 / (1 + np.exp(-0.6 * z))).astype(int)


def pixels(n=4, num_classes=3, size=(6, 5), seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, num_classes, *size, generator=generator)
    return logits.numpy(), torch.randint(num_classes, (n, *size), generator=generator).numpy()


def evaluated(metacal, path, folder, *options):
    status, output, errors = metacal("evaluate", path, *options, "--json", folder / "scores.json", *FAST)
    assert status == 0, errors
    return json.loads((folder / "scores.json").read_text()), output


@pytest.mark.parametrize("kind", KINDS)
def test_multilabel_figures(metacal, tmp_path, kind):
    probs, targets = labels()
    name = kind.split(".")[0]
    table = {f"p_{label}": probs[:, k] for k, label in enumerate(NAMES)}
    if name in ("columns", "truths"):
        order = (2, 0, 1)  # found by name, in whatever order
        table |= {f"label_{NAMES[k]}": targets[:, k].astype(bool if name == "truths" else int) for k in order}
    elif name == "mixed":
        table |= {"labels": targets.tolist()}
    else:
        table = {"probs": probs if name == "array" else probs.tolist()}
        table |= {"targets": targets if name == "array" else targets.tolist()}
    path = write(tmp_path / kind, table)
    found, output = evaluated(metacal, path, tmp_path, "--multilabel")
    expected = expected_calibration_error(probs=probs, targets=targets, multilabel=True)
    assert found["rows"] == 240
    assert found["positive_ece"] == pytest.approx(expected, abs=1e-9)
    assert found["nll"] == pytest.approx(
        negative_log_likelihood(probs=probs, targets=targets, multilabel=True), abs=1e-9
    )
    groups = {group["name"]: group for group in found["groups"]["groups"]}
    known = NAMES if name in ("columns", "truths", "mixed") else ("0", "1", "2")
    assert set(groups) == set(known)
    for k, label in enumerate(known):
        assert groups[label]["roc_auc"] == pytest.approx(roc_auc_score(targets[:, k], probs[:, k]), abs=1e-9)
    assert "By label, the worst first" in output
    assert "multilabel: 3 labels a row, each a yes/no event; intervals take them for independent" in output


def test_multilabel_logits_and_names(metacal, tmp_path):
    probs, targets = labels()
    table = {"scores": np.log(probs / (1 - probs)), "truth": targets}
    np.savez(tmp_path / "said.npz", **table)
    options = ["--multilabel", "--logits", "scores", "--target", "truth", "--class-names", "cat,dog,eel"]
    found, _ = evaluated(metacal, tmp_path / "said.npz", tmp_path, *options)
    expected = expected_calibration_error(probs=probs, targets=targets, multilabel=True)
    assert found["positive_ece"] == pytest.approx(expected, abs=1e-9)
    assert {group["name"] for group in found["groups"]["groups"]} == set(NAMES)


@pytest.mark.parametrize("layout", ["first", "last", "binary", "tokens", "pt"])
def test_segmentation_figures(metacal, tmp_path, layout):
    logits, targets = pixels(num_classes=2 if layout == "binary" else 3, size=(7,) if layout == "tokens" else (6, 5))
    scores = torch.softmax(torch.from_numpy(logits), 1).numpy()
    expected = expected_calibration_error(probs=scores, targets=targets)
    loss = negative_log_likelihood(probs=scores, targets=targets)
    saved = {"last": np.moveaxis(scores, 1, -1), "binary": scores[:, 1]}.get(layout, scores)
    if layout == "pt":
        path = tmp_path / "said.pt"
        torch.save({"probs": torch.from_numpy(saved), "targets": torch.from_numpy(targets)}, path)
    else:
        path = tmp_path / "said.npz"
        np.savez(path, probs=saved, targets=targets)
    found, output = evaluated(metacal, path, tmp_path)
    assert found["rows"] == targets.size
    assert found["ece"] == pytest.approx(expected, abs=1e-7)
    assert found["nll"] == pytest.approx(loss, abs=1e-6)
    assert "each pixel or token a row; intervals take them for independent, so they are too narrow" in output


def test_a_pair_of_npy_files_and_pixels_that_do_not_count(metacal, tmp_path):
    logits, targets = pixels()
    targets[:, 0] = 255
    np.save(tmp_path / "x_logits.npy", logits)
    np.save(tmp_path / "x_targets.npy", targets)
    found, output = evaluated(metacal, tmp_path / "x_logits.npy", tmp_path, "--ignore", "255")
    assert found["rows"] == 4 * 5 * 5
    expected = expected_calibration_error(logits=logits, targets=targets, ignore_index=255)
    assert found["ece"] == pytest.approx(expected, abs=1e-7)
    assert "target 255 left out" in output
    status, _, errors = metacal("evaluate", tmp_path / "x_logits.npy", *FAST)
    assert status == 2
    assert (
        "x_logits.npy: image 1: x_targets is 255, classes are 0..2; fix the target or its numbering (or leave it"
        in errors
    )


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (
            lambda: {"probs": labels()[0], "targets": labels()[1]},
            [],
            "or pass `multilabel` (--multilabel) if each is yes",
        ),
        (
            lambda: {"probs": labels()[0], "targets": 2 * labels()[1]},
            ["--multilabel"],
            "row 1: targets is '2', neither",
        ),
        (
            lambda: {"probs": labels()[0], "targets": labels()[1][:, :2]},
            ["--multilabel"],
            "targets must have 3 labels a row",
        ),
        (lambda: {"probs": 2 * labels()[0], "targets": labels()[1]}, ["--multilabel"], "not a probability in [0, 1]"),
        (
            lambda: {"probs": labels()[0][:, 0], "targets": labels()[1][:, 0]},
            ["--multilabel"],
            "leave out `multilabel`",
        ),
        (
            lambda: {"probs": labels()[0], "other": labels()[1]},
            ["--multilabel"],
            "no columns of 0 and 1 for the targets",
        ),
        (
            lambda: {"probs": np.ones((9, 2)) / 2, "targets": np.ones(9, int)},
            ["--ignore", "1"],
            "drop such rows instead",
        ),
        (lambda: {"probs": pixels()[0], "targets": pixels()[1]}, [], "image 1: "),
        (lambda: {"probs": np.ones((2, 3, 0, 5)), "targets": np.ones((2, 0, 5), int)}, [], "bad.npz: holds no rows"),
        (
            lambda: {"logits": np.ones((3, 2, 4)), "targets": np.array([[9, 9, 9, 0], [9, 9, 9, 1], [9, 9, 5, 0]])},
            ["--ignore", "9"],
            "bad.npz: image 3: targets is 5",
        ),
        (
            lambda: {"probs": labels()[0], "targets": labels()[1]},
            ["--multilabel", "--by", "x"],
            "which groups by label",
        ),
    ],
)
def test_bad_files(metacal, tmp_path, make, options, message):
    np.savez(tmp_path / "bad.npz", **make())
    status, output, errors = metacal("evaluate", tmp_path / "bad.npz", *options, *FAST)
    assert (status, output) == (2, "")
    assert message in errors
    assert errors.count("\n") == 1


def test_labels_that_do_not_match(metacal, tmp_path):
    (tmp_path / "bad.csv").write_text("p_cat,p_dog,label_cat,label_fox\n0.5,0.5,1,0\n")
    status, _, errors = metacal("evaluate", tmp_path / "bad.csv", "--multilabel", *FAST)
    assert status == 2
    assert "scores (p_cat, p_dog) and targets (label_cat, label_fox) must be of the same labels; name both" in errors


@pytest.mark.parametrize("kind", ["probs", "logits"])
def test_arrays_in_python(kind):
    probs, targets = labels()
    scores = probs if kind == "probs" else np.log(probs / (1 - probs))
    options = {"targets": targets, "multilabel": True, "num_resamples": 10}
    found = package.evaluate(**{kind: scores}, class_names=NAMES, **options)
    expected = expected_calibration_error(probs=probs, targets=targets, multilabel=True)
    assert found.figures["positive_ece"] == pytest.approx(expected, abs=1e-9)
    assert {group.name for group in found.groups.groups} == set(NAMES)
    both = package.evaluate(**{kind: {"a": scores, "b": scores}}, **options)
    assert both["b"].figures["positive_ece"] == found.figures["positive_ece"]
    with pytest.raises(InvalidValueError, match="`by` cannot go with `multilabel`"):
        package.evaluate(**{kind: scores}, by=targets[:, 0], **options)
    logits, classes = pixels()
    segmented = package.evaluate(logits=logits, targets=classes, num_resamples=10)
    assert segmented.figures["ece"] == pytest.approx(
        expected_calibration_error(logits=logits, targets=classes), abs=1e-9
    )


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_rows_without_a_target_are_left_out_if_asked_to(suffix, tmp_path):
    _, probs, targets = draw()
    labels = [None if row in (0, 7) else int(target) for row, target in enumerate(targets)]
    table = {f"p_{k}": probs[:, k].numpy().copy() for k in range(3)} | {"label": labels, "id": np.arange(60)}
    path = tmp_path / f"said{suffix}"
    frame = pd.DataFrame(table).astype({"label": "Int64"})
    writers = {".csv": frame.to_csv, ".parquet": frame.to_parquet, ".jsonl": partial(frame.to_json, lines=True)}
    writers[suffix](path, **({"orient": "records"} if suffix == ".jsonl" else {"index": False}))
    with pytest.raises(InvalidFileError, match=r"row 1: label has no value; fix or drop the row, or pass `drop_unlab"):
        read_predictions(path)
    file = PredictionFile(path, drop_unlabelled=True)
    found = torch.cat([batch.targets for batch in file.batches()])
    assert found.tolist() == [label for label in labels if label is not None]
    assert file.describe()["notes"] == ["2 rows without a target left out"]
    assert file.ids().tolist() == [str(row) for row in range(60) if row not in (0, 7)]


def test_rows_are_counted_as_in_the_file_where_some_are_left_out(tmp_path):
    text = "p_0,p_1,label\n" + "0.5,0.5,\n" * 2 + "0.5,0.5,1\n0.5,0.5,\n0.5,0.7,1\n"
    (tmp_path / "said.csv").write_text(text)
    with pytest.raises(InvalidFileError, match=r"row 5: probabilities sum to 1\.2"):
        list(PredictionFile(tmp_path / "said.csv", drop_unlabelled=True).batches())
