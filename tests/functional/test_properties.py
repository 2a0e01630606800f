"""What holds of every calibration error whatever the samples: found out by hypothesis."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from metacal import functional as F

ERRORS = {
    "expected": F.expected_calibration_error,
    "expected l2": lambda **keywords: F.expected_calibration_error(**keywords, norm="l2"),
    "expected max": lambda **keywords: F.expected_calibration_error(**keywords, norm="max"),
    "adaptive": F.adaptive_calibration_error,
    "classwise": F.classwise_calibration_error,
    "debiased": F.debiased_calibration_error,
    "sweep": F.sweep_calibration_error,
    "smooth": F.smooth_calibration_error,
}
QUICK = settings(max_examples=25, deadline=None, derandomize=True, database=None)
EXACT = [name for name in ERRORS if name != "smooth"]  # sums of integers: the same to the bit in any order


@st.composite
def batches(draw):
    """Multiclass logits on a grid of eighths (so that ties happen and shifts are exact) and targets."""
    n, num_classes = draw(st.integers(1, 40)), draw(st.integers(2, 6))
    eighths = st.lists(st.integers(-80, 80), min_size=n * num_classes, max_size=n * num_classes)
    logits = torch.tensor(draw(eighths), dtype=torch.float32).reshape(n, num_classes) / 8
    targets = draw(st.lists(st.integers(0, num_classes - 1), min_size=n, max_size=n))
    return logits, torch.tensor(targets)


@pytest.mark.parametrize("name", ERRORS)
@QUICK
@given(batch=batches())
def test_lies_in_the_unit_interval(name, batch):
    logits, targets = batch
    for keywords in ({"logits": logits}, {"probs": torch.softmax(logits, 1)}):
        assert 0.0 <= ERRORS[name](**keywords, targets=targets).item() <= 1.0 + 1e-9


@pytest.mark.parametrize("name", ERRORS)
@QUICK
@given(batch=batches(), data=st.data())
def test_order_of_samples_does_not_matter(name, batch, data):
    logits, targets = batch
    order = torch.tensor(data.draw(st.permutations(range(len(targets)))))
    one = ERRORS[name](logits=logits, targets=targets)
    other = ERRORS[name](logits=logits[order], targets=targets[order])
    if name in EXACT:
        assert torch.equal(one, other)
    else:
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ERRORS)
@QUICK
@given(batch=batches(), data=st.data())
def test_names_of_classes_do_not_matter(name, batch, data):
    logits, targets = batch
    # Ties at the top go to the first class, and so do depend on names: each class gets its own fraction of an eighth.
    logits = logits + torch.arange(logits.shape[1]) / 64
    names = torch.tensor(data.draw(st.permutations(range(logits.shape[1]))))
    probs = torch.softmax(logits.double(), 1)
    one = ERRORS[name](probs=probs, targets=targets)
    other = ERRORS[name](probs=probs[:, names], targets=torch.argsort(names)[targets])
    torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["expected", "classwise", "smooth"])
@QUICK
@given(batch=batches(), shift=st.integers(-1000, 1000))
def test_a_constant_added_to_the_logits_changes_nothing(name, batch, shift):
    """One bin: no sample can cross an edge by rounding."""
    logits, targets = batch
    arguments = {} if name == "smooth" else {"num_bins": 1}
    one = ERRORS[name](logits=logits, targets=targets, **arguments)
    other = ERRORS[name](logits=logits + shift, targets=targets, **arguments)
    torch.testing.assert_close(one, other, rtol=0.0, atol=1e-6)


@QUICK
@given(batch=batches())
def test_probabilities_of_logits_give_what_logits_give(batch):
    logits, targets = batch
    for function in (F.brier_score, F.negative_log_likelihood):
        from_logits = function(logits=logits.double(), targets=targets)
        from_probs = function(probs=torch.softmax(logits.double(), 1), targets=targets)
        torch.testing.assert_close(from_logits, from_probs, rtol=1e-9, atol=1e-9)


@QUICK
@given(batch=batches())
def test_norms_are_ordered(batch):
    logits, targets = batch
    l1, l2, largest = (ERRORS[name](logits=logits, targets=targets) for name in list(ERRORS)[:3])
    assert l1 <= l2 + 1e-12 and l2 <= largest + 1e-12
