"""Vector, matrix and Dirichlet calibration against an independent optimiser."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from tests.posthoc.samples import drawn

from metacal.errors import InvalidValueError
from metacal.posthoc import (
    DirichletCalibration,
    MatrixScaling,
    VectorScaling,
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
    ours = log_loss(z * scaling.weight_ + scaling.bias_, y)
    assert ours == pytest.approx(best.fun, abs=1e-6)
    np.testing.assert_allclose(scaling.weight_, best.x[:3], rtol=0.02)
    np.testing.assert_allclose(scaling.bias_ - scaling.bias_.mean(), best.x[3:] - best.x[3:].mean(), atol=0.02)


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
    ours = objective(np.r_[calibrator.weight_.ravel(), calibrator.bias_])
    assert ours == pytest.approx(best.fun, abs=1e-6)
    assert calibrator.fit_report_.converged


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
        weight = MatrixScaling(off_diagonal_penalty=strength).fit(logits=logits, targets=targets).weight_
        sizes.append(np.abs(weight - np.diag(np.diag(weight))).sum())
    assert sizes[0] > sizes[1] > sizes[2]
    with pytest.raises(InvalidValueError, match="`bias_penalty` must be >= 0, got -1"):
        MatrixScaling(bias_penalty=-1).fit(logits=logits, targets=targets)
