"""Top-label files: confidences of every spelling, and the figures that need no more than these."""

import numpy as np
import pytest
from tests.evaluation.files import write

from metacal.errors import InvalidFileError
from metacal.evaluation import PredictionFile, evaluate_file, read_predictions
from metacal.evaluation.confidences import WORDS, find_correct, read_correct
from metacal.evaluation.evaluation import TOP_LABEL_FIGURES


def oracle(confidences, correct, num_bins=15):
    """Accuracy and ECE by a loop over bins."""
    bins = np.minimum((np.asarray(confidences) * num_bins).astype(int), num_bins - 1)
    gaps = [abs(np.sum((confidences - correct)[bins == number])) for number in range(num_bins)]
    return np.mean(correct), sum(gaps) / len(correct)


def draw(n=400):
    rng = np.random.default_rng(0)
    confidences = np.round(rng.uniform(0.3, 1.0, n), 3)
    predicted = rng.integers(0, 5, n)
    labels = np.where(rng.random(n) < 0.8 * confidences, predicted, (predicted + 1) % 5)
    return confidences, predicted, labels


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl", ".npz"])
@pytest.mark.parametrize("names", [("confidence", "prediction", "label"), ("score", "y_pred", "y_test")])
@pytest.mark.parametrize("scale", [1, 100])
def test_figures_of_confidence_prediction_label(suffix, names, scale, tmp_path):
    confidences, predicted, labels = draw()
    path = write(tmp_path / f"said{suffix}", dict(zip(names, (confidences * scale, predicted, labels))))
    evaluation = evaluate_file(PredictionFile(path, top_label=True), num_resamples=10)
    accuracy, ece = oracle(confidences, predicted == labels)
    assert set(evaluation.figures) == set(TOP_LABEL_FIGURES)
    assert evaluation.figures["accuracy"] == pytest.approx(accuracy, abs=1e-12)
    assert evaluation.figures["ece"] == pytest.approx(ece, abs=1e-9)
    assert evaluation.read["kind"] == "top-label confidence"
    assert "top-label figures only" in evaluation.read["notes"]
    assert ("percentages, divided by 100" in evaluation.read["notes"]) == (scale == 100)


def test_words_and_whether_it_was_right(tmp_path):
    path = tmp_path / "said.csv"
    path.write_text("confidence,correct\nlikely,true\n90%,False\nAlmost certain,1\n0.5,0\n")
    (batch,) = PredictionFile(path, top_label=True).batches()
    assert batch.scores.squeeze(1).tolist() == [WORDS["likely"], 0.9, WORDS["almost certain"], 0.5]
    assert batch.targets.tolist() == [1, 0, 1, 0]


def test_labels_are_compared_by_name_and_by_number():
    numbers = np.array([1.0, 2.0, 3.0])
    assert find_correct(numbers, np.array([1, 3, 3])).tolist() == [True, False, True]
    assert read_correct(np.array([True, False]), "correct").tolist() == [True, False]


def test_what_needs_every_class_refuses(tmp_path):
    path = tmp_path / "said.csv"
    path.write_text("confidence,prediction,label\n0.5,a,a\n")
    with pytest.raises(InvalidFileError, match="holds confidences in the predicted class alone"):
        read_predictions(path)
