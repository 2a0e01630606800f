"""The headline: the right figures, honest intervals, and words that fit them."""

import pytest
import torch
from tests.reporting.samples import some_predictions

from metacal.evaluation import Predictions, score_predictions
from metacal.reporting.comparison import prepare_comparison
from metacal.reporting.summary import MEASURES, cross_fitted, prepare_summary


def test_scores_are_those_of_score_predictions():
    said = some_predictions(samples=1000)
    summary = prepare_summary(said)
    expected = score_predictions(probs=said.probs, targets=said.targets).as_dict()
    assert [row.key for row in summary.scores] == list(MEASURES)
    assert {row.key: row.value for row in summary.scores} == {key: expected[key] for key in MEASURES}
    for row in summary.scores:
        if row.low is not None:
            assert row.low <= row.value <= row.high, row.key
            assert row.after_low <= row.after <= row.after_high, row.key
    accuracy, nll = summary.scores[0], summary.scores[1]
    half = 1.96 * (accuracy.value * (1 - accuracy.value) / 1000) ** 0.5
    assert (accuracy.low, accuracy.high) == pytest.approx(
        (accuracy.value - half, accuracy.value + half), abs=0.2 * half
    )
    losses = torch.nn.functional.cross_entropy(said.logits, said.targets, reduction="none").double()
    half = 1.96 * float(losses.std()) / 1000**0.5
    assert (nll.low, nll.high) == pytest.approx((nll.value - half, nll.value + half), abs=0.25 * half)


@pytest.mark.parametrize(
    ("sharpness", "verdict", "words"),
    [
        (2.0, "over-confident", "Over-confident: it is "),
        (0.5, "under-confident", "Under-confident: it is "),
        (1.0, "calibrated", "No miscalibration found: it is "),
    ],
)
def test_the_verdict_is_put_into_words(sharpness, verdict, words):
    summary = prepare_summary(some_predictions(sharpness=sharpness))
    assert summary.verdict == verdict and summary.sentences[0].startswith(words)
    assert f"{summary.confidence * 100:.1f} % sure" in summary.sentences[0]
    assert f"right {summary.accuracy * 100:.1f} %" in summary.sentences[0]
    assert summary.gap == pytest.approx(summary.confidence - summary.accuracy, abs=1e-9)
    assert summary.gap_low < summary.gap < summary.gap_high


def test_over_here_and_under_there_is_uneven():
    probs = torch.cat((torch.tensor([[0.6, 0.4]]).repeat(500, 1), torch.tensor([[0.9, 0.1]]).repeat(500, 1)))
    right = torch.cat((torch.arange(500) < 450, torch.arange(500) < 300))
    summary = prepare_summary(Predictions.from_probs(probs, (~right).long()))
    assert summary.verdict == "uneven" and summary.sentences[0].startswith("Uneven: ")


def test_temperature_is_cross_fitted():
    said = some_predictions()
    scaled, temperatures = cross_fitted(said)
    assert temperatures == pytest.approx([2.0, 2.0], abs=0.3) and temperatures[0] != temperatures[1]
    expected = torch.softmax(said.logits[1::2].double() / temperatures[1], dim=1)
    torch.testing.assert_close(scaled[1::2], expected, atol=1e-5, rtol=1e-4)
    summary = prepare_summary(said)
    assert "would take its ECE from" in summary.sentences[1] and summary.cross_fitted == temperatures
    assert summary.scores[0].after == summary.scores[0].value
    assert "would not mend it" in prepare_summary(some_predictions(sharpness=1.0, seed=3)).sentences[1]


def test_few_samples_are_warned_of_and_not_fitted():
    summary = prepare_summary(some_predictions(samples=12))
    assert summary.warning.startswith("12 samples are too few for 15 bins")
    assert summary.cross_fitted is None and len(summary.sentences) == 1
    assert all(row.after is None for row in summary.scores)
    assert prepare_summary(some_predictions()).warning is None


def test_comparison_marks_the_best_of_each_row():
    sharp, fair = prepare_summary(some_predictions()), prepare_summary(some_predictions(sharpness=1.0))
    comparison = prepare_comparison([("sharp", sharp), ("fair", fair), ("again", fair)])
    rows = {score.key: score for score in comparison.scores}
    assert comparison.names == ["sharp", "fair", "again"]
    assert rows["accuracy"].best == []  # a temperature changes no answer: nobody is better
    assert rows["ece"].best == [1, 2] and rows["nll"].best == [1, 2]
    assert rows["ece"].values[0] == sharp.scores[3].value and rows["ece"].lows[0] == sharp.scores[3].low
    assert prepare_comparison([("alone", fair)]) is None
