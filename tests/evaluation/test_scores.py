"""Scores of predictions: each figure is its function's, on made and on real predictions."""

import numpy as np
import pytest
import torch
from tests.evaluation.files import draw
from tests.functional import samples

from metacal import functional as F
from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.evaluation import Predictions, evaluate_predictions
from metacal.evaluation.evaluation import ERRORS
from metacal.evaluation.scores import Binned, class_cells, only_bound, reflected_kernel, score_predictions
from metacal.functional.calibration_errors import class_statistics

FUNCTIONS = {
    "nll": F.negative_log_likelihood,
    "brier": F.brier_score,
    "brier_calibration": lambda **keywords: F.brier_decomposition(**keywords).calibration,
    "brier_refinement": lambda **keywords: F.brier_decomposition(**keywords).refinement,
    "ece": F.expected_calibration_error,
    "mce": lambda **keywords: F.expected_calibration_error(**keywords, norm="max"),
    "adaptive_ece": F.adaptive_calibration_error,
    "classwise_ece": F.classwise_calibration_error,
    "debiased_ece_l2": F.debiased_calibration_error,
    "sweep_ece": F.sweep_calibration_error,
    "smooth_ece": F.smooth_calibration_error,
}


@pytest.mark.parametrize("dtype", samples.DTYPES)
def test_every_figure_is_its_function(dtype):
    keywords = samples.draw("multiclass", n=300, inputs="probs", dtype=dtype)
    scores = score_predictions(**keywords).as_dict()
    assert set(scores) == {"accuracy", "ece_low", "ece_high", *FUNCTIONS}
    for name, function in FUNCTIONS.items():
        assert scores[name] == pytest.approx(function(**keywords).item(), abs=1e-12), name
    _, correct, _ = samples.read("multiclass", keywords)
    assert scores["accuracy"] == pytest.approx(correct.mean())
    interval = F.calibration_error_interval(**keywords)
    assert (scores["ece_low"], scores["ece_high"]) == (interval.low.item(), interval.high.item())


def test_num_bins_is_passed_on():
    keywords = samples.draw("multiclass", n=300, inputs="probs")
    scores = score_predictions(**keywords, num_bins=4)
    for name in ("ece", "mce", "adaptive_ece", "classwise_ece", "debiased_ece_l2"):
        expected = FUNCTIONS[name](**keywords, num_bins=4).item()
        assert getattr(scores, name) == pytest.approx(expected, abs=1e-12), name


def test_bad_predictions():
    probs, targets = samples.draw("multiclass", inputs="probs").values()
    with pytest.raises(InvalidValueError, match=r"`targets` must lie in 0\.\.3, got"):
        score_predictions(probs=probs, targets=targets + 4)
    with pytest.raises(InvalidValueError, match=r"`probs` must have rows that sum to 1"):
        score_predictions(probs=probs * 0.9, targets=targets)
    with pytest.raises(InvalidTypeError, match=r"`num_bins` must be an integer >= 1, got 1\.5"):
        score_predictions(probs=probs, targets=targets, num_bins=1.5)


@pytest.mark.data
@pytest.mark.parametrize(
    ("file", "accuracy", "ece"),
    [("wideresnet-16-4-cifar-10.npz", 0.9109, 0.0537), ("densenet-bc-100-cifar-100.npz", 0.7541, 0.1422)],
)
def test_real_predictions(data_folder, file, accuracy, ece):
    with np.load(data_folder / "predictions" / file, allow_pickle=False) as arrays:
        probs, targets = torch.tensor(arrays["predictions"]), torch.tensor(arrays["ground_truth"]).reshape(-1)
    scores = score_predictions(probs=probs, targets=targets)
    assert (round(scores.accuracy, 4), round(scores.ece, 4)) == (accuracy, ece)
    assert scores.ece_low < scores.ece < scores.ece_high


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
    assert evaluation.to_dict()["nll_low"] is None
    assert evaluation.one_sided["accuracy"] == "upper"
    # Always wrong: no model with these confidences could have a higher error.
    assert evaluation.one_sided["ece"] == "lower"
    assert 0.6 < figures["ece_low"] < figures["ece"]


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
    assert evaluation.to_dict()["one_sided"] == dict.fromkeys(ERRORS, "upper")


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
    assert kernel[0, 0] > 1.9 * kernel[25, 25]
    assert kernel[0].argmax() == 0
    assert kernel[30].argmax() == 30
    torch.testing.assert_close(reflected_kernel(50, 0.0, torch.device("cpu")), torch.eye(50, dtype=torch.float64))


def test_the_seed_is_that_of_every_interval():
    logits, _, targets = draw(n=300)
    first, second = (
        evaluate_predictions(Predictions.from_logits(2.0 * logits, targets), num_resamples=10, seed=seed).figures
        for seed in (0, 1)
    )
    for name in ERRORS:
        assert first[name] == second[name], name
        assert first[f"{name}_high"] != second[f"{name}_high"], name
    for name in ("accuracy", "nll", "brier"):  # nothing is drawn for these
        assert first[f"{name}_high"] == second[f"{name}_high"], name


@pytest.mark.parametrize(("target", "expected"), [(0, (0.4385, 1.0)), (1, (0.0, 0.5615))])
def test_three_of_three_are_not_certain(target, expected):
    """The accuracy has Wilson's interval: resampling three right answers would give no width."""
    said = Predictions.from_probs(torch.tensor([[0.9, 0.1]] * 3), torch.full((3,), target))
    assert intervals_of(said, num_resamples=10)["accuracy"] == pytest.approx(expected, abs=1e-4)
