"""The most confident mistakes, the most frequent confusions and the risk-coverage curve, against plain loops."""

from collections import Counter

import pytest
import torch
from tests.reporting.samples import some_predictions

from metacal.errors import InvalidValueError
from metacal.evaluation import Predictions
from metacal.reporting.mistakes import POINTS, prepare_mistakes, prepare_risk_coverage


def test_against_a_loop():
    said = some_predictions(samples=600)
    mistakes = prepare_mistakes(said, most=7, most_pairs=4)
    probs, names = said.probs, said.class_names
    wrong = [row for row in range(600) if int(probs[row].argmax()) != int(said.targets[row])]
    assert mistakes.count == len(wrong)
    assert mistakes.confident == sum(float(probs[row].max()) >= 0.9 for row in wrong)
    surest = sorted(wrong, key=lambda row: (-float(probs[row].max()), row))[:7]
    assert [one.row for one in mistakes.surest] == surest
    assert mistakes.surest[0].confidence == pytest.approx(float(probs[surest[0]].max()))
    assert mistakes.surest[0].actual_prob == pytest.approx(float(probs[surest[0], said.targets[surest[0]]]))
    pairs = Counter((names[said.targets[row]], names[probs[row].argmax()]) for row in wrong)
    assert [pair.count for pair in mistakes.pairs] == [count for _, count in pairs.most_common(4)]
    assert all(pairs[pair.actual, pair.predicted] == pair.count for pair in mistakes.pairs)


def test_equal_confidences_keep_the_order_of_rows():
    probs = torch.tensor([[0.8, 0.2]]).repeat(5, 1)
    mistakes = prepare_mistakes(Predictions.from_probs(probs, torch.tensor([1, 0, 1, 1, 0])))
    assert [one.row for one in mistakes.surest] == [0, 2, 3]
    assert [(pair.actual, pair.predicted, pair.count) for pair in mistakes.pairs] == [("1", "0", 3)]
    assert mistakes.pairs[0].confidence == pytest.approx(0.8)


def test_no_mistakes():
    mistakes = prepare_mistakes(Predictions.from_probs(torch.eye(3), torch.arange(3)))
    assert (mistakes.count, mistakes.confident, mistakes.surest, mistakes.pairs) == (0, 0, [], [])


@pytest.mark.parametrize("name", ["most", "most_pairs"])
def test_none_wanted(name):
    with pytest.raises(InvalidValueError, match=f"`{name}` must be an integer >= 1, got 0"):
        prepare_mistakes(some_predictions(samples=20), **{name: 0})


def test_the_curve_against_a_loop():
    said = some_predictions(samples=700)
    curve = prepare_risk_coverage(said)
    rows = sorted(range(700), key=lambda row: -float(said.probs[row].max()))
    wrong = [int(said.probs[row].argmax()) != int(said.targets[row]) for row in rows]
    risks = [sum(wrong[: k + 1]) / (k + 1) for k in range(700)]
    assert curve.aurc == pytest.approx(sum(risks) / 700, abs=1e-12)
    ranked = [max(0, k - (700 - sum(wrong))) / k for k in range(1, 701)]
    assert curve.best_aurc == pytest.approx(sum(ranked) / 700, abs=1e-12)
    assert len(curve.coverages) == POINTS and curve.coverages[-1] == 1.0
    for coverage, risk in zip(curve.coverages, curve.risks):
        assert risk == pytest.approx(risks[round(coverage * 700) - 1])
    allowed = [k for k, risk in enumerate(risks, start=1) if risk <= 0.05]
    assert curve.coverage_at["0.05"] == pytest.approx(max(allowed, default=0) / 700)


def test_equal_confidences_are_answered_together():
    probs = torch.tensor([[0.9, 0.1]] * 2 + [[0.6, 0.4]] * 2)
    curve = prepare_risk_coverage(Predictions.from_probs(probs, torch.tensor([0, 1, 0, 0])))
    assert curve.coverages == [0.5, 1.0] and curve.risks == [0.5, 0.25]
    assert curve.thresholds == pytest.approx([0.9, 0.6])
    # one mistake at rank 1 or 2 with equal chance: risks 1/2, 1/2, 1/3, 1/4
    assert curve.aurc == pytest.approx((1 / 2 + 1 / 2 + 1 / 3 + 1 / 4) / 4)
    assert curve.coverage_at == {"0.01": 0.0, "0.02": 0.0, "0.05": 0.0}


@pytest.mark.parametrize(("target", "aurc", "coverage"), [(0, 0.0, 1.0), (1, 1.0, 0.0)])
def test_always_right_and_always_wrong(target, aurc, coverage):
    curve = prepare_risk_coverage(Predictions.from_probs(torch.tensor([[0.7, 0.3]]), torch.tensor([target])))
    assert (curve.aurc, curve.best_aurc, curve.coverage_at["0.01"]) == (aurc, aurc, coverage)
