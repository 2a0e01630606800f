"""NLL against loops, torch and scikit-learn; its two parts add up, and the first is 0 for calibrated data."""

import math

import numpy as np
import pytest
import torch
from tests.functional import samples

from metacal.errors import InvalidValueError
from metacal.functional import likelihood_decomposition, negative_log_likelihood


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
