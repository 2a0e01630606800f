"""Scores of predictions: each figure is its function's, on made and on real predictions."""

import numpy as np
import pytest
import torch
from tests.functional import samples

from metacal import functional as F
from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.evaluation.scores import score_predictions

FUNCTIONS = {
    "nll": F.negative_log_likelihood,
    "brier": F.brier_score,
    "brier_calibration": lambda **keywords: F.brier_decomposition(**keywords).calibration,
    "brier_refinement": lambda **keywords: F.brier_decomposition(**keywords).refinement,
    "ece": F.expected_calibration_error,
    "mce": lambda **keywords: F.expected_calibration_error(**keywords, norm="max"),
    "adaptive_ece": F.adaptive_calibration_error,
    "classwise_ece": F.classwise_calibration_error,
    "debiased_ece": F.debiased_calibration_error,
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
    for name in ("ece", "mce", "adaptive_ece", "classwise_ece", "debiased_ece"):
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
