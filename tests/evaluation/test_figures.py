"""The figures beside the calibration errors: selective risk, confusions, OOD, words, gain, intervals."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score, roc_curve
from tests.evaluation.files import NAMES, draw

from metacal.errors import InvalidValueError
from metacal.evaluation import (
    Predictions,
    TemperatureGain,
    confidence_verdict,
    detection,
    evaluate_predictions,
    ood_figures,
    risk_coverage,
    score_predictions,
    temperature_gain,
)
from metacal.evaluation.evaluation import ERRORS, FIGURES, MEASURES, confused_pairs, confusion_counts
from metacal.evaluation.scores import Binned, class_cells, only_bound, reflected_kernel
from metacal.evaluation.streaming import StreamedScores
from metacal.functional import equal_width_statistics, negative_log_likelihood
from metacal.functional.classwise_calibration_error import class_statistics


def test_risk_and_coverage_by_hand():
    generator = np.random.default_rng(0)
    confidences = generator.random(500)
    correct = generator.random(500) < confidences
    curve = risk_coverage(torch.from_numpy(confidences), torch.from_numpy(correct))
    order = np.argsort(-confidences)
    risks = np.cumsum(~correct[order]) / np.arange(1, 501)
    np.testing.assert_allclose(curve.risks.numpy(), risks)
    assert curve.area == pytest.approx(risks.mean())
    for risk in (0.0, 0.01, 0.05, 1.0):
        fits = np.flatnonzero(risks <= risk)
        assert curve.coverage_at_risk(risk) == pytest.approx((fits[-1] + 1) / 500 if len(fits) else 0.0)


def test_ties_count_as_in_random_order_and_cannot_be_cut():
    confidences = torch.tensor([0.9, 0.5, 0.5, 0.5])
    for correct in ([True, True, True, False], [True, False, True, True]):
        curve = risk_coverage(confidences, torch.tensor(correct))
        np.testing.assert_allclose(curve.risks.numpy(), [0.0, 1 / 6, 2 / 9, 1 / 4])
        assert curve.coverage_at_risk(0.2) == 0.25 and curve.coverage_at_risk(0.25) == 1.0
    assert risk_coverage(torch.tensor([0.5]), torch.tensor([False])).coverage_at_risk(0.05) == 0.0
    with pytest.raises(InvalidValueError, match=r"`risk` must be in \[0, 1\], got 2"):
        curve.coverage_at_risk(2)
    with pytest.raises(InvalidValueError, match="`confidences` must hold at least one sample"):
        risk_coverage(torch.zeros(0), torch.zeros(0, dtype=torch.bool))


def test_ood_against_scikit_learn():
    generator = np.random.default_rng(0)
    inside, outside = generator.normal(1, 1, 400).round(1), generator.normal(0, 1, 300).round(1)  # with ties
    found = detection(torch.from_numpy(inside), torch.from_numpy(outside))
    labels, scores = np.r_[np.ones(400), np.zeros(300)], np.r_[inside, outside]
    assert found.auroc == pytest.approx(roc_auc_score(labels, scores))
    false, true, _ = roc_curve(labels, scores, drop_intermediate=False)
    assert found.fpr95 == pytest.approx(false[true >= 0.95][0])
    with pytest.raises(InvalidValueError, match="`inside` and `outside` must hold samples, got 400 and 0"):
        detection(torch.from_numpy(inside), torch.zeros(0))


def test_ood_scores_of_probabilities():
    sure, unsure = torch.tensor([[0.98, 0.01, 0.01]] * 5), torch.tensor([[1.0, 0.0, 0.0], [0.4, 0.3, 0.3]])
    figures = ood_figures(sure, unsure)
    assert figures["ood_auroc_max_prob"] == figures["ood_auroc_entropy"] == 0.5
    assert figures["ood_fpr95_max_prob"] == figures["ood_fpr95_entropy"] == 0.5


def test_confusions():
    counts = confusion_counts(torch.tensor([0, 1, 1, 2, 0, 0]), torch.tensor([0, 0, 0, 2, 2, 1]), 3)
    assert counts.tolist() == [[1, 2, 0], [1, 0, 0], [1, 0, 1]]
    pairs = confused_pairs(counts, NAMES, most=2)
    assert [(p.target, p.predicted, p.samples) for p in pairs] == [("cat", "dog", 2), ("dog", "cat", 1)]
    assert pairs[0].share == pytest.approx(2 / 3)
    assert confused_pairs(torch.diag(torch.tensor([3, 2])), ("a", "b")) == []


@pytest.mark.parametrize(
    ("confidence", "right", "words"),
    [(0.9, 800, "Over-confident"), (0.6, 800, "Under-confident"), (0.8, 805, "Neither over- nor under-confident")],
)
def test_verdict(confidence, right, words):
    statistics = equal_width_statistics(torch.full((1000,), confidence), torch.arange(1000) < right)
    assert confidence_verdict(statistics).startswith(words)


def test_the_gain_is_of_samples_that_the_temperature_has_not_seen():
    logits, _, targets = draw(n=4000, num_classes=4)
    gain = temperature_gain(logits=3.0 * logits, targets=targets)
    assert gain.temperature == pytest.approx(3.0, rel=0.05)
    assert gain.nll_before == pytest.approx(negative_log_likelihood(logits=3.0 * logits, targets=targets).item())
    assert gain.nll_after < 0.7 * gain.nll_before and gain.ece_after < 0.2 * gain.ece_before
    calibrated = temperature_gain(logits=logits, targets=targets)
    # In-sample the NLL could only fall; cross-fitted it may rise, and here there is nothing to gain.
    assert calibrated.nll_after == pytest.approx(calibrated.nll_before, abs=1e-3)
    assert temperature_gain(logits=logits[:1], targets=targets[:1]) is None


def intervals_of(predictions, num_resamples):
    scores = score_predictions(**{predictions.inputs.name: predictions.scores}, targets=predictions.targets)
    return Binned.of(predictions.inputs, 15).intervals(scores.smooth_ece, num_resamples)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_rows_say_nothing_of_how_losses_scatter(dtype):
    logits = torch.tensor([[0.3, 1.7, -0.4]], dtype=dtype).repeat(50, 1)
    said = Predictions.from_logits(logits, torch.zeros(50, dtype=torch.int64))
    evaluation = evaluate_predictions(said, num_resamples=100)
    figures = evaluation.figures
    assert np.isnan([figures[f"{name}_{end}"] for name in ("nll", "brier") for end in ("low", "high")]).all()
    assert evaluation.as_dict()["nll_low"] is None and evaluation.one_sided["accuracy"] == "upper"
    # Always wrong: no model with these confidences could have a higher error.
    assert evaluation.one_sided["ece"] == "lower" and 0.6 < figures["ece_low"] < figures["ece"]


@pytest.mark.parametrize("scale", [1.0, 1.5])
@pytest.mark.parametrize(("n", "num_classes"), [(300, 3), (500, 2), (400, 20)])
def test_copies_in_float32_and_float64_have_the_same_figures(n, num_classes, scale):
    logits, _, targets = draw(n=n, num_classes=num_classes, dtype=torch.float32)
    single, double = (
        evaluate_predictions(Predictions.from_logits(scale * copy, targets)).figures
        for copy in (logits, logits.double())
    )
    for name in single:
        assert single[name] == pytest.approx(double[name], abs=2e-7), name


def test_intervals_of_means_are_those_of_the_normal_law():
    logits, _, targets = draw(n=1000)
    predictions = Predictions.from_logits(1.5 * logits, targets)
    intervals = intervals_of(predictions, num_resamples=50)
    probs = predictions.probs.double()
    columns = {
        "accuracy": (probs.argmax(1) == targets).double(),
        "nll": -probs.gather(1, targets[:, None]).squeeze(1).log(),
        "brier": (probs - torch.nn.functional.one_hot(targets, 3)).square().sum(1),
    }
    for name, values in columns.items():
        half = 1.96 * values.std().item() / 1000**0.5
        low, high = intervals[name]
        assert (low + high) / 2 == pytest.approx(values.mean().item(), abs=0.1 * half)
        assert (high - low) / 2 == pytest.approx(half, rel=0.02)


def test_intervals_reach_zero_for_a_calibrated_model():
    logits, _, targets = draw(n=2000)
    evaluation = evaluate_predictions(Predictions.from_logits(logits, targets), num_resamples=200)
    for name in ERRORS:
        assert evaluation.figures[f"{name}_low"] == 0.0 < evaluation.figures[f"{name}_high"], name
    assert evaluation.as_dict()["one_sided"] == dict.fromkeys(ERRORS, "upper")


def test_streamed_intervals_are_those_of_rows_in_memory():
    logits, _, targets = draw(n=3000)
    streamed = StreamedScores(is_logits=True)
    for rows in torch.arange(3000).split(700):
        streamed.update(1.5 * logits[rows], targets[rows])
    expected = evaluate_predictions(Predictions.from_logits(1.5 * logits, targets)).figures
    for name, found in streamed.intervals().items():
        assert found == pytest.approx((expected[f"{name}_low"], expected[f"{name}_high"]), abs=1e-6), name


def test_a_one_sided_interval_says_which_bound_it_gives():
    assert only_bound(0.01, 0.0, 0.02) == only_bound(0.03, 0.0, 0.02) == only_bound(0.0, 0.0, 0.3) == "upper"
    assert only_bound(1.0, 0.4, 1.0) == only_bound(0.73, 0.6, 0.73) == "lower"
    assert only_bound(0.015, 0.01, 0.02) is only_bound(0.5, 0.1, 0.2) is only_bound(0.5, np.nan, np.nan) is None


def test_bins_of_classes_scatter_as_labels_drawn_from_the_probabilities():
    """Of two classes, one's gaps are the other's, mirrored; of more, the bins' gaps have the correlations of labels."""
    _, probs, _ = draw(n=400, num_classes=2, dtype=torch.float64)
    said = Predictions.from_probs(probs, torch.zeros(400, dtype=torch.int64))
    _, noise = class_cells(said.inputs, class_statistics(said.inputs, 5), num_resamples=500)
    assert noise.shape == (500, 10)
    torch.testing.assert_close(noise[:, :5], -noise[:, 5:].flip(1), atol=1e-4, rtol=0.0)
    _, probs, _ = draw(n=300, num_classes=3, dtype=torch.float64)
    inputs = Predictions.from_probs(probs, torch.zeros(300, dtype=torch.int64)).inputs
    cells, noise = class_cells(inputs, class_statistics(inputs, 2), 20_000)
    generator = torch.Generator().manual_seed(0)
    drawn = torch.multinomial(probs, 20_000, replacement=True, generator=generator).T  # (R, n)
    is_class = torch.nn.functional.one_hot(drawn, 3).double() - probs
    sums = torch.stack(
        [(is_class[:, :, k] * (part[:, k])).sum(1) for k in range(3) for part in (probs <= 0.5, probs > 0.5)], 1
    )
    assert cells.counts.tolist() == [int((part[:, k]).sum()) for k in range(3) for part in (probs <= 0.5, probs > 0.5)]
    torch.testing.assert_close(torch.corrcoef(noise.double().T), torch.corrcoef(sums.T), atol=0.15, rtol=0.0)
    torch.testing.assert_close(noise.var(0), torch.ones(6), atol=0.05, rtol=0.0)


def test_smoothing_keeps_mass_and_reflects():
    kernel = reflected_kernel(50, 0.1, torch.device("cpu"))
    torch.testing.assert_close(kernel.sum(1), torch.ones(50, dtype=torch.float64))
    assert kernel[0, 0] > 1.9 * kernel[25, 25] and kernel[0].argmax() == 0 and kernel[30].argmax() == 30
    torch.testing.assert_close(reflected_kernel(50, 0.0, torch.device("cpu")), torch.eye(50, dtype=torch.float64))


def test_an_evaluation_holds_every_figure_and_valid_json():
    _, probs, targets = draw(n=300)
    evaluation = evaluate_predictions(Predictions.from_probs(probs, targets, NAMES, "net"), num_resamples=20)
    assert set(evaluation.figures) == set(FIGURES)
    for name in MEASURES:
        assert 0.0 <= evaluation.figures[f"{name}_low"] < evaluation.figures[f"{name}_high"], name
    assert [figures.name for figures in evaluation.classes] == list(NAMES)
    assert sum(figures.samples for figures in evaluation.classes) == 300
    found = evaluation.as_dict()
    assert set(found["coverage_at_risk"]) == {"0.01", "0.02", "0.05"}
    assert found["brier"] == pytest.approx(found["brier_calibration"] + found["brier_refinement"])
    few = evaluate_predictions(Predictions.from_probs(probs[:20], targets[:20], NAMES), num_resamples=10)
    assert few.warning.startswith("20 samples are too few for 15 bins")


def test_the_seed_is_that_of_every_interval():
    logits, _, targets = draw(n=300)
    first, second = (
        evaluate_predictions(Predictions.from_logits(2.0 * logits, targets), num_resamples=10, seed=seed).figures
        for seed in (0, 1)
    )
    for name in ERRORS:
        assert first[name] == second[name] and first[f"{name}_high"] != second[f"{name}_high"], name
    for name in ("accuracy", "nll", "brier"):  # nothing is drawn for these
        assert first[f"{name}_high"] == second[f"{name}_high"], name


def test_an_infinite_likelihood_is_null_in_json():
    probs = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    evaluation = evaluate_predictions(Predictions.from_probs(probs, torch.tensor([0, 1, 1, 1])), num_resamples=10)
    assert evaluation.figures["nll"] == float("inf") and evaluation.as_dict()["nll"] is None


def test_one_sample_and_one_class_are_defined():
    one = evaluate_predictions(Predictions.from_probs(torch.tensor([[0.7, 0.3]]), torch.tensor([0])), num_resamples=10)
    assert one.figures["accuracy"] == 1.0 and one.gain is None and one.confused == []
    assert one.classes[1].recall is None and one.classes[1].precision is None


def test_scores_that_only_rounding_makes_equal_keep_their_order():
    logits, _, targets = draw(n=300, dtype=torch.float64)
    tiny = evaluate_predictions(Predictions.from_logits(1e-30 * logits, targets), num_resamples=10)
    right = (logits.argmax(1) == targets).double().mean().item()
    assert (
        tiny.figures["accuracy"] == pytest.approx(right) and f"is right {right:.1%}".replace("%", " %") in tiny.verdict
    )
    assert tiny.figures["accuracy_low"] <= right <= tiny.figures["accuracy_high"]
    assert sum(pair.samples for pair in tiny.confused) == round(300 * (1.0 - right))


def test_an_infinite_likelihood_is_infinite_before_temperature_too():
    probs = torch.eye(2)[torch.arange(100) % 2]
    evaluation = evaluate_predictions(Predictions.from_probs(probs, (torch.arange(100) + 1) // 2 % 2), num_resamples=10)
    assert evaluation.figures["nll"] == evaluation.gain.nll_before == float("inf")
    assert evaluation.as_dict()["temperature_scaling"]["nll_before"] is None


def test_a_gain_helps_where_both_figures_fall():
    figures = {"temperature": 2.0, "nll_before": 0.5, "ece_before": 0.1, "at_bound": False}
    for nll, ece, helps in ((0.4, 0.05, True), (0.4, 0.2, False), (0.6, 0.05, False)):
        gain = TemperatureGain(**figures, nll_after=nll, ece_after=ece, temperatures=torch.ones(3))
        assert gain.helps == helps and gain.as_dict() == {**figures, "nll_after": nll, "ece_after": ece}


def test_a_temperature_at_a_bound_is_marked():
    logits = torch.eye(3)[torch.arange(60) % 3]
    assert temperature_gain(logits=logits, targets=(torch.arange(60) + 1) % 3).at_bound
    logits, _, targets = draw(n=300)
    assert not temperature_gain(logits=logits, targets=targets).at_bound


@pytest.mark.parametrize(("target", "expected"), [(0, (0.4385, 1.0)), (1, (0.0, 0.5615))])
def test_three_of_three_are_not_certain(target, expected):
    """The accuracy has Wilson's interval: resampling three right answers would give no width."""
    said = Predictions.from_probs(torch.tensor([[0.9, 0.1]] * 3), torch.full((3,), target))
    assert intervals_of(said, num_resamples=10)["accuracy"] == pytest.approx(expected, abs=1e-4)
