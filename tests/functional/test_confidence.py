"""Confidence and correctness: the top label is argmax's first, whatever ties and chunks there are."""

import pytest
import torch
from tests.functional import samples

from metacal.functional import inputs as inputs_module
from metacal.functional.confidence import confidence_and_correctness
from metacal.functional.inputs import read_inputs

CHUNKS = [1, 7, 64, inputs_module.CHUNK_ELEMENTS]


def tied_scores(num_classes, seed=0):
    """Rows with every kind of tie: all equal, the top shared by some, the bottom shared by some, none."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, 3, (200, num_classes), generator=generator).float()
    scores[:20] = 1.0
    scores[-20:] = torch.randn(20, num_classes, generator=generator)
    return scores, torch.randint(num_classes, (200,), generator=generator)


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("num_classes", [2, 3, 4, 10])
def test_top_ties_go_to_the_first_class(monkeypatch, num_classes, chunk):
    monkeypatch.setattr(inputs_module, "CHUNK_ELEMENTS", chunk)
    scores, targets = tied_scores(num_classes)
    expected = scores.argmax(1) == targets
    assert expected.any() and (~expected).any()
    probs = (scores + 1.0).exp()
    probs = probs / probs.sum(1, keepdim=True)
    for keywords in ({"logits": scores}, {"probs": probs}, {"probs": probs.half()}):
        winners = next(iter(keywords.values())).float().argmax(1)
        confidences, correct = confidence_and_correctness(read_inputs(**keywords, targets=targets))
        assert torch.equal(correct, winners == targets)
        top = keywords.get("probs", torch.softmax(scores, 1)).amax(1).float()
        torch.testing.assert_close(confidences, top, rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("dtype", samples.DTYPES)
@pytest.mark.parametrize("level", [0.0, 0.3, -3.3, 100.3, 1000.3, 10_000.3])
def test_rows_of_equal_logits_predict_class_0(level, dtype):
    for num_classes in (2, 3, 4, 10):
        logits = torch.full((num_classes, num_classes), level, dtype=dtype)
        confidences, correct = confidence_and_correctness(read_inputs(logits=logits, targets=torch.arange(num_classes)))
        assert correct.tolist() == [True] + [False] * (num_classes - 1)
        expected = torch.full((num_classes,), 1 / num_classes, dtype=torch.float64)
        torch.testing.assert_close(confidences.double(), expected, rtol=1e-6, atol=0.0)


def test_rows_of_equal_probs_predict_class_0():
    for num_classes in (2, 3, 7):
        probs = torch.full((num_classes, num_classes), 1 / num_classes)
        _, correct = confidence_and_correctness(read_inputs(probs=probs, targets=torch.arange(num_classes)))
        assert correct.tolist() == [True] + [False] * (num_classes - 1)


def test_events_are_measured_as_yes():
    confidences, correct = confidence_and_correctness(
        read_inputs(logits=torch.tensor([-2.0, 0.0, 2.0]), targets=torch.tensor([1, 0, 1]))
    )
    torch.testing.assert_close(confidences, torch.sigmoid(torch.tensor([-2.0, 0.0, 2.0])))
    assert correct.tolist() == [True, False, True]
