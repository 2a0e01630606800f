"""Structured scaling: optimal, the same in any order of the classes, near temperature scaling where there is little."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from tests.posthoc.samples import drawn

from metacal.errors import MetacalWarning
from metacal.functional import negative_log_likelihood
from metacal.posthoc import (
    StructuredMatrixScaling,
    StructuredVectorScaling,
    TemperatureScaling,
    regression,
    structured_scaling,
)
from metacal.posthoc.structured_scaling import fit_structured

both = pytest.mark.parametrize("kind", [StructuredVectorScaling, StructuredMatrixScaling])


def skewed(n, num_classes=4, seed=0):
    """Logits of which one class is drawn more often and another more rarely than they say."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2.0 * torch.randn(n, num_classes, generator=generator, dtype=torch.float64)
    shift = torch.zeros(num_classes, dtype=torch.float64)
    shift[0], shift[-1] = 1.0, -1.0
    targets = torch.multinomial(torch.softmax(logits + shift, 1), 1, generator=generator).squeeze(1)
    return 3.0 * logits, targets


@both
def test_reaches_the_optimum_that_scipy_finds(kind):
    logits, targets = skewed(300, 3)
    calibrator = kind().fit(logits=logits, targets=targets)
    features = calibrator._features(logits)
    is_matrix = kind is StructuredMatrixScaling
    fit = fit_structured(features, targets, is_matrix=is_matrix)
    x, y, precisions = features.numpy(), targets.numpy(), fit.precisions.numpy()

    def loss(parameters):
        change, bias = parameters[:-3], parameters[-3:]
        scores = x @ (np.eye(3) + change.reshape(3, 3)).T + bias if is_matrix else x * (1.0 + change) + bias
        nll = np.log(np.exp(scores).sum(1)) - scores[np.arange(len(y)), y]
        return nll.sum() + 0.5 * (precisions * parameters**2).sum()

    best = minimize(loss, np.zeros(len(precisions)), method="BFGS", options={"gtol": 1e-4})
    found = np.concatenate(((fit.weight - torch.eye(3) if is_matrix else fit.weight - 1.0).reshape(-1), fit.bias))
    assert loss(found) == pytest.approx(best.fun, abs=1e-5)
    np.testing.assert_allclose(found, best.x, atol=1e-3)
    np.testing.assert_allclose(calibrator.weight_, fit.weight)


@both
@pytest.mark.parametrize("num_classes", [10, 40])
def test_reaches_the_optimum_with_many_classes(kind, num_classes):
    """Above some size of the problem the curvature is approximated."""
    logits, targets = skewed(800, num_classes, seed=1)
    features = kind().fit(logits=logits, targets=targets)._features(logits)
    is_matrix = kind is StructuredMatrixScaling
    fit = fit_structured(features, targets, is_matrix=is_matrix)

    def loss(values):
        parameters = torch.as_tensor(values).requires_grad_()
        change, bias = parameters[:-num_classes], parameters[-num_classes:]
        more = features @ change.view(num_classes, -1).T if is_matrix else features * change
        nll = torch.nn.functional.cross_entropy(features + more + bias, targets, reduction="sum")
        value = nll + 0.5 * (fit.precisions * parameters.square()).sum()
        value.backward()
        return value.item(), parameters.grad.numpy()

    options = {"maxiter": 5000, "maxfun": 5000, "ftol": 1e-15, "gtol": 1e-7}
    best = minimize(loss, np.zeros(len(fit.precisions)), jac=True, method="L-BFGS-B", options=options)
    one = torch.eye(num_classes) if is_matrix else 1.0
    found = torch.cat(((fit.weight - one).reshape(-1), fit.bias)).numpy()
    assert fit.converged
    assert loss(found)[0] == pytest.approx(best.fun, abs=1e-6 * len(targets))
    np.testing.assert_allclose(found, best.x, atol=2e-3)


@both
@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_the_classes_does_not_matter(kind, seed):
    logits, targets = skewed(200, 5, seed)
    order = torch.randperm(5, generator=torch.Generator().manual_seed(seed))
    said = kind().fit(logits=logits, targets=targets).predict_proba(logits=logits)
    moved = kind().fit(logits=logits[:, order], targets=order.argsort()[targets]).predict_proba(logits=logits[:, order])
    torch.testing.assert_close(moved, said[:, order], rtol=1e-5, atol=1e-7)


@both
def test_the_order_of_many_classes_does_not_matter(kind):
    logits, targets = skewed(600, 40)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    said = kind().fit(logits=logits, targets=targets).predict_proba(logits=logits)
    moved = kind().fit(logits=logits[:, order], targets=order.argsort()[targets]).predict_proba(logits=logits[:, order])
    torch.testing.assert_close(moved, said[:, order], rtol=1e-3, atol=1e-5)


@both
def test_better_than_temperature_where_classes_differ(kind):
    logits, targets = skewed(6000)
    one, other = slice(0, 1000), slice(1000, None)
    losses = [
        float(
            negative_log_likelihood(
                probs=each().fit(logits=logits[one], targets=targets[one]).predict_proba(logits=logits[other]),
                targets=targets[other],
            )
        )
        for each in (kind, TemperatureScaling)
    ]
    assert losses[0] < losses[1] - 0.05


@both
def test_few_samples_give_about_temperature_scaling(kind):
    logits, targets = drawn(n=40, num_classes=20)
    rest, truth = drawn(n=4000, num_classes=20, seed=1)
    losses = [
        float(
            negative_log_likelihood(
                probs=each().fit(logits=logits, targets=targets).predict_proba(logits=rest), targets=truth
            )
        )
        for each in (kind, TemperatureScaling)
    ]
    assert losses[0] < losses[1] + 0.1


@both
def test_finite_and_never_0(kind):
    """Fewer samples than classes, a class that is missing, probabilities of 0, and all samples right."""
    logits, targets = drawn(n=12, num_classes=30)
    probs = torch.softmax(20.0 * logits, 1)
    probs[probs < 1e-3] = 0.0
    probs /= probs.sum(1, keepdim=True)
    separable = 50.0 * torch.eye(3, dtype=torch.float64).repeat(10, 1)
    for name, scores, labels in (
        ("logits", logits, targets),
        ("probs", probs, targets),
        ("logits", skewed(300, 4)[0], skewed(300, 4)[1].clamp(max=2)),
    ):
        said = kind().fit(**{name: scores}, targets=labels).predict_proba(**{name: scores})
        assert bool(said.isfinite().all())
        assert float(said.min()) > 0.0
    with pytest.warns(MetacalWarning, match="All 30 samples are right after the fit"):
        fitted = kind().fit(logits=separable, targets=torch.arange(3).repeat(10))
    assert float(fitted.predict_proba(logits=1e6 * separable).min()) > 0.0


@both
def test_float32_scores_give_the_same_calibrator(kind):
    logits, targets = skewed(500)
    wide = kind().fit(logits=logits.float().double(), targets=targets)
    narrow = kind().fit(logits=logits.float(), targets=targets)
    np.testing.assert_allclose(narrow.weight_, wide.weight_, atol=1e-5)
    np.testing.assert_allclose(narrow.bias_, wide.bias_, atol=1e-5)


@both
def test_says_when_it_did_not_converge(kind, monkeypatch):
    monkeypatch.setattr(regression, "MAX_ITERATIONS", 1)
    logits, targets = skewed(500)
    with pytest.warns(MetacalWarning, match="did not converge in [12] iterations"):
        fitted = kind().fit(logits=logits, targets=targets)
    assert not fitted.fit_report_.converged


@both
def test_many_scores_are_fitted_in_float32_to_the_same_optimum(kind, monkeypatch):
    logits, targets = skewed(6000)
    narrow = kind().fit(logits=logits, targets=targets)
    monkeypatch.setattr(structured_scaling, "MANY", len(logits) * 4)
    wide = kind().fit(logits=logits, targets=targets)
    assert not np.array_equal(narrow.weight_, wide.weight_)
    assert narrow.fit_report_.iterations <= wide.fit_report_.iterations + 2  # rounding does not make it creep
    np.testing.assert_allclose(narrow.weight_, wide.weight_, atol=2e-4)
    np.testing.assert_allclose(narrow.predict_proba(logits=logits), wide.predict_proba(logits=logits), atol=1e-4)


@both
def test_chunks_do_not_matter(kind, monkeypatch):
    logits, targets = skewed(500)
    whole = kind().fit(logits=logits, targets=targets)
    monkeypatch.setattr(regression, "CHUNK", 28)
    parts = kind().fit(logits=logits, targets=targets)
    np.testing.assert_allclose(parts.weight_, whole.weight_, atol=1e-6)
