"""The headline: the right figures, honest intervals, and words that fit them."""

from dataclasses import replace

import pytest
import torch
from sklearn.metrics import roc_auc_score
from tests.reporting.samples import grouped_predictions, quick_report, some_predictions

from metacal.evaluation import Comparison, Predictions, evaluate_predictions, temperature_gain
from metacal.functional import expected_calibration_error
from metacal.reporting.summary import MEASURES, prepare_comparison, prepare_groups, prepare_summary


def summary_of(said, num_resamples):
    return prepare_summary(evaluate_predictions(said, num_resamples=num_resamples), num_resamples)


def test_scores_are_those_of_the_evaluation():
    said = some_predictions(samples=600)
    summary, expected = summary_of(said, 200), evaluate_predictions(said, num_resamples=200)
    assert [row.key for row in summary.scores] == list(MEASURES)
    for row in summary.scores:
        figures = expected.figures
        assert (row.value, row.low, row.high) == tuple(figures[f"{row.key}{end}"] for end in ("", "_low", "_high"))
        assert row.low < row.high and row.after_low < row.after_high, row.key
        assert (row.bound == "upper") == (row.low == 0.0), row.key
    assert {row.key for row in summary.scores if row.bound is None} >= {"accuracy", "nll", "brier", "ece"}
    assert {row.key for row in summary.scores if row.after_bound == "upper"} >= {"ece", "adaptive_ece"}
    assert summary.accuracy == summary.scores[0].value and summary.sentences[0] == expected.verdict
    assert summary.confidence == pytest.approx(said.probs.amax(dim=1).double().mean().item())


@pytest.mark.parametrize(
    ("sharpness", "words"), [(2.0, "Over-confident: it says "), (0.5, "Under-confident: "), (1.0, "Neither over- nor ")]
)
def test_the_verdict_is_put_into_words(sharpness, words):
    summary = summary_of(some_predictions(sharpness=sharpness), 10)
    assert summary.sentences[0].startswith(words) and len(summary.sentences) == 2
    assert f"is right {summary.accuracy * 100:.1f} % of the time" in summary.sentences[0]


def test_over_here_and_under_there_is_not_called_fine():
    probs = torch.cat((torch.tensor([[0.6, 0.4]]).repeat(500, 1), torch.tensor([[0.9, 0.1]]).repeat(500, 1)))
    right = torch.cat((torch.arange(500) < 450, torch.arange(500) < 300))
    summary = summary_of(Predictions.from_probs(probs, (~right).long()), 10)
    assert summary.sentences[0].startswith("Neither") and "over-confident at some levels" in summary.sentences[1]


def test_temperature_is_cross_fitted():
    said = some_predictions()
    summary = summary_of(said, 10)
    gain = temperature_gain(logits=said.logits, targets=said.targets)
    ece = summary.scores[3]
    assert summary.temperature == gain.temperature == pytest.approx(2.0, abs=0.15)
    assert ece.after == pytest.approx(gain.ece_after, abs=1e-6) and ece.after < ece.value / 4
    assert f"A temperature of {gain.temperature:.2f} would take its ECE from" in summary.sentences[1]
    assert summary.scores[0].after == summary.scores[0].value
    assert "would not fix it" in summary_of(some_predictions(sharpness=1.0, seed=3), 10).sentences[1]


def test_few_samples_are_warned_of_and_not_fitted():
    summary = summary_of(some_predictions(samples=12), 10)
    assert summary.warning.startswith("12 samples are too few for 15 bins")
    assert summary.temperature is None and len(summary.sentences) == 1
    assert all(row.after is None for row in summary.scores)
    assert summary_of(some_predictions(), 10).warning is None


def test_comparison_marks_the_best_of_each_row():
    sharp, fair = summary_of(some_predictions(), 10), summary_of(some_predictions(sharpness=1.0), 10)
    comparison = prepare_comparison([("sharp", sharp), ("fair", fair), ("again", fair)])
    rows = {score.key: score for score in comparison.scores}
    assert comparison.names == ["sharp", "fair", "again"]
    assert rows["accuracy"].best == []  # a temperature changes no answer: nobody is better
    assert rows["ece"].best == [1, 2] and rows["nll"].best == [1, 2]
    assert rows["ece"].values[0] == sharp.scores[3].value and rows["ece"].lows[0] == sharp.scores[3].low
    assert prepare_comparison([("alone", fair)]) is None


def test_a_comparison_rests_on_paired_differences():
    said = some_predictions(samples=600, name="sharp")
    fair = replace(said, scores=said.scores / 2.0, name="fair")
    comparison = quick_report([said, fair, said]).comparison
    expected = Comparison.of([evaluate_predictions(each, num_resamples=8) for each in (said, fair)], 8)
    assert [score.differences[0] for score in comparison.scores] == [each.to_dict() for each in expected.differences]
    assert comparison.problem is None and comparison.names == ["sharp", "fair", "sharp (2)"]
    (verdict, ece, nll, accuracy), (same, *_) = comparison.verdicts
    assert verdict == "fair is better calibrated than sharp." and ece.startswith("ECE is lower by ")
    assert nll.startswith("NLL is lower by ") and accuracy.startswith("Accuracy: no difference from sharp beyond noise")
    assert same == "sharp (2) and sharp: no difference in calibration beyond noise."


def test_groups_are_those_of_the_evaluation():
    said = grouped_predictions()
    evaluation = evaluate_predictions(said, num_resamples=50)
    part = prepare_groups(evaluation.groups)
    assert (part.column, part.names[0], sum(part.samples)) == ("region", "south", 900)
    ece = next(score for score in part.scores if score.key == "ece")
    south = said.groups.codes == 1
    expected = expected_calibration_error(probs=said.probs[south], targets=said.targets[south]).item()
    assert ece.values[0] == pytest.approx(expected, abs=1e-9) and ece.lows[0] > 0.02
    assert part.confidences[0] == pytest.approx(said.probs[south].amax(1).double().mean().item(), abs=1e-6)
    assert part.sentences[0] == evaluation.groups.verdict
    error = evaluation.figures["multicalibration_error"]
    assert f"is off by {100 * error:.2f}\u00a0% on average (multicalibration error, " in part.sentences[1]


def test_a_binary_model_has_figures_of_its_own():
    said = grouped_predictions()
    rows = {row.key: row for row in summary_of(said, 20).scores}
    assert list(rows)[-3:] == ["positive_ece", "roc_auc", "average_precision"] and rows["roc_auc"].is_share
    area = roc_auc_score(said.targets, said.probs[:, 1])
    assert rows["roc_auc"].value == pytest.approx(area) and rows["roc_auc"].low < area < rows["roc_auc"].high
    assert rows["average_precision"].low is None
    (subject,) = quick_report([said]).subjects
    positive = subject.predictions.positive
    inside = (said.probs[:, 1] > 14 / 15) & (said.probs[:, 1] <= 1.0)
    assert positive.name == "yes" and positive.bins.counts[-1] == int(inside.sum())
    assert positive.bins.accuracies[-1] == pytest.approx(said.targets[inside].double().mean().item())
    assert positive.bins.ece == pytest.approx(rows["positive_ece"].value)
    called = said.probs[:, 1] >= 0.3
    row = next(row for row in positive.thresholds if row["threshold"] == 0.3)
    assert row["precision"] == pytest.approx(said.targets[called].double().mean().item())


def test_models_of_other_rows_are_not_paired():
    comparison = quick_report([some_predictions(samples=300), some_predictions(samples=200, name="less")]).comparison
    assert comparison.problem == "made-up has 300 rows, less 200: not compared row by row."
    assert comparison.verdicts == [] and all(score.differences == [] for score in comparison.scores)
