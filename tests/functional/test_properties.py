"""What holds of every measure, metric and loss whatever the samples: found out by hypothesis."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.functional.subjects import EXEMPT, PROPERTIES, SUBJECTS, figures, score_name

from metacal import functional as F
from metacal import losses as L
from metacal import metrics as M

QUICK = settings(max_examples=12, deadline=None, derandomize=True, database=None)
EXTREMES = [0.0, -0.0, 1e-40, -1e-40, 1.0, -1.0, 20.0, 88.0, 1e4, -1e4, 1e38, -1e38]
BEYOND = [*EXTREMES, 3e38, -3e38]  # so far apart that float32 cannot hold the difference


def every_subject(of):
    """Run a test for every subject that is not exempt from the property."""
    chosen = [subject for subject in SUBJECTS if of not in subject.exempt]
    return pytest.mark.parametrize("subject", chosen, ids=[subject.name for subject in chosen])


def test_all_that_is_public_has_every_property_or_a_reason():
    assert {subject.name for subject in SUBJECTS} | EXEMPT.keys() == {*F.__all__, *M.__all__, *L.__all__}
    assert not {subject.name for subject in SUBJECTS} & EXEMPT.keys()
    for subject in SUBJECTS:
        assert set(subject.exempt) < set(PROPERTIES), subject.name
        assert all(subject.exempt.values())
    for name in PROPERTIES:
        assert f"test_{name}" in globals()


@st.composite
def batches(draw, least=1):
    """Logits in eighths (so that ties happen and shifts are exact) and targets."""
    n, num_classes = draw(st.integers(least, 30)), draw(st.integers(2, 5))
    size = n * num_classes
    eighths = np.frombuffer(draw(st.binary(min_size=size, max_size=size)), dtype=np.int8)
    targets = np.frombuffer(draw(st.binary(min_size=n, max_size=n)), dtype=np.uint8) % num_classes
    return torch.from_numpy(eighths / np.float32(8)).reshape(n, num_classes), torch.from_numpy(targets.astype(np.int64))


def exact_probs(logits):
    """Probabilities near the softmax, in 64ths that sum to 1: the same numbers in float32 as in float64."""
    counts = (torch.softmax(logits.double(), 1) * 64).floor()
    counts[:, 0] += 64 - counts.sum(1)
    return (counts / 64).float()


def outcomes_of(logits, targets):
    """Labels that are yes for the target's column and those after it."""
    return (targets.unsqueeze(1) <= torch.arange(logits.shape[1])).long()


def given_to(subject, logits, targets):
    """One batch for each kind that the subject takes."""
    if "probs" in subject.takes:
        yield {"probs": exact_probs(logits), "targets": targets}
    if "logits" in subject.takes:
        yield {"logits": logits, "targets": targets}
    if "labels" in subject.takes:
        yield {"probs": exact_probs(logits), "targets": outcomes_of(logits, targets), "multilabel": True}


def rows_of(batch, rows):
    return {name: value[rows] if isinstance(value, torch.Tensor) else value for name, value in batch.items()}


def assert_agree(subject, one, other, at_least=0.0):
    tolerance = max(subject.tolerance, at_least)
    torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@every_subject("order")
@QUICK
@given(batch=batches(), data=st.data())
def test_order(subject, batch, data):
    order = torch.tensor(data.draw(st.permutations(range(len(batch[1])))))
    for each in given_to(subject, *batch):
        assert_agree(subject, subject.figures(**rows_of(each, order)), subject.figures(**each))


@every_subject("duplication")
@QUICK
@given(batch=batches())
def test_duplication(subject, batch):
    twice = torch.arange(len(batch[1])).repeat(2)
    for each in given_to(subject, *batch):
        assert_agree(subject, subject.figures(**rows_of(each, twice)), subject.figures(**each), at_least=1e-12)


@every_subject("classes")
@QUICK
@given(batch=batches(), data=st.data())
def test_classes(subject, batch, data):
    logits, targets = batch
    # Ties at the top go to the first class, and so do depend on names: each class gets its own fraction of an eighth.
    logits = logits.double() + torch.arange(logits.shape[1]) / 64
    names = torch.tensor(data.draw(st.permutations(range(logits.shape[1]))))
    for each in given_to(subject, logits, targets):
        name = score_name(each)
        scores = logits if name == "logits" else torch.softmax(logits, 1)
        renamed = each["targets"][:, names] if "multilabel" in each else torch.argsort(names)[each["targets"]]
        one = subject.figures(**each | {name: scores})
        other = subject.figures(**each | {name: scores[:, names], "targets": renamed})
        assert_agree(subject, one, other, at_least=1e-9)


@every_subject("batches")
@QUICK
@given(batch=batches(), data=st.data())
def test_batches(subject, batch, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(batch[1])), max_size=4)))
    for each in given_to(subject, *batch):
        metric = subject.new(each)
        for rows in torch.tensor_split(torch.arange(len(batch[1])), cuts):
            metric.update(each[score_name(each)][rows], each["targets"][rows])
        assert_agree(subject, figures(metric.compute()), subject.figures(**each))


@every_subject("dtype")
@QUICK
@given(batch=batches())
def test_dtype(subject, batch):
    for each in given_to(subject, *batch):
        name = score_name(each)
        if name == "probs" or not subject.is_binned:
            wide = subject.figures(**each | {name: each[name].double()})
            assert_agree(subject, subject.figures(**each), wide, at_least=1e-5 if name == "logits" else 0.0)


@every_subject("extremes")
@QUICK
@given(data=st.data())
def test_extremes(subject, data):
    n, num_classes = data.draw(st.integers(1, 6)), data.draw(st.integers(2, 4))
    values = st.sampled_from(BEYOND if "labels" in subject.takes else EXTREMES)
    row = st.lists(values, min_size=num_classes, max_size=num_classes)
    logits = torch.tensor(data.draw(st.lists(row, min_size=n, max_size=n)))
    targets = torch.tensor(data.draw(st.lists(st.integers(0, num_classes - 1), min_size=n, max_size=n)))
    for each in given_to(subject, logits, targets):
        each = each | ({"logits": logits} if each.pop("probs", None) is not None else {})
        found = subject.figures(**each)
        assert (found >= -1e-6).all() and (found <= subject.most).all(), found
        if not subject.is_binned and "dtype" not in subject.exempt and found.isfinite().all():
            assert_agree(subject, found, subject.figures(**each | {"logits": logits.double()}), at_least=1e-5)


@every_subject("arrays")
@QUICK
@given(batch=batches())
def test_arrays(subject, batch):
    for each in given_to(subject, *batch):
        arrays = {name: value.numpy() if isinstance(value, torch.Tensor) else value for name, value in each.items()}
        result = subject.call(**arrays)
        assert torch.equal(figures(result), subject.figures(**each))
        is_tensor = [isinstance(part, torch.Tensor) for part in (result if isinstance(result, tuple) else (result,))]
        assert all(is_tensor) if subject.name in M.__all__ else not any(is_tensor)


@every_subject("events")
@QUICK
@given(batch=batches())
def test_events(subject, batch):
    """Labels are so many samples of a binary model; the one logit of a sample in training is the pair (0, z)."""
    logits, targets = batch
    if "single" in subject.takes:
        one, yes = logits[:, 0], targets % 2
        pair = torch.stack((torch.zeros_like(one), one), 1)
        for scores in (one, one.unsqueeze(1)):
            assert_agree(
                subject, subject.figures(logits=scores, targets=yes), subject.figures(logits=pair, targets=yes)
            )
        return
    outcomes = outcomes_of(logits, targets)
    for name, scores in (("logits", logits), ("probs", exact_probs(logits))):
        flat = subject.figures(**{name: scores.reshape(-1), "targets": outcomes.reshape(-1)})
        column = subject.figures(**{name: scores.reshape(-1, 1), "targets": outcomes.reshape(-1, 1)})
        assert_agree(subject, column, flat)
        if subject.is_pooled:
            assert_agree(subject, subject.figures(**{name: scores, "targets": outcomes, "multilabel": True}), flat)


@QUICK
@given(batch=batches(least=2), data=st.data())
def test_statistics_of_parts_add_up(batch, data):
    cut = data.draw(st.integers(1, len(batch[1]) - 1))
    whole = {"probs": exact_probs(batch[0]), "targets": batch[1]}
    first, rest = (F.bin_statistics(**rows_of(whole, rows)) for rows in (slice(cut), slice(cut, None)))
    assert torch.equal(figures(first + rest), figures(F.bin_statistics(**whole)))


@pytest.mark.parametrize(
    ("function", "own"),
    [
        (F.expected_calibration_error, {"num_bins": 1}),  # no sample can cross an edge by rounding
        (F.classwise_calibration_error, {"num_bins": 1}),
        (F.smooth_calibration_error, {}),
        (F.brier_score, {}),
        (F.negative_log_likelihood, {}),
        (F.cross_entropy, {}),
    ],
)
@QUICK
@given(batch=batches(), shift=st.integers(-1000, 1000))
def test_a_constant_added_to_the_logits_changes_nothing(function, own, batch, shift):
    logits, targets = batch
    one, other = (function(logits=logits + by, targets=targets, **own).double() for by in (0, shift))
    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


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
    norms = (F.expected_calibration_error(logits=logits, targets=targets, norm=norm) for norm in ("l1", "l2", "max"))
    l1, l2, largest = norms
    assert l1 <= l2 + 1e-12 and l2 <= largest + 1e-12 and not math.isnan(l1)
