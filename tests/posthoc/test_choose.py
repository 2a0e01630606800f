"""The calibrator with the best cross-validated likelihood is chosen."""

import numpy as np
import pytest
import torch
from tests.posthoc.samples import drawn

from metacal.errors import InvalidValueError
from metacal.posthoc import CALIBRATORS, choose, choose_calibrator


def test_choosing_by_cross_validation():
    logits, targets = drawn(n=900, num_classes=3, sharpened=3.0, seed=3)
    name, trials = choose_calibrator(logits=logits, targets=targets)
    by_name = {trial.name: trial for trial in trials}
    level = [t.name for t in trials if t.behind is not None and "dropped" not in t.note and t.behind <= t.behind_error]
    assert name == level[0] == "temperature"
    assert min(t.behind for t in trials if t.behind is not None) == 0.0
    assert by_name["none"].accuracy == by_name["temperature"].accuracy == pytest.approx(0.6, abs=0.15)
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


def test_behind_is_the_paired_difference_on_the_same_folds():
    """Recomputed by a loop over the folds."""
    logits, targets = drawn(n=400, num_classes=3, sharpened=3.0, seed=3)
    _, trials = choose_calibrator(logits=logits, targets=targets)
    best = min((t for t in trials if t.nll is not None and "dropped" not in t.note), key=lambda t: t.nll)
    order = torch.randperm(400, generator=torch.Generator().manual_seed(0)).numpy()
    losses = {}
    for name in {best.name, "temperature", "vector"}:
        losses[name] = np.zeros(400)
        for fold in range(5):
            out = order[fold::5]
            used = np.setdiff1d(np.arange(400), out)
            said = CALIBRATORS[name]().fit(logits=logits[used], targets=targets[used]).predict_proba(logits=logits[out])
            losses[name][out] = -np.log(said.numpy()[np.arange(80), targets[out].numpy()])
    for trial in trials:
        if trial.name in losses and "dropped" not in trial.note:
            difference = losses[trial.name] - losses[best.name]
            assert trial.nll == pytest.approx(losses[trial.name].mean())
            assert trial.behind == pytest.approx(difference.mean(), abs=1e-12)
            assert trial.behind_error == pytest.approx(difference.std(ddof=1) / 20, abs=1e-12)


def test_what_is_far_behind_is_dropped(monkeypatch):
    """Plain matrices are not tried where the one under priors is hopeless, and others end after a fold."""
    monkeypatch.setattr(choose, "HOPELESS", 0.0)
    logits, targets = drawn(n=1500, num_classes=3, sharpened=1.0, seed=5)
    _, trials = choose_calibrator(logits=logits, targets=targets)
    by_name = {trial.name: trial for trial in trials}
    assert by_name["histogram"].note.startswith("dropped after 1 of 5 folds")
    assert by_name["histogram"].behind > 0.0
    assert by_name["matrix"].nll is None
    assert by_name["matrix"].note == "not tried: structured_matrix, the same under priors, is far behind"
    assert by_name["none"].note == ""


def test_none_is_chosen_where_nothing_helps():
    logits, targets = drawn(n=1500, num_classes=3, sharpened=1.0, seed=5)
    name, trials = choose_calibrator(logits=logits, targets=targets)
    assert name == "none"
    none = next(trial for trial in trials if trial.name == "none")
    assert none.keeps_predictions
    assert all(t.nll is None or t.nll > none.nll - 0.006 for t in trials)
