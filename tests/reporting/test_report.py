"""A whole report's numbers: names, order, JSON, and what is refused."""

import json

import pytest
import torch
from tests.reporting.samples import quick_report, some_predictions, some_run

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.evaluation import Predictions
from metacal.reporting import RunView, prepare_report


def test_subjects_in_order_with_names_of_their_own():
    said = some_predictions(samples=100)
    seen = []
    report = prepare_report([said, some_run(), said, said], num_resamples=5, progress=seen.append)
    names = ["made-up", "mc-non-uniform-seed-0", "made-up (2)", "made-up (3)"]
    assert [subject.name for subject in report.subjects] == names == seen
    assert report.comparison.names == ["made-up", "made-up (2)", "made-up (3)"]
    assert report.subjects[0].run is None and report.subjects[1].predictions is None


def test_a_run_with_predictions_has_both_parts():
    report = quick_report([some_run(predictions=some_predictions(samples=100))], title="Mine")
    (subject,) = report.subjects
    assert subject.run.curves and subject.predictions.summary.samples == 100
    assert report.title == "Mine" and report.comparison is None


def test_every_number_survives_json():
    report = quick_report([some_predictions(samples=3), some_run(predictions=some_predictions(samples=200))])
    figures = report.as_dict()
    assert json.loads(json.dumps(figures, allow_nan=False)) == figures


def test_a_hair_between_two_scores_decides_everywhere_alike():
    said = Predictions.from_logits(torch.tensor([[0.0, 1e-9]] * 40), torch.ones(40, dtype=torch.int64))
    (subject,) = quick_report([said]).subjects
    shown = subject.predictions
    assert shown.summary.accuracy == 1.0 and shown.mistakes.count == 0 and shown.risk_coverage.risks == [0.0]
    assert [row.predicted for row in shown.classes.rows] == [0, 40] and shown.classes.rows[1].recall == 1.0


def test_an_empty_run_says_so():
    (subject,) = quick_report([RunView("r", "m", "d", ("a", "b"), {})]).subjects
    assert (subject.run.smoothing, subject.run.superclasses, subject.run.l2) == (None, None, [])
    for learned in ({"smoothing": torch.full((2, 2), 0.1)}, {"superclasses": (0, 0)}):
        (other,) = quick_report([RunView("r", "m", "d", ("a", "b"), {}, **learned)]).subjects
        assert other.run.superclasses is None
    assert subject.run.is_empty and not quick_report([some_run()]).subjects[0].run.is_empty


def test_what_is_refused():
    with pytest.raises(InvalidValueError, match="`num_resamples` must be an integer >= 1, got 0"):
        prepare_report([some_run()], num_resamples=0)
    with pytest.raises(InvalidValueError, match="`subjects` must hold at least one set of predictions or run"):
        quick_report([])
    with pytest.raises(InvalidTypeError, match="`subjects` must be of type Predictions or RunView, got str"):
        quick_report(["predictions.npz"])


@pytest.mark.data
@pytest.mark.parametrize(
    ("file", "accuracy", "ece"),
    [("wideresnet-16-4-cifar-10", 0.9109, 0.0537), ("densenet-bc-100-cifar-100", 0.7541, 0.1422)],
)
def test_real_predictions(data_folder, file, accuracy, ece):
    from metacal.evaluation import read_predictions

    said = read_predictions(data_folder / "predictions" / f"{file}.npz")
    (subject,) = quick_report([said]).subjects
    summary, reliability = subject.predictions.summary, subject.predictions.reliability
    assert subject.name == file and summary.sentences[0].startswith("Over-confident")
    assert round(summary.accuracy, 4) == accuracy and round(reliability.given.ece, 4) == ece
    assert reliability.scaled[reliability.fitted_step].ece < ece / 5
