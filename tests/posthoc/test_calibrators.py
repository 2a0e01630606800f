"""Each calibrator against an independent computation of the same thing."""

import itertools

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.isotonic import IsotonicRegression
from tests.posthoc.samples import drawn

from metacal.errors import InvalidValueError
from metacal.posthoc import (
    BetaCalibration,
    DirichletCalibration,
    HistogramBinning,
    IsotonicCalibration,
    MatrixScaling,
    VectorScaling,
    choose_calibrator,
)


def log_loss(logits, targets):
    shifted = logits - logits.max(1, keepdims=True)
    return (np.log(np.exp(shifted).sum(1)) - shifted[np.arange(len(targets)), targets]).mean()


def test_vector_scaling_is_the_optimum():
    logits, targets = drawn(n=1500, num_classes=3)
    logits[:, 1] += 1.0
    scaling = VectorScaling().fit(logits=logits, targets=targets)
    z, y = logits.numpy(), targets.numpy()
    best = minimize(lambda w: log_loss(z * w[:3] + w[3:], y), np.r_[np.ones(3), np.zeros(3)], method="BFGS")
    ours = log_loss(z * scaling.weight + scaling.bias, y)
    assert ours == pytest.approx(best.fun, abs=1e-6)
    np.testing.assert_allclose(scaling.weight, best.x[:3], rtol=0.02)
    np.testing.assert_allclose(scaling.bias - scaling.bias.mean(), best.x[3:] - best.x[3:].mean(), atol=0.02)


@pytest.mark.parametrize(("kind", "off", "bias"), [(MatrixScaling, 0.1, 0.01), (DirichletCalibration, 0.02, 0.5)])
def test_matrix_and_dirichlet_are_the_penalised_optimum(kind, off, bias):
    logits, targets = drawn(n=1500, num_classes=3)
    calibrator = kind(off_diagonal_penalty=off, bias_penalty=bias).fit(logits=logits, targets=targets)
    features, y = logits, targets.numpy()
    if kind is DirichletCalibration:
        features = torch.log_softmax(features, 1)
    x = features.numpy()

    def objective(parameters):
        weight, offset = parameters[:9].reshape(3, 3), parameters[9:]
        rest = (weight**2).sum() - (np.diag(weight) ** 2).sum()
        return log_loss(x @ weight.T + offset, y) + off * rest / 6 + bias * (offset**2).mean()

    best = minimize(objective, np.r_[np.eye(3).ravel(), np.zeros(3)], method="BFGS")
    ours = objective(np.r_[calibrator.weight.ravel(), calibrator.bias])
    assert ours == pytest.approx(best.fun, abs=1e-6) and calibrator.fit_report.converged


def test_dirichlet_ignores_a_constant_in_the_logits():
    logits, targets = drawn(n=400)
    shift = torch.linspace(-5, 5, 400, dtype=torch.float64).unsqueeze(1)
    plain = DirichletCalibration().fit(logits=logits, targets=targets).predict_proba(logits=logits)
    shifted = DirichletCalibration().fit(logits=logits + shift, targets=targets).predict_proba(logits=logits + shift)
    torch.testing.assert_close(plain, shifted)


def test_a_stronger_penalty_gives_a_smaller_off_diagonal():
    logits, targets = drawn(n=400)
    sizes = []
    for strength in (0.0, 1.0, 100.0):
        weight = MatrixScaling(off_diagonal_penalty=strength).fit(logits=logits, targets=targets).weight
        sizes.append(np.abs(weight - np.diag(np.diag(weight))).sum())
    assert sizes[0] > sizes[1] > sizes[2]
    with pytest.raises(InvalidValueError, match="`bias_penalty` must be >= 0, got -1"):
        MatrixScaling(bias_penalty=-1).fit(logits=logits, targets=targets)


@pytest.mark.parametrize("binning", ["equal_mass", "equal_width"])
def test_histogram_binning_by_hand(binning):
    logits, targets = drawn(n=900, num_classes=2)
    probs = torch.softmax(logits, 1)[:, 1].numpy()
    y = targets.numpy()
    binned = HistogramBinning(num_bins=6, binning=binning).fit(probs=probs, targets=y)
    edges = np.linspace(0, 1, 7) if binning == "equal_width" else np.r_[0.0, np.sort(probs)[149:-1:150], 1.0]
    for low, high in itertools.pairwise(edges):
        inside = (probs > low) & (probs <= high)
        assert inside.any()
        said = binned.predict_proba(probs=probs[inside])
        np.testing.assert_allclose(said, y[inside].mean(), atol=0.02)  # both classes have bins of their own


def test_an_empty_bin_keeps_its_middle_and_a_row_of_zeros_its_probabilities():
    probs = np.array([[0.05, 0.95]] * 10 + [[0.95, 0.05]] * 10)
    binned = HistogramBinning(num_bins=10, binning="equal_width").fit(probs=probs, targets=np.arange(20) % 2)
    np.testing.assert_allclose(binned.predict_proba(probs=np.array([[0.45, 0.55]])), [[0.45, 0.55]])
    one = HistogramBinning(num_bins=1)
    with pytest.warns(UserWarning, match="All 4 targets"):
        one.fit(probs=np.full((4, 3), 1 / 3), targets=np.zeros(4, int))
    np.testing.assert_allclose(one.predict_proba(probs=np.full((1, 3), 1 / 3)), [[1.0, 0.0, 0.0]])


def test_isotonic_is_scikit_learns():
    logits, targets = drawn(n=700, num_classes=3)
    probs, y = torch.softmax(logits, 1).numpy(), targets.numpy()
    fresh = torch.softmax(drawn(n=200, num_classes=3, seed=1)[0] * 3, 1).numpy()
    expected = np.stack(
        [
            IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(probs[:, k], y == k).predict(fresh[:, k])
            for k in range(3)
        ],
        axis=1,
    )
    said = IsotonicCalibration().fit(probs=probs, targets=y).predict_proba(probs=fresh)
    np.testing.assert_allclose(said, expected / expected.sum(1, keepdims=True), atol=1e-9)


def test_beta_is_the_constrained_optimum():
    generator = np.random.default_rng(0)
    p = np.clip(generator.random(1500), 1e-3, 1 - 1e-3)
    y = (generator.random(1500) < p**1.7).astype(int)
    beta = BetaCalibration().fit(probs=p, targets=y)

    def objective(w):
        s = w[0] * np.log(p) - w[1] * np.log1p(-p) + w[2]
        return (np.logaddexp(0, s) - y * s).mean()

    best = minimize(objective, [1.0, 1.0, 0.0], bounds=[(0, None), (0, None), (None, None)])
    assert objective(beta.coefficients[1]) == pytest.approx(best.fun, abs=1e-6)
    np.testing.assert_allclose(beta.coefficients[1], best.x, atol=0.03)


def test_beta_never_turns_a_class_round():
    generator = np.random.default_rng(0)
    p = generator.random(800)
    y = (generator.random(800) < 1 - 0.3 * p).astype(int)  # runs against the probability
    beta = BetaCalibration().fit(probs=p, targets=y)
    assert (beta.coefficients[:, :2] >= 0).all() and beta.fit_report.converged
    said = beta.predict_proba(probs=np.linspace(0.01, 0.99, 50))
    assert (np.diff(said) >= -1e-12).all()


def test_choosing_by_cross_validation():
    logits, targets = drawn(n=900, num_classes=3, sharpened=3.0, seed=3)
    name, trials = choose_calibrator(logits=logits, targets=targets)
    by_name = {trial.name: trial for trial in trials}
    assert name == min((t for t in trials if t.nll is not None), key=lambda t: t.nll).name
    assert by_name["temperature"].nll < 0.7 * by_name["none"].nll
    assert by_name["isotonic"].nll == np.inf and "probability of 0" in by_name["isotonic"].note
    assert choose_calibrator(logits=logits, targets=targets) == (name, trials)  # seeded
    few_name, few = choose_calibrator(logits=drawn(n=40, num_classes=10)[0], targets=drawn(n=40, num_classes=10)[1])
    untried = next(trial for trial in few if trial.name == "matrix")
    assert untried.nll is None and untried.note == "not tried: 110 parameters for 40 samples" and few_name
    with pytest.raises(InvalidValueError, match="`targets` must hold at least 10 samples to choose by, got 5"):
        choose_calibrator(logits=logits[:5], targets=targets[:5])


def test_none_is_chosen_where_nothing_helps():
    logits, targets = drawn(n=1500, num_classes=3, sharpened=1.0, seed=5)
    _, trials = choose_calibrator(logits=logits, targets=targets)
    none = next(trial for trial in trials if trial.name == "none")
    assert none.keeps_predictions and all(t.nll is None or t.nll > none.nll - 0.006 for t in trials)
