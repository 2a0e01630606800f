"""The calibrator with the best cross-validated likelihood is chosen."""

import numpy as np
import pytest
from tests.posthoc.samples import drawn

from metacal.errors import InvalidValueError
from metacal.posthoc import (
    choose_calibrator,
)


def test_choosing_by_cross_validation():
    logits, targets = drawn(n=900, num_classes=3, sharpened=3.0, seed=3)
    name, trials = choose_calibrator(logits=logits, targets=targets)
    by_name = {trial.name: trial for trial in trials}
    assert name == min((t for t in trials if t.nll is not None), key=lambda t: t.nll).name
    assert by_name["temperature"].nll < 0.7 * by_name["none"].nll
    assert np.isfinite(by_name["isotonic"].nll)
    assert choose_calibrator(logits=logits, targets=targets) == (name, trials)  # seeded
    few_name, few = choose_calibrator(logits=drawn(n=40, num_classes=10)[0], targets=drawn(n=40, num_classes=10)[1])
    untried = next(trial for trial in few if trial.name == "matrix")
    assert untried.nll is None
    assert untried.note == "not tried: 110 parameters for 40 samples"
    assert few_name
    with pytest.raises(InvalidValueError, match="`targets` must hold at least 10 samples to choose by, got 5"):
        choose_calibrator(logits=logits[:5], targets=targets[:5])


def test_none_is_chosen_where_nothing_helps():
    logits, targets = drawn(n=1500, num_classes=3, sharpened=1.0, seed=5)
    _, trials = choose_calibrator(logits=logits, targets=targets)
    none = next(trial for trial in trials if trial.name == "none")
    assert none.keeps_predictions
    assert all(t.nll is None or t.nll > none.nll - 0.006 for t in trials)
