"""`MetaCalibratedClassifier`: a linear model or MLP with scikit-learn's interface, calibrated as it is fitted."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

from metacal.data.splits import draw_test_set
from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.functional.arguments import (
    check_choice,
    check_inside,
    check_integer,
    check_not_negative,
    check_positive,
)
from metacal.integrations.sklearn.head_training import (
    SMOOTHINGS,
    build_adamw,
    build_network,
    compute_logits,
    meta_loss,
    soft_label_loss,
    train,
)
from metacal.integrations.sklearn.rows import Rows
from metacal.metalearning import LabelSmoothingHyperparameter, MetaCalibrator

if TYPE_CHECKING:
    from typing_extensions import Self

STEPS = 1500
FEWEST_EPOCHS, MOST_EPOCHS = 5, 200
SMALLEST_BATCH, LARGEST_BATCH = 32, 256
ENOUGH_OF_A_CLASS = 20
MOST_META_ROWS = 10_000
"""Held-out samples that `partial_fit` keeps."""


class MetaCalibratedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear model or MLP on features or embeddings, whose label smoothing is learned for calibration.

    `fit` sets a share of the samples aside, learns label smoothing on them while it trains on the others, and then, if
    ``refit``, trains once more on all samples with what it has learned.

    Args:
        hidden: widths of hidden layers; ``()`` is a linear model.
        smoothing: what is learned: ``"scalar"``, one strength; ``"vector"``, one for each class; ``"non_uniform"``,
            also which classes it goes to; ``"auto"``, a strength for each class if 20 samples of each are set aside,
            else one (always one in `partial_fit`).
        meta_share: share of the samples set aside, where `fit` is not given ``X_meta`` and ``y_meta``.
        refit: train again on all samples with the smoothing that was learned.
        max_iter: passes over the samples; None: as many as make 1,500 steps, but 5 to 200.
        batch_size: samples in a step; None: a twentieth of all, but 32 to 256.
        lr: Adam's first step size, which then goes down along a cosine; None: 0.01 for a linear model, else 0.003.
        weight_decay: decoupled, per step and unit of ``lr``.
        meta_calibration: more settings of `metacal.MetaCalibrator`, such as ``objective``, ``every`` or ``meta_lr``.
        random_state: of weights, order and split.
        device: of torch, e.g. ``"cuda"``.

    Attributes:
        classes_: the labels, sorted.
        network_: the trained `torch.nn.Sequential`.
        soft_labels_: ``(K, K)``, the soft label that was learned for each class (a row each).
        n_iter_: passes in all.
        loss_: mean training loss of the last pass.
        n_features_in_: d.

    Examples:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> classifier = MetaCalibratedClassifier(random_state=0).fit(X, y)
        >>> classifier.predict_proba(X).shape, classifier.score(X, y) > 0.9
        ((150, 3), True)
    """

    # What `partial_fit` keeps between calls.
    _meta_rows: Rows | None = None
    _calibrator_state: dict[str, Any] | None = None
    _optimizer_state: dict[str, Any] | None = None
    _seed: int | None = None

    def __init__(
        self,
        hidden: tuple[int, ...] = (),
        *,
        smoothing: str = "auto",
        meta_share: float = 0.1,
        refit: bool = True,
        max_iter: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        weight_decay: float = 1e-4,
        meta_calibration: dict[str, Any] | None = None,
        random_state: Any = None,
        device: str = "cpu",
    ) -> None:
        self.hidden = hidden
        self.smoothing = smoothing
        self.meta_share = meta_share
        self.refit = refit
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.meta_calibration = meta_calibration
        self.random_state = random_state
        self.device = device

    def fit(self, X: Any, y: Any, X_meta: Any = None, y_meta: Any = None) -> Self:
        """Fit on samples ``X (n, d)``, dense or sparse, with labels ``y (n,)`` of any kind.

        Args:
            X: array, sparse matrix or frame.
            y: labels.
            X_meta: samples to learn the smoothing on; None sets ``meta_share`` of ``X`` aside.
            y_meta: their labels.
        """
        self._check_params()
        if (X_meta is None) != (y_meta is None):
            raise InvalidValueError("`X_meta` and `y_meta` must be given both or neither.")
        X, y = self._checked(X, y, reset=True)
        self.classes_ = unique_labels(y)
        if len(self.classes_) < 2:
            raise InvalidValueError(f"`y` must hold at least 2 classes, got 1 class: {self.classes_[0]!r}.")
        seed = self._new_seed()
        rows = self._rows(X, y)
        if X_meta is None:
            rows, meta = split_rows(rows, self.meta_share, seed)
            if not len(meta):
                raise InvalidValueError(
                    f"`X` must hold two samples of a class, one of them to be set aside, got n_samples={len(rows)} of "
                    f"{len(self.classes_)} classes; or pass `X_meta` and `y_meta`."
                )
        else:
            meta = self._rows(*self._checked(X_meta, y_meta, reset=False), name="y_meta")
        self._forget()
        network = self._new_network(seed)
        calibrator = self._calibrator(network, len(meta))
        self.n_iter_, size = self._epochs(len(rows)), self._batch(len(rows))
        with silent_about_twins() if X_meta is None else nullcontext():
            self.loss_ = train(
                network,
                build_adamw(network, self._lr(), self.weight_decay),
                meta_loss(calibrator, meta, size, seed),
                rows,
                batch_size=size,
                epochs=self.n_iter_,
                seed=seed,
            )
        self._learn_from(calibrator)
        if self.refit:
            network = self._new_network(seed)
            self.loss_ = train(
                network,
                build_adamw(network, self._lr(), self.weight_decay),
                soft_label_loss(network, torch.from_numpy(self.soft_labels_).to(rows.device, torch.float32)),
                rows.joined(meta),
                batch_size=size,
                epochs=self.n_iter_,
                seed=seed,
            )
        self.network_ = network
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Train for one pass over a part of the data; the first call has to name all ``classes``.

        A share of every part is kept aside (10,000 samples at most) to learn the smoothing on. The learning rate stays
        ``lr``, and nothing is trained again.
        """
        self._check_params()
        is_first = not hasattr(self, "network_")
        X, y = self._checked(X, y, reset=is_first)
        if is_first:
            if classes is None:
                raise InvalidValueError("`classes` must name all labels in the first call of partial_fit.")
            self.classes_ = unique_labels(classes)
            if len(self.classes_) < 2:
                raise InvalidValueError(f"`classes` must hold at least 2 classes, got 1 class: {self.classes_[0]!r}.")
            self._forget()
            self._seed = self._new_seed()
            self.network_ = self._new_network(self._seed)
            self.n_iter_ = 0
        elif classes is not None and not np.array_equal(unique_labels(classes), self.classes_):
            raise InvalidValueError(f"`classes` must be those of the first call, {self.classes_}, got {classes}.")
        if self._seed is None:  # after fit
            self._seed = self._new_seed()
        seed = self._seed + self.n_iter_
        rows, meta = split_rows(self._rows(X, y), self.meta_share, seed)
        kept = meta if self._meta_rows is None else self._meta_rows.joined(meta)
        if len(kept) > MOST_META_ROWS:
            kept = kept.select(torch.randperm(len(kept), generator=torch.Generator().manual_seed(self.n_iter_)))
            kept = kept.select(torch.arange(MOST_META_ROWS))
        self._meta_rows = kept
        calibrator = self._calibrator(self.network_, 0)
        if self._calibrator_state is not None:
            calibrator.load_state_dict(self._calibrator_state)
        optimizer = build_adamw(self.network_, self._lr(), self.weight_decay)
        if self._optimizer_state is not None:
            optimizer.load_state_dict(self._optimizer_state)
        plain, size = soft_label_loss(self.network_, None), self.batch_size or LARGEST_BATCH
        with silent_about_twins():
            self.loss_ = train(
                self.network_,
                optimizer,
                meta_loss(calibrator, kept, size, seed) if len(kept) else plain,
                rows,
                batch_size=size,
                epochs=1,
                seed=seed,
                decays=False,
            )
        self.n_iter_ += 1
        self._learn_from(calibrator)
        self._calibrator_state, self._optimizer_state = calibrator.state_dict(), optimizer.state_dict()
        return self

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Logits ``(n, K)``; of two classes the difference, ``(n,)``."""
        logits = self._logits(X)
        return np.asarray(logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities ``(n, K)``, in the order of ``classes_``."""
        return np.asarray(torch.softmax(torch.from_numpy(self._logits(X)), dim=1).numpy())

    def predict(self, X: Any) -> NDArray[Any]:
        """The most likely label of each sample."""
        logits = self._logits(X)
        return np.asarray(self.classes_[logits.argmax(axis=1)])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _check_params(self) -> None:
        if not isinstance(self.hidden, tuple | list):
            raise InvalidTypeError(f"`hidden` must be a tuple of layer widths, got {self.hidden!r}.")
        for width in self.hidden:
            check_integer("hidden", width, 1)
        check_choice("smoothing", self.smoothing, ("auto", *SMOOTHINGS))
        check_inside("meta_share", self.meta_share)
        if self.batch_size is not None:
            check_integer("batch_size", self.batch_size, 1)
        if self.max_iter is not None:
            check_integer("max_iter", self.max_iter, 1)
        if self.lr is not None:
            check_positive("lr", self.lr)
        check_not_negative("weight_decay", self.weight_decay)

    def _checked(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Any]:
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float32, reset=reset)
        check_classification_targets(y)
        return X, y

    def _rows(self, X: Any, y: Any, name: str = "y") -> Rows:
        known = np.isin(y, self.classes_)
        if not known.all():
            raise InvalidValueError(f"`{name}` must hold labels of {self.classes_}, got {y[~known][0]!r}.")
        labels = torch.from_numpy(np.searchsorted(self.classes_, y).astype(np.int64))
        return Rows(X, labels, torch.device(self.device))

    def _new_network(self, seed: int) -> nn.Sequential:
        widths = [self.n_features_in_, *self.hidden, len(self.classes_)]
        return build_network(widths, seed, torch.device(self.device))

    def _calibrator(self, network: nn.Sequential, meta_samples: int) -> MetaCalibrator:
        kind = self.smoothing
        if kind == "auto":
            kind = "vector" if meta_samples >= ENOUGH_OF_A_CLASS * len(self.classes_) else "scalar"
        smoothing = SMOOTHINGS[kind](len(self.classes_))
        return MetaCalibrator(network, network[-1], smoothing, **(self.meta_calibration or {}))

    def _learn_from(self, calibrator: MetaCalibrator) -> None:
        calibrator.remove()
        smoothing = calibrator.hyperparameters
        assert isinstance(smoothing, LabelSmoothingHyperparameter)
        self.soft_labels_ = np.array(smoothing.export()["soft_labels"])

    def _forget(self) -> None:
        """Drop what `partial_fit` keeps between calls."""
        self._meta_rows = self._calibrator_state = self._optimizer_state = self._seed = None

    def _new_seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _lr(self) -> float:
        if self.lr is not None:
            return float(self.lr)
        return 3e-3 if self.hidden else 1e-2

    def _epochs(self, samples: int) -> int:
        if self.max_iter is not None:
            return int(self.max_iter)
        return min(max(math.ceil(STEPS * self._batch(samples) / samples), FEWEST_EPOCHS), MOST_EPOCHS)

    def _batch(self, samples: int) -> int:
        if self.batch_size is not None:
            return int(self.batch_size)
        return min(max(samples // 20, SMALLEST_BATCH), LARGEST_BATCH)

    def _logits(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self, "network_")
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float32, reset=False)
        rows = Rows(X, torch.zeros(X.shape[0], dtype=torch.int64), torch.device(self.device))
        return np.asarray(compute_logits(self.network_, rows).numpy())


@contextmanager
def silent_about_twins() -> Iterator[None]:
    """No warning of shared samples inside: of rows that we have split, these are samples that the data holds twice."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="A meta batch shares samples")
        yield


def split_rows(rows: Rows, share: float, seed: int) -> tuple[Rows, Rows]:
    """Rows to train on and rows set aside, at least one where some class has two samples.

    A class with one sample only is trained on.
    """
    spare = (torch.bincount(rows.labels)[rows.labels] > 1).nonzero().view(-1)
    if not len(spare):
        return rows, rows.select(spare)
    at_least_one = min(max(share, 1.0 / len(spare)), 1.0 - 1.0 / len(spare))
    _, drawn = draw_test_set(rows.labels[spare], at_least_one, seed)
    is_kept = torch.ones(len(rows), dtype=torch.bool)
    is_kept[spare[drawn]] = False
    return rows.select(is_kept.nonzero().view(-1)), rows.select(spare[drawn])
