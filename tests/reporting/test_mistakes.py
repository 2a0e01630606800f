"""The surest mistakes and the most frequent confusions, against plain loops."""

from collections import Counter

import pytest
import torch
from tests.reporting.samples import some_predictions

from metacal.errors import InvalidValueError
from metacal.evaluation import Predictions
from metacal.reporting.mistakes import prepare_mistakes


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
