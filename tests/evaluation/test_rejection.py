"""Rejecting by confidence: selective risk against loops, detection against scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score, roc_curve

from metacal.errors import InvalidValueError
from metacal.evaluation import (
    detection,
    ood_figures,
    risk_coverage,
)


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
        assert curve.coverage_at_risk(0.2) == 0.25
        assert curve.coverage_at_risk(0.25) == 1.0
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
