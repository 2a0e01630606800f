"""`PosthocCalibratedClassifier`: calibrators around classifiers of scikit-learn."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from metacal.errors import InvalidTypeError, InvalidValueError, MetacalWarning
from metacal.functional import expected_calibration_error
from metacal.integrations.sklearn import PosthocCalibratedClassifier
from metacal.posthoc import CALIBRATORS, IsotonicCalibration, TemperatureScaling


@pytest.mark.filterwarnings("ignore::metacal.errors.MetacalWarning")
@parametrize_with_checks([PosthocCalibratedClassifier(LogisticRegression(C=0.1))])
def test_scikit_learn_accepts_it(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def digits():
    return load_digits(return_X_y=True)


def ece(probs, targets):
    return float(expected_calibration_error(probs=torch.from_numpy(probs), targets=torch.from_numpy(targets)))


@pytest.mark.filterwarnings("ignore:The fit did not converge:metacal.errors.MetacalWarning")
@pytest.mark.parametrize("method", ["auto", *CALIBRATORS])
def test_a_fitted_classifier_is_mended(method):
    """Neighbours that vote with probabilities of 0 and 1 most of the time."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(2000, 2))
    y = (X[:, 0] + generator.normal(size=2000) > 0).astype(int) + (X[:, 1] > 0.5)
    neighbours = KNeighborsClassifier(4).fit(X[:500], y[:500])
    found = PosthocCalibratedClassifier(neighbours, method).fit(X[500:1000], y[500:1000])
    assert found.estimator_ is neighbours
    assert neighbours.n_samples_fit_ == 500
    assert ece(found.predict_proba(X[1000:]), y[1000:]) < 0.8 * ece(neighbours.predict_proba(X[1000:]), y[1000:])


def test_it_is_the_calibrator_itself(digits):
    X, y = digits
    bayes = GaussianNB().fit(X[:700], y[:700])
    found = PosthocCalibratedClassifier(bayes).fit(X[700:1300], y[700:1300])
    scaling = TemperatureScaling(method="prior").fit(probs=bayes.predict_proba(X[700:1300]), targets=y[700:1300])
    np.testing.assert_array_equal(found.predict_proba(X), scaling.predict_proba(probs=bayes.predict_proba(X)))


def test_few_separable_samples_keep_the_temperature_near_1():
    """The likelihood alone falls all the way to its bound, .001."""
    X = np.array([[-3.0], [-2.0], [2.0], [3.0]] * 5)
    y = (X[:, 0] > 0).astype(int)
    logistic = LogisticRegression().fit(X, y)
    with pytest.warns(MetacalWarning, match="All 6 samples are right after the fit"):
        found = PosthocCalibratedClassifier(logistic).fit(X[:6], y[:6])
    assert 0.5 < found.calibrator_.temperature_ < 1.0
    with pytest.warns(MetacalWarning, match="its lower bound"):
        plain = PosthocCalibratedClassifier(logistic, TemperatureScaling()).fit(X[:6], y[:6])
    assert plain.calibrator_.temperature_ == pytest.approx(1e-3)


@pytest.mark.parametrize("load", [load_digits, load_breast_cancer])
def test_decision_values_serve_as_logits(load):
    X, y = load(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    X, y = StandardScaler().fit_transform(X[order]), y[order]
    third = len(y) // 3
    svc = LinearSVC(C=0.01).fit(X[:third], y[:third])
    found = PosthocCalibratedClassifier(svc).fit(X[third : 2 * third], y[third : 2 * third])
    probs = found.predict_proba(X[2 * third :])
    np.testing.assert_allclose(probs.sum(axis=1), 1.0, atol=1e-9)
    assert (found.predict(X[2 * third :]) == svc.predict(X[2 * third :])).all()
    assert ece(probs, y[2 * third :]) < 0.12


class Ranked(ClassifierMixin, BaseEstimator):
    """A fitted classifier that names its classes in an order of its own, as wrappers of other libraries may."""

    classes_ = np.array(["low", "mid", "high"])

    def fit(self, X, y):
        return self

    def predict_proba(self, X):
        return torch.softmax(torch.from_numpy(X), 1).numpy()

    def __sklearn_is_fitted__(self):
        return True


@pytest.mark.parametrize("method", CALIBRATORS)
def test_classes_in_any_order(method):
    generator = np.random.default_rng(0)
    true = 2.0 * generator.normal(size=(4000, 3))
    X, numbers = 3.0 * true, (true + generator.gumbel(size=(4000, 3))).argmax(axis=1)
    found = PosthocCalibratedClassifier(Ranked(), method).fit(X[:2000], Ranked.classes_[numbers[:2000]])
    right = (found.predict(X[2000:]) == Ranked.classes_[numbers[2000:]]).mean()
    assert right > (X[2000:].argmax(axis=1) == numbers[2000:]).mean() - 0.02
    assert ece(found.predict_proba(X[2000:]), numbers[2000:]) < 0.04


def test_one_that_is_not_fitted_is_fitted_on_other_samples(digits):
    X, y = digits
    names = np.array(list("abcdefghij"))[y]
    found = PosthocCalibratedClassifier(GaussianNB(), IsotonicCalibration(), random_state=0).fit(pd.DataFrame(X), names)
    assert found.classes_.tolist() == list("abcdefghij")
    assert found.method_ == "IsotonicCalibration"
    assert found.estimator_.class_count_.sum() == round(0.8 * len(y))
    assert not hasattr(found.estimator, "classes_")


def test_cross_validation_and_frozen(digits):
    X, y = digits
    pipeline = make_pipeline(StandardScaler(), PosthocCalibratedClassifier(GaussianNB(), random_state=0))
    scaled = cross_val_score(pipeline, X, y, cv=3, scoring="neg_log_loss")
    plain = cross_val_score(make_pipeline(StandardScaler(), GaussianNB()), X, y, cv=3, scoring="neg_log_loss")
    assert scaled.mean() > plain.mean()
    bayes = GaussianNB().fit(X[:700], y[:700])
    frozen = clone(PosthocCalibratedClassifier(FrozenEstimator(bayes))).fit(X[700:], y[700:])
    np.testing.assert_array_equal(frozen.estimator_.theta_, bayes.theta_)
    assert frozen.estimator_.class_count_.sum() == 700


def test_auto_may_choose_none(digits):
    """Scores drawn to be calibrated: nothing is put on top."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(400, 2))
    y = (generator.random(400) < 1.0 / (1.0 + np.exp(-X[:, 0]))).astype(int)
    model = LogisticRegression().fit(X, y)
    found = PosthocCalibratedClassifier(model, "auto").fit(X[:300], y[:300])
    assert found.method_ in ("none", *CALIBRATORS)
    if found.method_ == "none":
        np.testing.assert_array_equal(found.predict_proba(X), model.predict_proba(X))


def test_bad_input(digits):
    X, y = digits
    with pytest.raises(InvalidTypeError, match="predict_proba or decision_function, got StandardScaler"):
        PosthocCalibratedClassifier(StandardScaler()).fit(X, y)
    with pytest.raises(InvalidValueError, match="`method` must be one of 'auto', 'temperature'"):
        PosthocCalibratedClassifier(GaussianNB(), "magic").fit(X, y)
    with pytest.raises(InvalidValueError, match="must hold labels of"):
        PosthocCalibratedClassifier(GaussianNB().fit(X, y)).fit(X, y + 5)
    with pytest.raises(InvalidValueError, match="calibration_share"):
        PosthocCalibratedClassifier(GaussianNB(), calibration_share=0.0).fit(X, y)
    with pytest.warns(MetacalWarning, match="targets are of class"):
        PosthocCalibratedClassifier(GaussianNB().fit(X, y)).fit(X[y == 3], y[y == 3])


def test_decision_values_of_pairs_of_classes(digits):
    """45 pairs of ten classes are no logits."""
    X, y = digits
    pairs = SVC(decision_function_shape="ovo").fit(X[:300], y[:300])
    with pytest.raises(InvalidValueError, match="each of 10 classes, got 45"):
        PosthocCalibratedClassifier(pairs).fit(X[300:600], y[300:600])


def test_no_sample_for_the_calibrator(digits):
    with pytest.raises(InvalidValueError, match=r"two samples of a class.*n_samples=10"):
        PosthocCalibratedClassifier(LogisticRegression()).fit(digits[0][:10], np.arange(10))
