"""Beta calibration against an independent optimiser."""

import numpy as np
import pytest
from scipy.optimize import minimize

from metacal.posthoc import (
    BetaCalibration,
)


def test_beta_is_the_constrained_optimum():
    generator = np.random.default_rng(0)
    p = np.clip(generator.random(1500), 1e-3, 1 - 1e-3)
    y = (generator.random(1500) < p**1.7).astype(int)
    beta = BetaCalibration().fit(probs=p, targets=y)

    def objective(w):
        s = w[0] * np.log(p) - w[1] * np.log1p(-p) + w[2]
        return (np.logaddexp(0, s) - y * s).mean()

    best = minimize(objective, [1.0, 1.0, 0.0], bounds=[(0, None), (0, None), (None, None)])
    assert objective(beta.coefficients_[1]) == pytest.approx(best.fun, abs=1e-6)
    np.testing.assert_allclose(beta.coefficients_[1], best.x, atol=0.03)


def test_beta_never_turns_a_class_round():
    generator = np.random.default_rng(0)
    p = generator.random(800)
    y = (generator.random(800) < 1 - 0.3 * p).astype(int)  # runs against the probability
    beta = BetaCalibration().fit(probs=p, targets=y)
    assert (beta.coefficients_[:, :2] >= 0).all()
    assert beta.fit_report_.converged
    said = beta.predict_proba(probs=np.linspace(0.01, 0.99, 50))
    assert (np.diff(said) >= -1e-12).all()
