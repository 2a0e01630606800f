"""`MetaCalibratedClassifier` as scikit-learn's own checks and tools see it."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch.nn.functional import cross_entropy

from metacal import Finish, OuterStep
from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.functional import expected_calibration_error, negative_log_likelihood
from metacal.integrations.sklearn import MetaCalibratedClassifier
from metacal.integrations.sklearn.head_training import RowBatches, Rows, build_network, train


def every(steps):
    return {"outer": OuterStep(every=steps, dense_start=0)}


QUICK = dict(max_iter=20, meta_calibration=every(8), random_state=0)


@parametrize_with_checks(
    [
        MetaCalibratedClassifier(max_iter=40, lr=0.02, meta_calibration=every(32)),
    ]
)
def test_scikit_learn_accepts_it(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X / 16.0, y


@pytest.mark.parametrize(
    ("learns", "hidden"),
    [("penalty", ()), ("vector", ()), ("scalar", (32,)), ("non_uniform", (32,)), ("hierarchical", (32,))],
)
def test_it_learns(digits, learns, hidden):
    X, y = digits
    found = MetaCalibratedClassifier(hidden, learns=learns, max_iter=20, lr=0.02, random_state=0).fit(X[:400], y[:400])
    assert found.score(X[900:], y[900:]) > 0.8
    probs = found.predict_proba(X[900:])
    np.testing.assert_allclose(probs.sum(axis=1), 1.0, atol=1e-12)
    assert (found.predict(X[900:]) == probs.argmax(axis=1)).all()
    if learns == "penalty":
        assert len(found.learned_["strength"]) == 10
        assert found.learned_["base"] != 0.0
    else:
        soft_labels = np.array(found.learned_["soft_labels"])
        assert np.diag(soft_labels).min() >= 0.45
        assert np.diag(soft_labels).max() <= 1.0
        np.testing.assert_allclose(soft_labels.sum(axis=1), 1.0, atol=1e-3)


def test_an_overconfident_classifier_becomes_calibrated():
    """Noisy labels that a network learns by heart; plain training of the same network is the yardstick."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(3000, 20)).astype(np.float32)
    y = (X[:, :3] + generator.normal(size=(3000, 3))).argmax(axis=1)
    ours = MetaCalibratedClassifier((64,), validation_fraction=0.4, lr=0.01, max_iter=40, random_state=0)
    ours.fit(X[:500], y[:500])
    network = build_network([20, 64, 3], 0, torch.device("cpu"))
    rows = Rows(X[:500], torch.from_numpy(y[:500]), torch.device("cpu"))
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01, weight_decay=1e-4)
    train(network, optimizer, lambda x, y: cross_entropy(network(x), y), rows, batch_size=32, epochs=40, seed=0)
    with torch.no_grad():
        plain = network(torch.from_numpy(X[500:]))
    targets = torch.from_numpy(y[500:])
    probs = torch.from_numpy(ours.predict_proba(X[500:]))
    ece = expected_calibration_error(probs=probs, targets=targets)
    assert ece < 0.5 * expected_calibration_error(logits=plain, targets=targets)
    likelihood = negative_log_likelihood(probs=probs, targets=targets)
    assert likelihood < 0.7 * negative_log_likelihood(logits=plain, targets=targets)
    assert ours.finished_.is_folded
    assert ours.finished_.temperature > 1.5
    assert ours.finished_.samples == 200


def test_the_temperature_can_be_left_out(digits):
    X, y = digits[0][:300], digits[1][:300] * (np.arange(300) % 3 > 0)  # a third of the labels is wrong
    plain, scaled = (MetaCalibratedClassifier((64,), finish=finish, **QUICK).fit(X, y) for finish in (False, True))
    assert plain.finished_ is None
    assert isinstance(scaled.finished_, Finish)
    assert scaled.finished_.is_folded
    np.testing.assert_allclose(
        scaled.decision_function(X), plain.decision_function(X) / scaled.finished_.temperature, rtol=1e-5, atol=1e-5
    )


def test_batches_of_rows():
    X = np.arange(10, dtype=np.float32).reshape(5, 2)
    batches = RowBatches(Rows(X, torch.arange(5), torch.device("cpu")), 2, seed=0)
    first, second = (torch.cat([y for _, y in batches.epoch(number)]).tolist() for number in (0, 1))
    assert len(batches) == 3
    assert sorted(first) == sorted(second) == list(range(5))
    assert first != second
    assert torch.cat([y for _, y in batches.epoch(1, start=2)]).tolist() == second[4:]
    for x, y in batches:
        assert torch.equal(x, torch.from_numpy(X)[y])


def test_string_labels_and_frames():
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    columns = ["a", "b", "c", "d"]
    plain = MetaCalibratedClassifier(**QUICK).fit(X, names)
    assert plain.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    assert plain.predict(X[:1])[0] == "setosa"
    for frame in (pd.DataFrame(X, columns=columns), pl.DataFrame(X, schema=columns)):
        same = MetaCalibratedClassifier(**QUICK).fit(frame, names)
        np.testing.assert_array_equal(same.predict_proba(frame), plain.predict_proba(X))
        assert same.feature_names_in_.tolist() == columns
    series = pd.Series(names)
    assert MetaCalibratedClassifier(**QUICK).fit(X, series).score(X, series) > 0.6


def test_in_a_pipeline_a_grid_and_cross_validation():
    X, y = load_iris(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), MetaCalibratedClassifier(**{**QUICK, "max_iter": 40}))
    assert cross_val_score(pipeline, X, y, cv=3).mean() > 0.8
    grid = GridSearchCV(pipeline, {"metacalibratedclassifier__hidden": [(), (8,)]}, cv=2, scoring="neg_log_loss")
    assert grid.fit(X, y).best_score_ < 0.0


def test_the_same_seed_gives_the_same_and_sparse_is_dense(digits):
    X, y = digits[0][:300], digits[1][:300]
    one, two = (MetaCalibratedClassifier(**QUICK).fit(X, y).predict_proba(X) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    sparse = MetaCalibratedClassifier(**QUICK).fit(scipy.sparse.csr_array(X), y)
    np.testing.assert_array_equal(sparse.predict_proba(scipy.sparse.csc_matrix(X)), one)
    other = MetaCalibratedClassifier(**{**QUICK, "random_state": 1}).fit(X, y)
    assert not np.array_equal(other.predict_proba(X), one)


def test_the_global_random_state_is_left_alone(digits):
    X, y = digits[0][:200], digits[1][:200]
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    MetaCalibratedClassifier(**QUICK).fit(X, y)
    assert torch.equal(torch.rand(2), expected)


def test_held_out_samples_of_your_own(digits):
    X, y = digits
    found = MetaCalibratedClassifier(**QUICK).fit(X[:300], y[:300], X_val=X[300:400], y_val=y[300:400])
    assert found.score(X[900:], y[900:]) > 0.8
    assert found.finished_.samples == 100
    with pytest.raises(InvalidValueError, match="both or neither"):
        MetaCalibratedClassifier().fit(X[:300], y[:300], X_val=X[300:400])
    with pytest.raises(InvalidValueError, match="must hold labels of"):
        MetaCalibratedClassifier().fit(X[:300], y[:300], X_val=X[300:400], y_val=y[300:400] + 50)


def test_samples_that_the_data_holds_twice_are_no_reason_to_warn(digits):
    X, y = np.repeat(digits[0][:100], 4, axis=0), np.repeat(digits[1][:100], 4)
    MetaCalibratedClassifier(**QUICK).fit(X, y)
    with pytest.warns(UserWarning, match="shares samples"):
        MetaCalibratedClassifier(**{**QUICK, "meta_calibration": every(1)}).fit(X, y, X_val=X, y_val=y)


def test_partial_fit_goes_on(digits):
    X, y = digits
    stream = MetaCalibratedClassifier(lr=0.02, random_state=0)
    for part in range(6):
        rows = slice(150 * part, 150 * part + 150)
        stream.partial_fit(X[rows], y[rows], classes=np.arange(10))
        if part == 2:
            stream = pickle.loads(pickle.dumps(stream))
    assert stream.n_iter_ == 6
    assert stream.finished_.samples == 90
    assert stream.score(X[1000:], y[1000:]) > 0.7
    after = stream.score(X[1000:], y[1000:])
    stream.partial_fit(X[:1], y[:1])  # one sample only
    assert abs(stream.score(X[1000:], y[1000:]) - after) < 0.1
    with pytest.raises(InvalidValueError, match="those of the first call"):
        stream.partial_fit(X[:5], y[:5], classes=[0, 1])
    with pytest.raises(InvalidValueError, match="must hold labels of"):
        stream.partial_fit(X[:5], y[:5] + 20)
    with pytest.raises(InvalidValueError, match="first call of partial_fit"):
        MetaCalibratedClassifier().partial_fit(X, y)


def test_partial_fit_after_fit(digits):
    X, y = digits
    found = MetaCalibratedClassifier(**QUICK).fit(X[:300], y[:300])
    before = found.predict_proba(X[900:])
    found.partial_fit(X[300:600], y[300:600])
    assert found.n_iter_ == 21
    assert not np.array_equal(found.predict_proba(X[900:]), before)


def test_partial_fit_trains_on_what_no_temperature_has_changed(digits):
    """Folding it into the weights that are trained further would change the training."""
    X, y = digits[0][:600], digits[1][:600] * (np.arange(600) % 3 > 0)
    plain, scaled = (MetaCalibratedClassifier((64,), lr=0.02, finish=each, random_state=0) for each in (False, True))
    for part in range(20):
        rows = slice(300 * (part % 2), 300 * (part % 2) + 300)
        for each in (plain, scaled):
            each.partial_fit(X[rows], y[rows], classes=np.arange(10))
    assert scaled.finished_.is_folded
    assert plain.finished_ is None
    np.testing.assert_allclose(
        scaled.decision_function(X), plain.decision_function(X) / scaled.finished_.temperature, rtol=1e-4, atol=1e-4
    )


def test_rare_classes_are_trained_on():
    X, y = load_iris(return_X_y=True)
    X, y = np.vstack((X, [[9.0, 9.0, 9.0, 9.0]])), np.append(y, 3)
    found = MetaCalibratedClassifier(max_iter=100, random_state=0).fit(X, y)
    assert found.predict_proba(X).shape == (151, 4)
    assert found.predict(X[-1:])[0] == 3


def test_pickle_and_clone(digits):
    X, y = digits[0][:200], digits[1][:200]
    found = MetaCalibratedClassifier(**QUICK).fit(X, y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(found)).predict_proba(X), found.predict_proba(X))
    with pytest.raises(NotFittedError):
        clone(found).predict(X)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (dict(hidden=(0,)), InvalidValueError, "`hidden` must be an integer >= 1, got 0"),
        (dict(hidden=64), InvalidTypeError, "`hidden` must be a tuple of layer widths, got 64"),
        (dict(learns="much"), InvalidValueError, "`learns` must be one of"),
        (dict(learns="auto"), InvalidValueError, "got 'auto'"),
        (dict(validation_fraction=1.0), InvalidValueError, "`validation_fraction` must be in"),
        (dict(batch_size=0), InvalidValueError, "`batch_size`"),
        (dict(max_iter=0), InvalidValueError, "`max_iter`"),
        (dict(lr=-1.0), InvalidValueError, "`lr`"),
        (dict(weight_decay=-1.0), InvalidValueError, "`weight_decay`"),
    ],
)
def test_bad_parameters(options, error, message):
    X, y = load_iris(return_X_y=True)
    with pytest.raises(error, match=message):
        MetaCalibratedClassifier(**options).fit(X, y)


def test_one_class_is_refused():
    with pytest.raises(InvalidValueError, match="at least 2 classes, got 1 class"):
        MetaCalibratedClassifier().fit(np.zeros((5, 2)), np.ones(5))


@pytest.mark.parametrize("seed", range(8))
def test_one_class_with_two_samples_is_enough(seed):
    X = np.random.default_rng(0).normal(size=(4, 3))
    fitted = MetaCalibratedClassifier(max_iter=1, random_state=seed).fit(X, ["a", "b", "c", "c"])
    assert fitted.predict_proba(X).shape == (4, 3)


def test_nothing_to_set_aside():
    X = np.random.default_rng(0).normal(size=(5, 3))
    with pytest.raises(InvalidValueError, match=r"two samples of a class.*n_samples=5 of 5 classes"):
        MetaCalibratedClassifier(max_iter=1).fit(X, np.arange(5))


def test_held_out_samples_with_a_label_of_their_own():
    X = np.random.default_rng(0).normal(size=(6, 3))
    with pytest.raises(InvalidValueError, match="`y_val` must hold labels of"):
        MetaCalibratedClassifier(max_iter=1).fit(X, [0, 1] * 3, X_val=X, y_val=[0, 1, 2] * 2)
