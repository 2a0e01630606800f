"""Binary models: ranking and thresholds against scikit-learn, and that no name stands for two numbers."""

import json

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, f1_score, precision_score, recall_score, roc_auc_score

import metacal
from metacal.evaluation.decisions import average_precision, roc_auc, threshold_table
from metacal.functional import expected_calibration_error

FAST = ["--resamples", "10"]


def binary(n, seed=0, digits=None):
    rng = np.random.default_rng(seed)
    z = rng.normal(-0.5, 1.5, n)
    probs = 1 / (1 + np.exp(-z))
    return (probs if digits is None else probs.round(digits)), (rng.random(n) < 1 / (1 + np.exp(-0.7 * z))).astype(int)


@pytest.mark.parametrize(("n", "digits"), [(500, None), (500, 1), (40, None), (5000, 2)])
def test_ranking_is_that_of_scikit_learn(n, digits):
    probs, targets = binary(n, seed=3, digits=digits)
    scores, is_positive = torch.from_numpy(probs), torch.from_numpy(targets == 1)
    area, low, high = roc_auc(scores, is_positive)
    assert area == pytest.approx(roc_auc_score(targets, probs), abs=1e-12)
    assert average_precision(scores, is_positive) == pytest.approx(average_precision_score(targets, probs), abs=1e-12)
    assert low < area < high


def test_interval_of_the_area_covers():
    """DeLong's interval holds the area of a large sample in about 95 % of data sets."""
    truth = roc_auc_score(*reversed(binary(400_000, seed=99)))
    held = 0
    for seed in range(300):
        probs, targets = binary(200, seed=seed)
        _, low, high = roc_auc(torch.from_numpy(probs), torch.from_numpy(targets == 1))
        held += low <= truth <= high
    assert 0.92 < held / 300 < 0.98


@pytest.mark.parametrize("digits", [None, 1])
def test_thresholds_are_those_of_scikit_learn(digits):
    probs, targets = binary(800, digits=digits)
    table = threshold_table(torch.from_numpy(probs), torch.from_numpy(targets == 1))
    assert [row.threshold for row in table] == sorted(row.threshold for row in table)
    best = max(f1_score(targets, probs >= value) for value in np.unique(probs))
    assert [row.f1 for row in table if row.is_best] == [pytest.approx(best, abs=1e-12)]
    for row in table:
        called = probs >= row.threshold
        assert row.share_positive == pytest.approx(called.mean(), abs=1e-12)
        assert row.precision == pytest.approx(precision_score(targets, called), abs=1e-12)
        assert row.recall == pytest.approx(recall_score(targets, called), abs=1e-12)
        assert row.f1 == pytest.approx(f1_score(targets, called), abs=1e-12)


def test_one_class_alone():
    scores = torch.tensor([0.2, 0.6])
    assert np.isnan(roc_auc(scores, torch.tensor([False, False]))).all()
    assert np.isnan(average_precision(scores, torch.tensor([False, False])))
    table = threshold_table(scores, torch.tensor([False, False]))
    assert table[-1].precision is None
    assert table[-1].recall is None
    assert roc_auc(scores, torch.tensor([False, True]))[0] == 1.0


def test_each_name_is_one_number(tmp_path, metacal):
    probs, targets = binary(1000)
    whole = metacal_evaluate(probs, targets)
    positive = expected_calibration_error(probs=probs, targets=targets)
    top = expected_calibration_error(probs=np.stack((1 - probs, probs), 1), targets=targets)
    assert whole["positive_ece"] == pytest.approx(positive, abs=1e-12)
    assert whole["ece"] == pytest.approx(top, abs=1e-12)
    (tmp_path / "said.csv").write_text("p,y\n" + "".join(f"{p!r},{y}\n" for p, y in zip(probs.tolist(), targets)))
    gates = ["--fail-below", "roc_auc=0.6", "--fail-above", "positive_ece=0.5"]
    status, output, _ = metacal("evaluate", tmp_path / "said.csv", "--json", tmp_path / "scores.json", *gates, *FAST)
    assert status == 0
    found = json.loads((tmp_path / "scores.json").read_text())
    for name in ("positive_ece", "ece", "roc_auc", "average_precision"):
        assert found[name] == pytest.approx(whole[name], abs=1e-9), name
    assert "P(class 1), equal width" in output
    assert "top label, equal width" in output
    assert "(best F1)" in output
    assert len(found["thresholds"]) == 10


def metacal_evaluate(probs, targets):
    return metacal.evaluate(probs=probs, targets=targets, num_resamples=10).to_dict()


def test_models_of_more_classes_have_none_of_this(tmp_path, metacal):
    (tmp_path / "said.csv").write_text("p_a,p_b,p_c,y\n" + "0.2,0.3,0.5,c\n0.6,0.3,0.1,a\n" * 9)
    status, _, errors = metacal("evaluate", tmp_path / "said.csv", "--fail-below", "roc_auc=0.6", *FAST)
    assert status == 2
    assert "said.csv: has no roc_auc, which only binary models have; name another figure." in errors
