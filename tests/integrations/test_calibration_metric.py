"""The metric that Hugging Face `evaluate` loads from its file: figures of the functions, batch by batch too."""

import numpy as np
import pytest
from tests.reporting.samples import some_predictions

import metacal
from metacal import functional as F
from metacal.errors import InvalidValueError
from metacal.integrations import CALIBRATION_METRIC

evaluate = pytest.importorskip("evaluate")

FUNCTIONS = {
    "nll": F.negative_log_likelihood,
    "brier": F.brier_score,
    "ece": F.expected_calibration_error,
    "classwise_ece": F.classwise_calibration_error,
    "smooth_ece": F.smooth_calibration_error,
}


@pytest.fixture(scope="module")
def metric():
    return evaluate.load(CALIBRATION_METRIC)


@pytest.fixture(scope="module")
def said():
    return some_predictions(samples=300)


def test_figures_are_those_of_the_functions(metric, said):
    probs, targets = said.probs.double(), said.targets
    found = metric.compute(predictions=probs.numpy(), references=targets.numpy())
    assert list(found) == ["accuracy", "nll", "brier", "ece", "classwise_ece", "smooth_ece"]
    for name, function in FUNCTIONS.items():
        assert found[name] == pytest.approx(function(probs=probs, targets=targets).item(), abs=1e-9), name
    assert found["accuracy"] == pytest.approx((probs.argmax(1) == targets).double().mean().item())


def test_batches_lists_and_logits(metric, said):
    logits, labels = said.logits.tolist(), said.targets.tolist()
    for first in range(0, 300, 70):
        metric.add_batch(predictions=logits[first : first + 70], references=labels[first : first + 70])
    found = metric.compute(inputs="logits", num_bins=7)
    expected = F.expected_calibration_error(logits=said.logits, targets=said.targets, num_bins=7).item()
    assert found["ece"] == pytest.approx(expected, abs=1e-6)


def test_intervals_are_those_of_the_evaluation(metric, said):
    found = metric.compute(
        predictions=said.probs.double(), references=said.targets, intervals=True, num_resamples=50, seed=3
    )
    expected = metacal.evaluate(probs=said.probs.double(), targets=said.targets, num_resamples=50, seed=3).figures
    assert len(found) == 18
    for name, value in found.items():
        assert value == pytest.approx(expected[name], abs=1e-9), name


def test_a_binary_model(metric):
    probs, labels = np.array([0.9, 0.3, 0.6]), [1, 1, 0]
    found = metric.compute(predictions=probs, references=labels)
    both = metric.compute(predictions=np.stack((1 - probs, probs), 1), references=labels)
    logits = metric.compute(predictions=np.log(probs / (1 - probs)), references=labels, inputs="logits")
    assert found == pytest.approx(both, abs=1e-9) and found == pytest.approx(logits, abs=1e-6)
    assert found["brier"] == pytest.approx(2 * np.mean((probs - labels) ** 2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"predictions": [[2.0, -1.0]], "references": [0]}, r"must lie in \[0, 1\], got 2 in row 0.*inputs=\"logits\""),
        ({"predictions": [[0.5, 0.5]], "references": [2]}, "`targets` must lie in 0..1, got 2"),
        ({"predictions": [[0.5, 0.5]], "references": [0], "inputs": "log"}, "`inputs` must be one of .*, got 'log'"),
        ({"predictions": [[0.5, 0.5]], "references": [0], "num_bins": 0}, "`num_bins` must be an integer >= 1, got 0"),
    ],
)
def test_what_is_refused(metric, arguments, message):
    with pytest.raises(InvalidValueError, match=message):
        metric.compute(**arguments)
