"""`RunView`: what a report shows of one training run, as plain columns and tensors. Whoever stores runs fills it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.evaluation.predictions import Predictions


@dataclass(frozen=True, eq=False)
class RunView:
    """One training run as a report shows it; shapes are checked when it is made, and what is None is not shown.

    Attributes:
        name: what to call the run.
        method: how it was trained.
        dataset: what it was trained on.
        class_names: K names.
        epochs: columns by name, one value an epoch: ``train_loss``, ``train_error``, ``train_ece``, ``val_error``,
            ``val_ece``, ``val_dece``, ``lr``; any may be missing, and a value that was not measured is NaN.
        strengths: smoothing strength of each class after each epoch, ``(epochs, K)``, or ``(epochs, 1)`` when the
            classes share one.
        smoothing: learned share that each class (row) gives to each other (column), ``(K, K)``, at the best checkpoint.
        l2: learned L2 coefficients by parameter name.
        superclasses: the superclass of each class.
        predictions: of the best checkpoint on the test set.
        shifts: what was measured of it under shifts.

    Examples:
        >>> run = RunView("first", "MC", "CIFAR-10", ("cat", "dog"), {"val_ece": [0.20, 0.05]})
        >>> run.num_epochs, run.num_classes
        (2, 2)
    """

    name: str
    method: str
    dataset: str
    class_names: tuple[str, ...]
    epochs: Mapping[str, Sequence[float]]
    strengths: Tensor | None = None
    smoothing: Tensor | None = None
    l2: Mapping[str, Tensor] | None = None
    superclasses: tuple[int, ...] | None = None
    predictions: Predictions | None = None
    shifts: Sequence[Mapping[str, Any]] = ()

    def __post_init__(self) -> None:
        lengths = {name: len(column) for name, column in self.epochs.items()}
        if len(set(lengths.values())) > 1:
            raise InvalidValueError(f"`epochs` must have columns of one length, got {lengths}.")
        for name in ("strengths", "smoothing"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, Tensor):
                raise InvalidTypeError(f"`{name}` must be a tensor or None, got {type(value).__name__}.")
        size = self.num_classes
        if self.strengths is not None and (self.strengths.ndim != 2 or self.strengths.shape[1] not in (1, size)):
            raise InvalidValueError(
                f"`strengths` must have shape (epochs, {size}) or (epochs, 1), got {tuple(self.strengths.shape)}."
            )
        if self.smoothing is not None and self.smoothing.shape != (size, size):
            raise InvalidValueError(f"`smoothing` must have shape ({size}, {size}), got {tuple(self.smoothing.shape)}.")
        if self.superclasses is not None and len(self.superclasses) != size:
            raise InvalidValueError(
                f"`superclasses` must give one superclass to each of {size} classes, got {len(self.superclasses)}."
            )

    @property
    def num_epochs(self) -> int:
        """Epochs that the columns hold."""
        return len(next(iter(self.epochs.values()), ()))

    @property
    def num_classes(self) -> int:
        """K."""
        return len(self.class_names)
