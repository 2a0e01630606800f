"""NLL and Brier score, and their parts."""

import math

import numpy as np
import pytest
import torch
from tests import oracles
from tests.functional import samples

from metacal.errors import InvalidValueError
from metacal.functional import (
    brier_decomposition,
    brier_loss,
    brier_score,
    likelihood_decomposition,
    negative_log_likelihood,
)


def loop(layout, keywords):
    columns = samples.read(layout, keywords)[2]
    if layout in samples.EVENTS:
        chances = [float(p) if came else 1.0 - float(p) for column in columns for p, came in zip(*column)]
    else:
        chances = [float(p) for column in columns for p, came in zip(*column) if came]
    return math.fsum(-math.log(p) if p > 0 else math.inf for p in chances) / len(chances)


@pytest.mark.parametrize("dtype", samples.DTYPES)
@pytest.mark.parametrize("inputs", ["logits", "probs"])
@pytest.mark.parametrize("layout", samples.LAYOUTS)
def test_equals_the_loop(layout, inputs, dtype):
    for ignore in (False, True):
        keywords = samples.draw(layout, inputs=inputs, dtype=dtype, ignore=ignore)
        assert negative_log_likelihood(**keywords).item() == pytest.approx(loop(layout, keywords), abs=1e-6)


def test_equals_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    for layout, labels in (("multiclass", np.arange(4)), ("binary", [0, 1])):
        keywords = samples.draw(layout, n=300, inputs="probs", dtype=torch.float64)
        expected = metrics.log_loss(keywords["targets"].numpy(), keywords["probs"].numpy(), labels=labels)
        assert negative_log_likelihood(**keywords).item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("keywords", "expected"),
    [
        ({"probs": torch.tensor([[1.0, 0.0]]), "targets": torch.tensor([1])}, math.inf),
        ({"probs": torch.tensor([[1.0, 0.0]]), "targets": torch.tensor([0])}, 0.0),
        ({"probs": torch.tensor([1.0]), "targets": torch.tensor([0])}, math.inf),
        ({"probs": torch.tensor([1.0000001]), "targets": torch.tensor([0])}, math.inf),
        ({"probs": torch.tensor([1.0000001]), "targets": torch.tensor([1])}, 0.0),
        ({"logits": torch.tensor([-200.0]), "targets": torch.tensor([1])}, 200.0),
        ({"logits": torch.tensor([[0.0, 1e4]]), "targets": torch.tensor([0])}, 1e4),
        ({"logits": torch.tensor([[-3e38, 3e38]]), "targets": torch.tensor([0])}, 2 * float(torch.tensor(3e38))),
        ({"logits": torch.tensor([[20_000.0, 20_001.0]]), "targets": torch.tensor([1])}, math.log1p(math.exp(-1))),
    ],
)
def test_values_at_the_ends(keywords, expected):
    assert negative_log_likelihood(**keywords).item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("gap", [5.0, 20.0, 60.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_small_losses_are_not_lost(gap, dtype):
    """Of a sample that is right by this much, alone and beside a class that is tied with the rest."""
    yes, zero = torch.tensor([1]), torch.tensor([0])
    small = math.exp(-gap)
    for keywords, expected in (
        ({"logits": torch.tensor([[gap, 0.0]], dtype=dtype), "targets": zero}, math.log1p(small)),
        ({"logits": torch.tensor([[0.0, gap, 0.0]], dtype=dtype), "targets": yes}, math.log1p(2 * small)),
        ({"logits": torch.tensor([gap], dtype=dtype), "targets": yes}, math.log1p(small)),
        ({"probs": torch.tensor([small], dtype=dtype), "targets": zero}, -math.log1p(-small)),
    ):
        assert negative_log_likelihood(**keywords).item() == pytest.approx(expected, rel=1e-6, abs=0.0)


@pytest.mark.parametrize("inputs", ["logits", "probs"])
@pytest.mark.parametrize("dtype", samples.DTYPES)
def test_parts_add_up_and_the_refinement_is_the_least_over_temperatures(inputs, dtype):
    keywords = samples.draw("multiclass", n=500, inputs=inputs, dtype=dtype)
    parts = likelihood_decomposition(**keywords)
    whole = negative_log_likelihood(**keywords)
    assert (parts.calibration + parts.refinement).item() == pytest.approx(whole.item(), abs=1e-12)
    logits = keywords.get("logits", keywords.get("probs")).double()
    logits = logits if inputs == "logits" else logits.log()
    least = min(
        negative_log_likelihood(logits=logits / t, targets=keywords["targets"]).item() for t in np.linspace(1, 4, 301)
    )
    assert parts.refinement.item() == pytest.approx(least, abs=1e-4)
    assert parts.calibration > 0.01


def test_calibrated_data_have_no_calibration_part():
    probs = torch.tensor([[0.75, 0.25]] * 4)
    for keywords in ({"probs": probs}, {"logits": probs.log()}):
        parts = likelihood_decomposition(**keywords, targets=torch.tensor([0, 0, 0, 1]))
        assert parts.calibration.item() == pytest.approx(0.0, abs=1e-7)
        assert parts.refinement.item() == pytest.approx(0.5623351, abs=1e-6)


@pytest.mark.parametrize("inputs", ["logits", "probs"])
@pytest.mark.parametrize("layout", samples.CLASSES)
def test_parts_leave_ignored_labels_out(layout, inputs):
    keywords = samples.draw(layout, n=60, inputs=inputs, ignore=True)
    parts = likelihood_decomposition(**keywords)
    kept = keywords["targets"] != samples.IGNORED
    expected = likelihood_decomposition(
        **{inputs: keywords[inputs].movedim(1, -1)[kept]}, targets=keywords["targets"][kept]
    )
    assert parts == expected
    assert (parts.calibration + parts.refinement).item() == pytest.approx(negative_log_likelihood(**keywords).item())


@pytest.mark.parametrize("name", ["logits", "probs"])
def test_parts_are_of_classes(name):
    with pytest.raises(
        InvalidValueError, match=rf"`{name}` must have shape \(N, K, ...\) for targets \(N, ...\), got \(2,\)"
    ):
        likelihood_decomposition(**{name: torch.tensor([0.2, 0.7])}, targets=torch.tensor([0, 1]))


CALIBRATED = (torch.tensor([0.25] * 4 + [0.75] * 4), torch.tensor([1, 0, 0, 0, 1, 1, 1, 0]))


def brier_loop(layout, keywords):
    columns = samples.read(layout, keywords)[2]
    total = sum((float(p) - float(came)) ** 2 for column in columns for p, came in zip(*column))
    terms = sum(len(probs) for probs, _ in columns) if layout in samples.EVENTS else len(columns[0][0])
    return total / terms


@pytest.mark.parametrize("dtype", samples.DTYPES)
@pytest.mark.parametrize("inputs", ["logits", "probs"])
@pytest.mark.parametrize("layout", samples.LAYOUTS)
def test_equals_the_loop_of_the_brier_score(layout, inputs, dtype):
    for ignore in (False, True):
        keywords = samples.draw(layout, inputs=inputs, dtype=dtype, ignore=ignore)
        if layout not in samples.EVENTS and inputs == "probs" and dtype in (torch.float16, torch.bfloat16):
            continue  # rows of rounded probabilities do not sum to 1: below
        assert brier_score(**keywords).item() == pytest.approx(brier_loop(layout, keywords), abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_probs_equal_the_loop_on_the_same_values(dtype):
    keywords = samples.draw("multiclass", inputs="probs", dtype=dtype)
    assert brier_score(**keywords).item() == pytest.approx(brier_loop("multiclass", keywords), abs=1e-6)


def test_equals_scikit_learn_of_the_brier_score():
    metrics = pytest.importorskip("sklearn.metrics")
    probs, targets = samples.draw("multiclass", n=300, inputs="probs", dtype=torch.float64).values()
    expected = sum(metrics.brier_score_loss(targets.numpy() == k, probs[:, k].numpy()) for k in range(4))
    assert brier_score(probs=probs, targets=targets).item() == pytest.approx(expected, abs=1e-12)
    probs, targets = samples.draw("binary", n=300, inputs="probs", dtype=torch.float64).values()
    expected = metrics.brier_score_loss(targets.numpy(), probs.numpy())
    assert brier_score(probs=probs, targets=targets).item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("layout", samples.LAYOUTS)
def test_parts_add_up_to_the_score(layout):
    for ignore in (False, True):
        keywords = samples.draw(layout, n=200, inputs="probs", ignore=ignore)
        parts = brier_decomposition(**keywords)
        assert (parts.calibration + parts.refinement).item() == pytest.approx(brier_score(**keywords).item(), abs=1e-12)
        columns = samples.read(layout, keywords)[2]
        calibration = sum(len(column[0]) * oracles.ece(*column, norm="l2") ** 2 for column in columns)
        terms = sum(len(column[0]) for column in columns) if layout in samples.EVENTS else len(columns[0][0])
        assert parts.calibration.item() == pytest.approx(calibration / terms, abs=1e-9)
        assert parts.calibration > 0.001 and parts.refinement > 0.001


@pytest.mark.parametrize("gap", [5.0, 20.0, 40.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_small_distances_are_not_lost(gap, dtype):
    missing = 1.0 / (1.0 + math.exp(gap))
    for logits, target, expected in (([[gap, 0.0]], 0, 2 * missing**2), ([gap], 1, missing**2)):
        keywords = {"logits": torch.tensor(logits, dtype=dtype), "targets": torch.tensor([target])}
        assert brier_score(**keywords).item() == pytest.approx(expected, rel=1e-5, abs=0.0)
        parts = brier_decomposition(**keywords)
        assert math.copysign(1.0, parts.refinement.item()) == 1.0 and parts.calibration >= 0.0
    loss = brier_loss(logits=torch.tensor([[gap, 0.0]], dtype=dtype), targets=torch.tensor([0]))
    assert loss.item() == pytest.approx(2 * missing**2, rel=1e-5, abs=0.0)


def test_calibrated_data_have_no_calibration_part_of_the_brier_score():
    probs, targets = CALIBRATED
    for scores in (probs, torch.stack((1 - probs, probs), 1)):
        parts = brier_decomposition(probs=scores, targets=targets)
        assert parts.calibration.item() == pytest.approx(0.0, abs=1e-15)
        assert parts.refinement.item() == pytest.approx(0.1875 * (scores.ndim), abs=1e-9)


@pytest.mark.parametrize(("reduction", "expected"), [("mean", 0.5), ("sum", 1.0), ("none", [0.5, 0.5])])
def test_loss_reductions(reduction, expected):
    value = brier_loss(logits=torch.zeros(2, 2), targets=torch.tensor([0, 1]), reduction=reduction)
    assert value.tolist() == expected


def test_loss_is_the_score():
    logits, targets = samples.multiclass(dtype=torch.float64)
    expected = brier_score(logits=logits, targets=targets).item()
    assert brier_loss(logits=logits, targets=targets).item() == pytest.approx(expected, abs=1e-12)
