"""`metacal.evaluate`: what Python users pass in, and what they get."""

import sys

import numpy as np
import pandas as pd
import pytest
import torch
from tests.evaluation.files import NAMES, draw

import metacal
from metacal.errors import InvalidTypeError, InvalidValueError, MissingExtraError
from metacal.evaluation import Comparison, Evaluation, Predictions, evaluate_predictions

FAST = {"num_resamples": 10}


@pytest.fixture
def said():
    logits, probs, targets = draw(n=300)
    return logits, probs, targets


def kinds(probs, targets):
    frame = pd.DataFrame(probs.numpy(), columns=list(NAMES))
    names = [NAMES[target] for target in targets.tolist()]
    return [
        (probs.numpy(), targets.numpy()),
        (probs.tolist(), targets.tolist()),
        (frame, pd.Series(targets.numpy())),
        (frame, pd.Series(names)),
        (frame, pd.Categorical(names)),
        (probs, names),
    ]


@pytest.mark.parametrize("kind", range(6))
def test_arrays_lists_and_pandas_give_the_same_figures(said, kind):
    _, probs, targets = said
    expected = evaluate_predictions(Predictions.from_probs(probs, targets, NAMES), **FAST)
    scores, labels = kinds(probs, targets)[kind]
    found = metacal.evaluate(probs=scores, targets=labels, class_names=NAMES if kind in (0, 1, 5) else None, **FAST)
    assert found.classes[0].name == expected.classes[0].name
    assert found.figures == pytest.approx(expected.figures, abs=1e-6)


def test_logits_and_binary_scores(said):
    logits, _, targets = said
    found = metacal.evaluate(logits=logits.numpy(), targets=targets, **FAST)
    assert found.figures == evaluate_predictions(Predictions.from_logits(logits, targets), **FAST).figures
    score, outcome = logits[:, 0], (targets == 0).long()
    one = metacal.evaluate(logits=score, targets=outcome, **FAST)
    two = metacal.evaluate(probs=torch.sigmoid(score), targets=outcome, **FAST)
    assert one.num_classes == 2
    assert one.figures["ece"] == pytest.approx(two.figures["ece"], abs=1e-6)


def test_several_models_are_a_comparison(said, tmp_path):
    logits, _, targets = said
    found = metacal.evaluate(logits={"net": logits, "sharp": 3.0 * logits}, targets=targets, **FAST)
    assert isinstance(found, Comparison)
    assert [evaluation.name for evaluation in found.evaluations] == ["net", "sharp"]
    assert found["sharp"].figures == metacal.evaluate(logits=3.0 * logits, targets=targets, **FAST).figures
    assert found.frame().loc[("sharp", "ece"), "value"] == found["sharp"].figures["ece"]
    assert [entry["file"] for entry in found.to_dict()["files"]] == ["net", "sharp"]
    assert [line.get_label() for line in found.plot().get_lines()][1:] == ["net", "sharp"]
    page = found.report(tmp_path / "page.html").read_text()
    assert "sharp" in page
    assert f"metacal {metacal.__version__}" in page
    with pytest.raises(InvalidValueError, match="must be that of a model, got 'nets'; there is net"):
        found["nets"]


def test_frame_plot_and_report(said, tmp_path):
    _, probs, targets = said
    evaluation = metacal.evaluate(probs=probs, targets=targets, num_bins=5, **FAST)
    assert isinstance(evaluation, Evaluation)
    frame = evaluation.frame()
    assert frame.loc["ece"].tolist() == [evaluation.figures[name] for name in ("ece", "ece_low", "ece_high")]
    assert np.isnan(frame.loc["aurc", "low"])
    from matplotlib.figure import Figure

    axis = Figure().subplots()
    assert evaluation.plot(ax=axis) is axis
    assert axis.get_title(loc="left") == f"predictions: ECE {evaluation.figures['ece'] * 100:.2f} %"
    assert evaluation.report(tmp_path / "page.html") == tmp_path / "page.html"
    assert (tmp_path / "page.html").read_text().startswith("<!")


def test_a_frame_without_pandas(said, monkeypatch):
    _, probs, targets = said
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match="`pandas` must be installed for this: pip install pandas"):
        metacal.evaluate(probs=probs, targets=targets, **FAST).frame()


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({}, "Exactly one of `logits` and `probs` must be given, got neither"),
        ({"probs": {}}, "`probs` must hold at least one model, got none"),
        ({"probs": torch.eye(2), "targets": ["a", "b"]}, "`class_names` must say which class is which column"),
        ({"probs": torch.eye(2), "targets": ["a", "c"], "class_names": "ab"}, "names of `class_names`, got 'c'"),
        ({"probs": torch.eye(2), "num_resamples": 0}, "`num_resamples` must be"),
    ],
)
def test_wrong_values(keywords, message):
    with pytest.raises(InvalidValueError, match=message):
        metacal.evaluate(**{"targets": [0, 1], **keywords})


def test_a_wrong_call_shows_the_right_one():
    with pytest.raises(InvalidTypeError, match=r"has no argument `y_true` .here `targets`.; call it as"):
        metacal.evaluate(probs=torch.eye(2), y_true=[0, 1])
