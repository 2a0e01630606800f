"""`PosthocCalibratedClassifier`: any post-hoc calibrator around any scikit-learn classifier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import _safe_indexing, assert_all_finite, check_random_state, get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, indexable

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.functional.arguments import check_choice, check_inside
from metacal.integrations.sklearn.head_training import draw_held_out
from metacal.posthoc import CALIBRATORS, Calibrator, TemperatureScaling, choose_calibrator

if TYPE_CHECKING:
    from typing_extensions import Self

METHODS = ("auto", *CALIBRATORS)


class PosthocCalibratedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier with ``predict_proba`` or ``decision_function``, and a calibrator on top of it.

    A classifier that is fitted already stays as it is: `fit` then takes held-out samples and fits the calibrator alone.
    One that is not is cloned and fitted on a part of the samples, the calibrator on the rest. (Cross-validation clones
    what it is given, and a clone is not fitted: wrap a fitted classifier in `sklearn.frozen.FrozenEstimator` there.)

    Args:
        estimator: the classifier.
        method: ``"temperature"``, ``"structured_vector"``, ``"structured_matrix"``, ``"beta"``, ``"vector"``,
            ``"dirichlet"``, ``"matrix"``, ``"isotonic"``, ``"histogram"``; ``"auto"``, the one with the best
            cross-validated likelihood, or none; or a `metacal.posthoc.Calibrator`. A temperature below 1 has a weak
            prior.
        calibration_share: share of the samples for the calibrator, if the classifier has to be fitted too.
        random_state: of that split.

    Attributes:
        classes_: the classifier's.
        estimator_: the fitted classifier.
        calibrator_: the fitted calibrator; None if ``"auto"`` found none that helps.
        method_: its name.

    Examples:
        >>> from sklearn.datasets import load_digits
        >>> from sklearn.naive_bayes import GaussianNB
        >>> X, y = load_digits(return_X_y=True)
        >>> bayes = GaussianNB().fit(X[:900], y[:900])
        >>> calibrated = PosthocCalibratedClassifier(bayes).fit(X[900:1400], y[900:1400])
        >>> calibrated.calibrator_.temperature_ > 5.0  # over-confident
        True
    """

    def __init__(
        self,
        estimator: Any,
        method: str | Calibrator = "temperature",
        *,
        calibration_share: float = 0.2,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.calibration_share = calibration_share
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the calibrator on samples that the classifier was not fitted on (or fit both, see above)."""
        self._check_params()
        X, y = indexable(X, y)
        y = column_or_1d(y, warn=True)
        assert_all_finite(y)
        check_classification_targets(y)
        if is_fitted(self.estimator):
            self.estimator_ = self.estimator
        else:
            train, held_out = self._split(y)
            if not len(held_out):
                raise InvalidValueError(
                    f"`X` must hold two samples of a class, one of them for the calibrator, got n_samples={len(y)}."
                )
            self.estimator_ = clone(self.estimator).fit(_safe_indexing(X, train), _safe_indexing(y, train))
            X, y = _safe_indexing(X, held_out), _safe_indexing(y, held_out)
        self.classes_ = np.asarray(self.estimator_.classes_)
        known = np.isin(y, self.classes_)
        if not known.all():
            raise InvalidValueError(f"`y` must hold labels of {self.classes_}, got {y[~known][0]!r}.")
        order = np.argsort(self.classes_)  # a classifier may name its classes in any order
        targets = order[np.searchsorted(self.classes_, y, sorter=order)]
        scores = self._scores(X)
        self.method_, self.calibrator_ = self._new_calibrator(scores, targets)
        if self.calibrator_ is not None:
            self.calibrator_.fit(**scores, targets=targets)
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Calibrated probabilities ``(n, K)``."""
        check_is_fitted(self, "estimator_")
        scores = self._scores(X)
        if self.calibrator_ is not None:
            probs = np.asarray(self.calibrator_.predict_proba(**scores))
        elif "probs" in scores:
            probs = np.asarray(scores["probs"])
        else:
            probs = torch.softmax(torch.from_numpy(scores["logits"]), dim=1).numpy()
        return np.asarray(probs, dtype=np.float64)

    def predict(self, X: Any) -> NDArray[Any]:
        """The most likely label of each sample after calibration."""
        probs = self.predict_proba(X)
        return np.asarray(self.classes_[probs.argmax(axis=1)])

    @property
    def n_features_in_(self) -> int:
        """Number of features, as the classifier saw it."""
        check_is_fitted(self, "estimator_")
        return int(self.estimator_.n_features_in_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self.estimator).input_tags
        return tags

    def _check_params(self) -> None:
        if not any(hasattr(self.estimator, name) for name in ("predict_proba", "decision_function")):
            raise InvalidTypeError(
                f"`estimator` must have predict_proba or decision_function, got {type(self.estimator).__name__}."
            )
        if not isinstance(self.method, Calibrator):
            check_choice("method", self.method, METHODS)
        check_inside("calibration_share", self.calibration_share)

    def _split(self, y: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return sample numbers for the classifier and for the calibrator."""
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        classes, numbers = np.unique(y, return_inverse=True)
        if len(y) < 2:
            raise InvalidValueError(f"`X` must hold samples for classifier and calibrator, got {len(y)} sample.")
        train, held_out = draw_held_out(numbers, max(self.calibration_share, len(classes) / len(y)), seed)
        # A class that only the held-out part would have is one that the classifier must know.
        is_missing = ~np.isin(numbers[held_out], numbers[train])
        return np.sort(np.concatenate((train, held_out[is_missing]))), held_out[~is_missing]

    def _scores(self, X: Any) -> dict[str, Any]:
        """Return the classifier's probabilities, or its decision values as logits, by keyword of a calibrator."""
        if hasattr(self.estimator_, "predict_proba"):
            return {"probs": np.asarray(self.estimator_.predict_proba(X), dtype=np.float64)}
        values = np.asarray(self.estimator_.decision_function(X), dtype=np.float64)
        if values.ndim == 1:
            values = np.stack((np.zeros_like(values), values), axis=1)
        if values.shape[1] != len(self.classes_):
            raise InvalidValueError(
                f"`estimator` must give a decision value for each of {len(self.classes_)} classes, got "
                f"{values.shape[1]}; an SVC does with decision_function_shape='ovr'."
            )
        return {"logits": values}

    def _new_calibrator(self, scores: dict[str, Any], targets: NDArray[np.int64]) -> tuple[str, Calibrator | None]:
        if isinstance(self.method, Calibrator):
            return type(self.method).__name__, clone(self.method)
        name = self.method
        if name == "auto":
            name, _ = choose_calibrator(**scores, targets=targets)
        if name == "temperature":
            return name, TemperatureScaling(method="prior")  # few samples that are all right do not make T tiny
        return name, CALIBRATORS[name]() if name in CALIBRATORS else None


def is_fitted(estimator: Any) -> bool:
    """Whether a classifier has been fitted."""
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        return False
    return True
