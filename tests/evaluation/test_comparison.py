"""`metacal.evaluate`: what Python users pass in, and what they get."""

import sys

import numpy as np
import pandas as pd
import pytest
import torch
from tests.evaluation.files import NAMES, draw

import metacal
from metacal.errors import InvalidTypeError, InvalidValueError, MissingExtraError
from metacal.evaluation import Comparison, Difference, Evaluation, Predictions, evaluate_predictions
from metacal.evaluation.evaluation import MEASURES

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
    labels = [line.get_label() for line in found.plot().get_lines()]
    assert [label for label in labels if label in ("net", "sharp")] == ["net", "sharp"]
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


@pytest.fixture
def pair():
    logits, _, targets = draw(n=3000)
    return metacal.evaluate(logits={"net": logits, "sharp": 3.0 * logits}, targets=targets, num_resamples=200)


def test_differences_of_every_figure(pair):
    found = {difference.figure: difference for difference in pair.differences}
    assert list(found) == list(MEASURES)
    first, second = (evaluation.figures for evaluation in pair.evaluations)
    for name in ("accuracy", "nll", "brier"):
        assert found[name].value == pytest.approx(second[name] - first[name], abs=1e-6)
    assert not found["accuracy"].is_beyond_noise  # a scale changes no answer
    assert not found["accuracy"].is_worse
    for name in ("nll", "brier", "ece", "adaptive_ece", "classwise_ece", "debiased_ece_l2", "sweep_ece", "smooth_ece"):
        assert found[name].is_worse, name
        assert found[name].low <= found[name].value <= found[name].high, name
    assert found["ece"].value == pytest.approx(second["ece"] - first["ece"], abs=0.02)
    assert found["ece"].verdict.startswith("sharp's ECE is higher by ")
    assert pair.to_dict()["differences"][0]["baseline"] == "net"


def test_a_model_does_not_differ_from_itself(said):
    logits, _, targets = said
    found = metacal.evaluate(logits={"a": logits, "b": logits}, targets=targets, **FAST)
    for difference in found.differences:
        assert not difference.is_beyond_noise, difference
        assert difference.value == 0.0 or np.isnan(difference.low)


def test_pairing_narrows_the_interval(said):
    logits, _, targets = said
    noise = torch.randn(logits.shape, generator=torch.Generator().manual_seed(0))
    found = metacal.evaluate(logits={"a": logits, "b": logits + 0.1 * noise}, targets=targets, **FAST)
    paired = next(difference for difference in found.differences if difference.figure == "nll")
    alone = found["a"].figures
    assert paired.high - paired.low < 0.5 * (alone["nll_high"] - alone["nll_low"])


def test_an_infinite_loss_has_no_difference():
    probs = torch.tensor([[1.0, 0.0], [0.4, 0.6], [0.2, 0.8]])
    targets = torch.tensor([1, 1, 1])
    found = metacal.evaluate(probs={"a": probs, "b": probs.clamp(0.1, 0.9)}, targets=targets, **FAST)
    nll = found.differences[1]
    assert nll.figure == "nll"
    assert not nll.is_worse
    assert nll.to_dict()["low"] is None
    assert nll.verdict == "b's NLL: the difference from a has no interval."


def test_other_rows_are_not_compared(said):
    _, probs, targets = said
    one = evaluate_predictions(Predictions.from_probs(probs, targets, NAMES, "one"), **FAST)
    fewer = evaluate_predictions(Predictions.from_probs(probs[1:], targets[1:], NAMES, "two"), **FAST)
    turned = evaluate_predictions(Predictions.from_probs(probs, targets.flip(0), NAMES, "two"), **FAST)
    renamed = evaluate_predictions(Predictions.from_probs(probs, targets, ("x", "y", "z"), "two"), **FAST)
    for other, why in ((fewer, "two 299"), (turned, "different targets"), (renamed, "different classes")):
        found = Comparison.of([one, other])
        assert found.differences == []
        assert why in found.problem


@pytest.mark.parametrize(
    ("figure", "low", "high", "is_worse"),
    [("ece", 0.01, 0.02, True), ("ece", -0.02, -0.01, False), ("accuracy", -0.02, -0.01, True), ("ece", -1, 1, False)],
)
def test_worse_is_lower_for_accuracy_and_higher_for_errors(figure, low, high, is_worse):
    assert Difference(figure, "b", "a", 0.5 * (low + high), low, high).is_worse is is_worse
