"""`Calibrator`, the base of all post-hoc calibrators: fit, predict_proba, parameters, save and load.

Names are scikit-learn's (``fit(X, y)``, ``predict_proba(X)``, ``get_params``, fitted attributes end in an underscore),
but a calibrator is no scikit-learn estimator: its X has one column for each class, which the estimator checks, with
features in any number and labels of any kind, do not allow. `PosthocCalibratedClassifier` is one, and passes them.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metacal.errors import InvalidTypeError, InvalidValueError, NotFittedError, StorageError, needs, warn
from metacal.files import write_whole
from metacal.functional.arguments import check_choice, check_integer
from metacal.functional.binning import is_first_top
from metacal.functional.boundary import explain_methods, explained
from metacal.posthoc.arrays import Array, read_scores

if TYPE_CHECKING:
    from typing_extensions import Self

METADATA_KEY = "metacal.posthoc"
LARGEST = 1e100
"""No fit gives a parameter that is larger, and its products with scores would be beyond any float."""

FEW, MORE = 64, 1024
"""Rows that are checked together for a first mistake: first, and then."""

MANY = 10_000_000
"""Scores from which a fit runs on all of torch's threads."""


class FitReport(NamedTuple):
    """The outcome of a fit.

    Attributes:
        iterations: of the optimiser; 1 where the fit is a direct computation.
        converged: whether the optimum (or a bound) was reached.
        at_bound: whether the likelihood still improves beyond a bound that was hit.
        warning: one sentence if the result may be unreliable.
    """

    iterations: int = 1
    converged: bool = True
    at_bound: bool = False
    warning: str | None = None

    @classmethod
    def of(cls, iterations: int, converged: bool) -> FitReport:
        """Build a report from an optimiser's result; warn if it did not converge."""
        stopped = f"The fit did not converge in {iterations} iterations: the weights may be improved on."
        return cls(iterations, converged, warning=None if converged else stopped)


class Calibrator:
    """Base of the calibrators: maps a model's scores to better probabilities, fitted on held-out samples.

    A subclass says what it reads (``reads``), names the arrays that a fit leaves behind (``fitted``: float64
    NumPy arrays or floats) and defines ``_fit``, ``_apply`` and, for `load`, ``_check_fitted``.

    Attributes:
        keeps_predictions: whether the most likely class of every sample stays what it was.
        reads: what ``X`` is, ``"logits"`` or ``"probs"``; by their names it takes either.
        num_classes_: K of the samples it was fitted on.
        class_names_: the K classes in order; None where nobody said.
        fitted_on_: ``"logits"`` or ``"probs"``; None where a file does not say.
        fit_report_: how the fit went.
    """

    keeps_predictions: ClassVar[bool]
    reads: ClassVar[Literal["logits", "probs"]]
    fitted: ClassVar[tuple[str, ...]]
    shift_matters: ClassVar[bool] = False  # whether a number added to all logits of a sample changes its probabilities
    parameters_grow_as_square: ClassVar[bool] = False  # with the number of classes
    kinds: ClassVar[dict[str, type[Calibrator]]] = {}

    num_classes_: int
    class_names_: tuple[str, ...] | None = None
    fitted_on_: str | None = None
    fit_report_: FitReport

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        Calibrator.kinds[cls.__name__] = cls
        explain_methods(cls, "__init__")

    @explained
    def fit(
        self,
        X: Any = None,
        y: Any = None,
        *,
        logits: Any = None,
        probs: Any = None,
        targets: Any = None,
        class_names: Sequence[str] | None = None,
    ) -> Self:
        """Fit on samples that the model was not trained on.

        Args:
            X: what the calibrator ``reads``: logits or probabilities.
            y: the targets.
            logits: ``(n, K)``, or ``(n,)`` for a binary model's logit of class 1; tensor, array, list or pandas object.
            probs: probabilities of the same shapes. Give exactly one of ``X``, ``logits`` and ``probs``.
            targets: int ``(n,)``; the same as ``y``.
            class_names: the classes in order, if they have names; saved with the calibrator.

        Warns:
            MetacalWarning: the data do not determine the calibrator (separable, hopeless, one class only).
        """
        self._check_params()
        if (y is None) == (targets is None):
            found = "neither" if y is None else "both"
            raise InvalidValueError(f"Exactly one of `y` and `targets` must be given, got {found}.")
        logits, probs = self._by_name(X, logits, probs)
        given, labels = read_scores(logits, probs, targets if y is None else y)
        assert labels is not None
        scores = given.logits if self.reads == "logits" else given.probs
        names = _check_names(class_names, scores.shape[1])
        with one_thread(scores):
            report = self._fit(scores, labels)
        self.num_classes_, self.class_names_, self.fit_report_ = scores.shape[1], names, report
        self.fitted_on_ = given.name
        message = self._degeneracy(scores, labels, report)
        if message is not None:
            self.fit_report_ = report._replace(warning=message)
            warn(message)
        return self

    @explained
    def predict_proba(
        self, X: Array | None = None, *, logits: Array | None = None, probs: Array | None = None
    ) -> Array:
        """Return calibrated probabilities, in the kind (NumPy or torch, device) and shape of the scores (see `fit`).

        float64 scores give float64, all others float32: narrower probabilities would not sum to 1.
        """
        if not hasattr(self, "fit_report_"):
            raise NotFittedError(f"{type(self).__name__} must be fitted before `predict_proba`: call `fit` or `load`.")
        logits, probs = self._by_name(X, logits, probs)
        given, _ = read_scores(logits, probs, num_classes=self.num_classes_)
        if self.shift_matters and self.fitted_on_ not in (None, given.name):
            raise InvalidValueError(
                f"`{self.fitted_on_}` must be given, as in fit, got `{given.name}`: logarithms of probabilities are "
                f"logits only up to a number for each sample, which changes what {type(self).__name__} says."
            )
        scores = given.logits if self.reads == "logits" else given.probs
        with torch.no_grad():
            result: Array = given.give_back(self._apply(scores))
        return result

    def _by_name(self, X: Any, logits: Any, probs: Any) -> tuple[Any, Any]:
        """Return logits and probabilities; ``X`` is the kind that the calibrator reads."""
        if X is None:
            return logits, probs
        if logits is not None or probs is not None:
            raise InvalidValueError("`X` must be the only scores, got `logits` or `probs` as well.")
        return (X, None) if self.reads == "logits" else (None, X)

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        """Return the arguments of ``__init__`` with their defaults."""
        found = inspect.signature(cls).parameters.values()
        return {each.name: each.default for each in found}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor arguments, for `sklearn.base.clone` and searches."""
        return {name: getattr(self, name) for name in self._defaults()}

    def set_params(self, **params: Any) -> Self:
        """Change constructor arguments; fitted attributes stay."""
        for name, value in params.items():
            check_choice("name", name, tuple(self._defaults()))
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = self._defaults()
        changed = [f"{name}={value!r}" for name, value in self.get_params().items() if value != defaults[name]]
        return f"{type(self).__name__}({', '.join(changed)})"

    def save(self, path: str | Path) -> None:
        """Atomically write parameters and fitted arrays to a safetensors file, which runs no code when opened.

        Raises:
            NotFittedError: there is nothing to write yet.
            InvalidValueError: the file cannot be written; what was there is kept.
        """
        with needs("cli"):
            import safetensors.numpy
        if not hasattr(self, "fit_report_"):
            raise NotFittedError(f"{type(self).__name__} must be fitted before `save`.")
        arrays = {name[:-1]: np.array(getattr(self, name), dtype=np.float64, order="C") for name in self.fitted}
        about = {
            "kind": type(self).__name__,
            "params": self.get_params(),
            "num_classes": self.num_classes_,
            "class_names": self.class_names_,
            "fitted_on": self.fitted_on_,
            "fit_report": self.fit_report_._asdict(),
        }
        text = json.dumps(about, default=lambda number: number.item())  # a parameter may be one of NumPy's numbers
        data, place = safetensors.numpy.save(arrays, metadata={METADATA_KEY: text}), Path(path)
        if not place.parent.is_dir():
            raise InvalidValueError(f"`path` must name a file in a folder that exists, got {path}.")
        try:
            write_whole(place, lambda file: file.write(data))
        except StorageError as error:
            raise InvalidValueError(f"`path` must name a file that can be written, got {path}: {error}") from None

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a calibrator written by `save`; `Calibrator.load` reads any kind.

        Raises:
            InvalidValueError: no such file, not a saved calibrator, one of another kind, or values that no fit gives.
        """
        with needs("cli"):
            import safetensors
        try:
            with safetensors.safe_open(path, framework="numpy") as file:
                text = (file.metadata() or {}).get(METADATA_KEY)
                names = [name for name in file.keys() if file.get_slice(name).get_dtype() == "F64"]  # noqa: SIM118
                arrays = {name: file.get_tensor(name) for name in names}
        except (OSError, safetensors.SafetensorError) as error:
            raise InvalidValueError(f"`path` must name a calibrator's safetensors file, got {path}: {error}.") from None
        if text is None:
            raise InvalidValueError(f"`path` must name a file written by `save`, got {path} without its metadata.")
        try:
            about = json.loads(text)
            kind = Calibrator.kinds.get(about["kind"])
            if kind is not None and issubclass(kind, cls):
                return kind._restore(about, arrays)
        except KeyError as error:
            raise InvalidValueError(f"`path` must name a file written by `save`, got {path} without {error}.") from None
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidValueError(f"`path` must name a file written by `save`, got {path}: {error}") from None
        raise InvalidValueError(f"`path` must name a saved {cls.__name__}, got {path} with a {about['kind']}.")

    @classmethod
    def _restore(cls, about: dict[str, Any], arrays: dict[str, NDArray[np.float64]]) -> Self:
        """Rebuild a calibrator from a file; everything is checked, because the file may come from anyone."""
        names = [name[:-1] for name in cls.fitted]
        if "uniform_share" in names:  # files that were written before it was kept have none
            arrays = {"uniform_share": np.zeros(())} | arrays
        if set(arrays) != set(names):
            raise InvalidValueError(f"the float64 arrays must be {', '.join(names)}, got {sorted(arrays)}.")
        calibrator = cls(**about["params"])
        calibrator._check_params()
        check_integer("num_classes", about["num_classes"], 2)
        calibrator.num_classes_, calibrator.fit_report_ = about["num_classes"], _check_report(about["fit_report"])
        # These two are absent from files that were written before they were kept.
        calibrator.fitted_on_ = about.get("fitted_on")
        if calibrator.fitted_on_ is not None:
            check_choice("fitted_on", calibrator.fitted_on_, ("logits", "probs"))
        calibrator.class_names_ = _check_names(about.get("class_names"), calibrator.num_classes_)
        for name, array in arrays.items():
            setattr(calibrator, f"{name}_", float(array) if array.ndim == 0 else array)
        calibrator._check_fitted()
        return calibrator

    def _degeneracy(self, scores: Tensor, targets: Tensor, report: FitReport) -> str | None:
        """Return a sentence if the samples do not determine how confident the model should be."""
        if bool((targets == targets[0]).all()):
            return f"All {len(targets)} targets are of class {int(targets[0])}: the fit knows no other."
        if report.warning is not None:
            return report.warning
        chance = 1.0 / scores.shape[1]
        right = is_first_top(scores, targets, scores.amax(dim=1), torch.zeros_like(targets, dtype=torch.bool))
        accuracy = float(right.double().mean())
        if accuracy < chance - 4.0 * (chance * (1.0 - chance) / len(targets)) ** 0.5:
            return (
                f"The scores run against the targets: {accuracy:.1%} are right, chance gives {chance:.1%}; are classes "
                "or rows out of order?"
            )
        for first in (0, *range(FEW, len(targets), MORE)):
            rows = slice(first, first + MORE if first else FEW)
            if bool((self._apply(scores[rows]).argmax(dim=1) != targets[rows]).any()):
                return None
        return (
            f"All {len(targets)} samples are right after the fit, so it cannot tell how often the model is wrong; "
            "were they in the training set?"
        )

    def _check_params(self) -> None:
        """Raise if a parameter is outside its domain; checked in fit, as scikit-learn does."""

    def _check_fitted(self) -> None:
        """Raise if an array named in ``fitted`` has a shape or values that no fit can produce."""
        raise NotImplementedError

    def _fit(self, scores: Tensor, targets: Tensor) -> FitReport:
        """Set the attributes named in ``fitted`` from scores ``(n, K)`` of the kind it reads."""
        raise NotImplementedError

    def _apply(self, scores: Tensor) -> Tensor:
        """Probabilities ``(n, K)`` of scores ``(n, K)``."""
        raise NotImplementedError


@contextmanager
def one_thread(scores: Tensor) -> Iterator[None]:
    """Fit few scores on one thread: a fit is many short operations, slower on threads that wait for a busy core."""
    threads = torch.get_num_threads()
    if threads == 1 or scores.device.type != "cpu" or scores.numel() > MANY:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _check_names(class_names: Sequence[str] | None, num_classes: int) -> tuple[str, ...] | None:
    if class_names is None:
        return None
    if isinstance(class_names, str) or not all(isinstance(name, str) for name in class_names):
        raise InvalidTypeError(f"`class_names` must be None or a sequence of strings, got {class_names!r}.")
    if len(class_names) != num_classes:
        raise InvalidValueError(f"`class_names` must hold {num_classes} names, got {len(class_names)}.")
    return tuple(class_names)


def _check_report(about: dict[str, Any]) -> FitReport:
    report = FitReport(**about)
    check_integer("iterations", report.iterations, 0)
    if not isinstance(report.converged, bool) or not isinstance(report.at_bound, bool):
        raise InvalidTypeError(f"`converged` and `at_bound` must be true or false, got {report}.")
    if report.warning is not None and not isinstance(report.warning, str):
        raise InvalidTypeError(f"`warning` must be None or a sentence, got {report.warning!r}.")
    return report


def check_fitted(
    name: str, values: Any, shape: tuple[int, ...], least: float = -LARGEST, most: float = LARGEST
) -> None:
    """Raise unless a fitted parameter has this shape, is finite, and lies within the bounds."""
    if np.shape(values) != shape:
        raise InvalidValueError(f"`{name}` must have shape {shape}, got {np.shape(values)}.")
    wrong = np.asarray(values)[~(np.isfinite(values) & (values >= least) & (values <= most))]
    if wrong.size:
        raise InvalidValueError(f"`{name}` must be finite and in [{least:g}, {most:g}], got {wrong[0]:g}.")


def to_array(values: Tensor) -> NDArray[np.float64]:
    """Return a fitted parameter as a float64 NumPy array in host memory."""
    array: NDArray[np.float64] = values.detach().double().cpu().numpy()
    return array


def like(array: NDArray[np.float64], scores: Tensor) -> Tensor:
    """A fitted parameter as a float64 tensor on the device of the scores."""
    return torch.as_tensor(array, dtype=torch.float64, device=scores.device)
