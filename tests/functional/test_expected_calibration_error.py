"""ECE, RMSCE and MCE against a loop, over dtypes, layouts, norms and numbers of bins; exact at millions of samples."""

import itertools

import numpy as np
import pytest
import torch
from tests import oracles
from tests.functional import samples

from metacal.errors import MetacalWarning
from metacal.functional import expected_calibration_error

NORMS = ["l1", "l2", "max"]
NUM_BINS = [1, 2, 10, 15, 100]


@pytest.mark.parametrize("dtype", samples.DTYPES)
@pytest.mark.parametrize("inputs", ["logits", "probs"])
@pytest.mark.parametrize("layout", samples.LAYOUTS)
def test_equals_the_loop(layout, inputs, dtype):
    for ignore in (False, True):
        keywords = samples.draw(layout, inputs=inputs, dtype=dtype, ignore=ignore)
        confidences, correct, _ = samples.read(layout, keywords)
        for norm in NORMS:
            ours = expected_calibration_error(**keywords, norm=norm)
            assert ours.dtype == torch.float64 and ours.shape == ()
            expected = oracles.ece(confidences, correct, norm=norm)
            assert ours.item() == pytest.approx(expected, abs=samples.tolerance(keywords)), (norm, ignore)


@pytest.mark.parametrize(("n", "num_classes"), [(1, 2), (2, 3), (9, 2), (150, 10), (60, 100)])
@pytest.mark.parametrize("inputs", ["logits", "probs"])
def test_equals_the_loop_over_sizes_and_bins(n, num_classes, inputs):
    keywords = samples.draw("multiclass", n=n, num_classes=num_classes, inputs=inputs, seed=n)
    confidences, correct, _ = samples.read("multiclass", keywords)
    for num_bins, norm in itertools.product(NUM_BINS, NORMS):
        ours = expected_calibration_error(**keywords, num_bins=num_bins, norm=norm).item()
        expected = oracles.ece(confidences, correct, num_bins, norm)
        assert ours == pytest.approx(expected, abs=samples.tolerance(keywords)), (num_bins, norm)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exact_with_millions_of_samples_in_one_bin(dtype):
    """A float32 running sum stops growing at 2**24; ours is right to 1e-9."""
    n = 5_000_000
    probs = torch.full((n,), 0.905, dtype=dtype)
    probs[: n // 4] = 0.917
    targets = (torch.arange(n) % 100 < 83).long()
    low, high = (float(np.asarray(value, dtype=probs.numpy().dtype)) for value in (0.905, 0.917))
    expected = abs(0.83 - (0.75 * low + 0.25 * high))
    assert expected_calibration_error(probs=probs, targets=targets).item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("probs", "targets", "expected"),
    [
        ([0.0, 0.0], [0, 0], 0.0),
        ([1.0, 1.0], [1, 1], 0.0),
        ([0.0, 1.0], [1, 0], 1.0),
        ([0.2, 0.2, 0.2, 0.2, 0.2], [1, 0, 0, 0, 0], 0.0),
        ([1.0000001], [1], 0.0),  # rounding above 1 is 1, not a logit
        ([1.0000001], [0], 1.0),
    ],
)
def test_known_values(probs, targets, expected):
    value = expected_calibration_error(probs=torch.tensor(probs), targets=torch.tensor(targets)).item()
    assert value == pytest.approx(expected, abs=1e-7)


def test_logits_within_the_unit_interval_are_logits():
    scores, targets = torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([0, 1])
    as_probs = expected_calibration_error(probs=scores, targets=targets).item()
    with pytest.warns(MetacalWarning, match="`logits` look like probabilities"):
        as_logits = expected_calibration_error(logits=scores, targets=targets).item()
    confidences = oracles.softmax(scores.numpy()).max(axis=1)
    assert as_probs == pytest.approx(0.15, abs=1e-6)
    assert as_logits == pytest.approx(np.mean(1.0 - confidences), abs=1e-6)


def test_rows_of_probs_slightly_above_one_are_not_softmaxed_again():
    probs = torch.tensor([[1.0000001, 0.0], [0.0, 1.0000001]])
    assert expected_calibration_error(probs=probs, targets=torch.tensor([0, 1])).item() == 0.0


@pytest.mark.parametrize("offset", [0.0, 100.0, 20_000.0, -20_000.0])
def test_a_constant_added_to_the_logits_changes_nothing(offset):
    """Integers of this size are exact in float32, so the softmax is that of (0, 1) to rounding."""
    value = expected_calibration_error(logits=torch.tensor([[0.0, 1.0]]) + offset, targets=torch.tensor([1]))
    assert value.item() == pytest.approx(0.2689414, abs=1e-6)


def test_value_is_the_same_under_autocast_inference_mode_and_with_gradients():
    for inputs in ("logits", "probs"):
        keywords = samples.draw("multiclass", n=200, num_classes=10, inputs=inputs)
        plain = expected_calibration_error(**keywords)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(expected_calibration_error(**keywords), plain)
        with torch.inference_mode():  # first use of 37 bins: their edges are kept, and used again outside
            inside = expected_calibration_error(**keywords, num_bins=37)
        assert torch.equal(inside.clone(), expected_calibration_error(**keywords, num_bins=37))
        tracked = expected_calibration_error(**{**keywords, inputs: keywords[inputs].requires_grad_()})
        assert torch.equal(tracked, plain) and not tracked.requires_grad


@pytest.mark.data
@pytest.mark.parametrize(
    ("file", "accuracy", "ece"),
    [("wideresnet-16-4-cifar-10.npz", 0.9109, 0.0537), ("densenet-bc-100-cifar-100.npz", 0.7541, 0.1422)],
)
def test_real_predictions(data_folder, file, accuracy, ece):
    with np.load(data_folder / "predictions" / file, allow_pickle=False) as arrays:
        probs, targets = torch.tensor(arrays["predictions"]), torch.tensor(arrays["ground_truth"])
    targets = targets.reshape(-1).long()
    assert round((probs.argmax(1) == targets).double().mean().item(), 4) == accuracy
    assert round(expected_calibration_error(probs=probs, targets=targets).item(), 4) == ece
    confidences, correct = oracles.top_label(probs.numpy(), targets.numpy())
    expected = oracles.ece(confidences[:2000], correct[:2000])
    ours = expected_calibration_error(probs=probs[:2000], targets=targets[:2000]).item()
    assert ours == pytest.approx(expected, abs=1e-9)
