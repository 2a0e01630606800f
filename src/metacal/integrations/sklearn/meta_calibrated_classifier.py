"""`MetaCalibratedClassifier`: a meta-calibrated linear model or MLP with scikit-learn's interface."""

from __future__ import annotations

import copy
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

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.functional.arguments import check_choice, check_inside, check_integer, check_not_negative, check_positive
from metacal.integrations.sklearn import head_training
from metacal.integrations.sklearn.head_training import RowBatches, Rows, split_rows
from metacal.metalearning import HYPERPARAMETERS, Finish, MetaCalibrator
from metacal.seeding import mixed

if TYPE_CHECKING:
    from typing_extensions import Self

LEARNED = {
    "penalty": "logit_penalty",
    "hierarchical": "hierarchical_smoothing",
    "non_uniform": "nonuniform_smoothing",
    "vector": "vector_smoothing",
    "scalar": "scalar_smoothing",
}
STEPS = 1500
FEWEST_EPOCHS, MOST_EPOCHS = 5, 200
SMALLEST_BATCH, LARGEST_BATCH = 32, 256
MOST_HELD_OUT = 10_000
"""Held-out samples that `partial_fit` keeps."""


class MetaCalibratedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear model or MLP on features or embeddings, whose training loss is learned for calibration.

    `fit` sets a part of the samples aside, as early stopping does, learns a penalty on logits (or label smoothing) on
    them while it trains on the others, and fits a temperature on them in the end.

    Args:
        hidden: widths of hidden layers; ``()`` is a linear model.
        learns: ``"penalty"``, the strength of a penalty on logits; or label smoothing: ``"scalar"``, one strength;
            ``"vector"``, one for each class; ``"non_uniform"``, also which classes it goes to; ``"hierarchical"``, one
            strength with deviations.
        validation_fraction: share of the samples set aside, where `fit` is not given ``X_val`` and ``y_val``.
        finish: fold the temperature into the last layer.
        max_iter: passes over the samples; None: as many as make 1,500 steps, but 5 to 200.
        batch_size: samples in a step; None: a twentieth of all, but 32 to 256.
        lr: Adam's first step size, which then goes down along a cosine; None: 0.01 for a linear model, else 0.003.
        weight_decay: decoupled, per step and unit of ``lr``.
        meta_calibration: more settings of `metacal.MetaCalibrator`, such as ``objective`` or ``outer``.
        random_state: of weights, order and split.
        device: of torch, e.g. ``"cuda"``.

    Attributes:
        classes_: the labels, sorted.
        network_: the trained `torch.nn.Sequential`.
        learned_: what `metacal.MetaCalibrator.export` gives: plain numbers; empty without held-out samples.
        finished_: the temperature and whether it was folded, a `metacal.Finish`; None without ``finish``.
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

    finished_: Finish | None
    _kept: dict[str, Any] | None = None
    """What `partial_fit` keeps between calls: seed, held-out rows, and states to continue from."""

    def __init__(
        self,
        hidden: tuple[int, ...] = (),
        *,
        learns: str = "penalty",
        validation_fraction: float = 0.1,
        finish: bool = True,
        max_iter: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        weight_decay: float = 1e-4,
        meta_calibration: dict[str, Any] | None = None,
        random_state: Any = None,
        device: str = "cpu",
    ) -> None:
        self.hidden = hidden
        self.learns = learns
        self.validation_fraction = validation_fraction
        self.finish = finish
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.meta_calibration = meta_calibration
        self.random_state = random_state
        self.device = device

    def fit(self, X: Any, y: Any, X_val: Any = None, y_val: Any = None) -> Self:
        """Fit on samples ``X (n, d)``, dense or sparse, with labels ``y (n,)`` of any kind.

        Args:
            X: array, sparse matrix or frame.
            y: labels.
            X_val: held-out samples to learn on; None sets ``validation_fraction`` of ``X``
                aside.
            y_val: their labels.
        """
        self._check_params()
        if (X_val is None) != (y_val is None):
            raise InvalidValueError("`X_val` and `y_val` must be given both or neither.")
        X, y = self._checked(X, y, reset=True)
        self.classes_ = unique_labels(y)
        if len(self.classes_) < 2:
            raise InvalidValueError(f"`y` must hold at least 2 classes, got 1 class: {self.classes_[0]!r}.")
        seed = self._new_seed()
        rows = self._rows(X, y)
        if X_val is None:
            rows, held_out = split_rows(rows, self.validation_fraction, seed)
            if not len(held_out):
                raise InvalidValueError(
                    f"`X` must hold two samples of a class, one of them to be set aside, got n_samples={len(rows)} of "
                    f"{len(self.classes_)} classes; or pass `X_val` and `y_val`."
                )
        else:
            held_out = self._rows(*self._checked(X_val, y_val, reset=False), name="y_val")
        self._kept, self.n_iter_ = None, self._epochs(len(rows))
        network = self._new_network(seed)
        options = {"batch_size": self._batch(len(rows)), "epochs": self.n_iter_, "seed": seed}
        with silent_about_twins() if X_val is None else nullcontext():
            self._train(network, rows, held_out, options)
        self.network_ = network
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Train for one pass over a part of the data; the first call has to name all ``classes``.

        A share of every part is kept aside (10,000 samples at most) to learn on. The learning
        rate stays ``lr``; the temperature is fitted anew each time.
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
            self._kept, self.n_iter_ = {"seed": self._new_seed()}, 0
            self.network_ = self._new_network(self._kept["seed"])
        elif classes is not None and not np.array_equal(unique_labels(classes), self.classes_):
            raise InvalidValueError(f"`classes` must be those of the first call, {self.classes_}, got {classes}.")
        saved = self._kept or {"seed": self._new_seed()}  # nothing is kept after fit
        seed = saved["seed"] + self.n_iter_
        rows, held_out = split_rows(self._rows(X, y), self.validation_fraction, seed)
        kept = saved["held_out"].joined(held_out) if "held_out" in saved else held_out
        if len(kept) > MOST_HELD_OUT:
            order = torch.randperm(len(kept), generator=torch.Generator().manual_seed(self.n_iter_))
            kept = kept.select(order[:MOST_HELD_OUT])
        options = {"batch_size": self.batch_size or LARGEST_BATCH, "epochs": 1, "seed": seed, "decays": False}
        with silent_about_twins():
            states = self._train(self.network_, rows, kept, options, saved.get("states"))
        self._kept = {"seed": saved["seed"], "held_out": kept, "states": states}
        self.n_iter_ += 1
        return self

    def _train(
        self,
        network: nn.Module,
        rows: Rows,
        held_out: Rows,
        options: dict[str, Any],
        saved: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Train, with meta-calibration if there are held-out rows; return states to continue from.

        A temperature is folded into the network, but not into its state.
        """
        optimizer = torch.optim.AdamW(network.parameters(), lr=self._lr(), weight_decay=self.weight_decay)
        calibrator: MetaCalibrator | None = None
        if saved is not None:
            network.load_state_dict(saved["network"])
            optimizer.load_state_dict(saved["optimizer"])
        if len(held_out):
            batches = RowBatches(held_out, options["batch_size"], mixed(options["seed"], head_training.META))
            learned = HYPERPARAMETERS[LEARNED[self.learns]].for_head(network, len(self.classes_))
            settings = {"seed": options["seed"], **(self.meta_calibration or {})}
            calibrator = MetaCalibrator(network, optimizer, batches, learned, **settings)
            if saved is not None and saved["calibrator"] is not None:
                calibrator.load_state_dict(saved["calibrator"])
        loss_of = (lambda x, y: nn.functional.cross_entropy(network(x), y)) if calibrator is None else calibrator.step
        self.loss_ = head_training.train(network, optimizer, loss_of, rows, **options)
        states = {"network": copy.deepcopy(network.state_dict()), "optimizer": optimizer.state_dict()}
        if calibrator is None:
            self.learned_, self.finished_ = {}, None
            return {**states, "calibrator": None if saved is None else saved["calibrator"]}
        states["calibrator"] = calibrator.state_dict()
        self.learned_ = calibrator.export()
        self.finished_ = calibrator.finish() if self.finish else None
        calibrator.remove()
        return states

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return logits ``(n, K)``; for two classes their difference, ``(n,)``."""
        logits = self._logits(X)
        return np.asarray(logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities ``(n, K)``, in the order of ``classes_``."""
        return np.asarray(torch.softmax(torch.from_numpy(self._logits(X)), dim=1).numpy())

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most likely label of each sample."""
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
        check_choice("learns", self.learns, tuple(LEARNED))
        check_inside("validation_fraction", self.validation_fraction)
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
        return head_training.build_network(widths, seed, torch.device(self.device))

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
        return np.asarray(head_training.compute_logits(self.network_, rows).numpy())


@contextmanager
def silent_about_twins() -> Iterator[None]:
    """Suppress the warning about shared samples: after our own split, these are duplicates in the data."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="A meta batch shares samples")
        yield
