"""`Predictions`: what a model said about a set of samples, and what was true; real ones ship with the package."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
import torch
from torch import Tensor

from metacal.errors import InvalidValueError
from metacal.functional.boundary import to_tensor
from metacal.functional.inputs import Inputs, at_least_float32, log_probs, read_inputs

EXAMPLE = "wideresnet-16-4-cifar-10.npz"


@dataclass(frozen=True)
class Predictions:
    """Scores of n samples over K classes with their targets; values are checked when it is made.

    Attributes:
        scores: ``(n, K)``, logits or probabilities, any float dtype.
        is_logits: which of the two they are.
        targets: int64 ``(n,)``.
        class_names: K names.
        name: what to call these predictions in tables and figures.
        total: rows that these are a random sample of; None if they are all there are.
        row_numbers: int64 ``(n,)``, which of these rows they are, counted from 0; None if they are all there are.

    Examples:
        >>> import torch
        >>> said = Predictions.from_probs(torch.tensor([[0.9, 0.1], [0.4, 0.6]]), torch.tensor([0, 0]))
        >>> said.num_classes, said.class_names
        (2, ('0', '1'))
    """

    scores: Tensor
    is_logits: bool
    targets: Tensor
    class_names: tuple[str, ...]
    name: str = "predictions"
    total: int | None = None
    row_numbers: Tensor | None = None

    @classmethod
    def from_logits(
        cls, logits: Tensor, targets: Tensor, class_names: Sequence[str] | None = None, name: str = "predictions"
    ) -> "Predictions":
        """Predictions from raw scores; arrays and lists are taken too, as in `from_probs`."""
        return cls._checked(to_tensor("logits", logits), targets, class_names, name, is_logits=True)

    @classmethod
    def from_probs(
        cls, probs: Tensor, targets: Tensor, class_names: Sequence[str] | None = None, name: str = "predictions"
    ) -> "Predictions":
        """Predictions from probabilities ``(n, K)``; ``(n,)`` is a binary model's probability of class 1."""
        probs = to_tensor("probs", probs)
        if probs.ndim == 1:
            probs = torch.stack((1.0 - probs, probs), dim=1)
        return cls._checked(probs, targets, class_names, name, is_logits=False)

    @classmethod
    def _checked(
        cls, scores: Tensor, targets: Tensor, class_names: Sequence[str] | None, name: str, *, is_logits: bool
    ) -> "Predictions":
        logits, probs = (scores, None) if is_logits else (None, scores)
        inputs = read_inputs(logits=logits, probs=probs, targets=to_tensor("targets", targets), classes_only=True)
        for _ in inputs.chunks():  # checks values as it goes
            pass
        names = tuple(str(number) for number in range(inputs.num_classes)) if class_names is None else class_names
        if len(names) != inputs.num_classes:
            raise InvalidValueError(f"`class_names` must hold {inputs.num_classes} names, got {len(names)}.")
        return cls(inputs.scores, is_logits, inputs.targets, tuple(names), name)

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def num_classes(self) -> int:
        """K."""
        return self.scores.shape[1]

    @property
    def inputs(self) -> Inputs:
        """As measures read them; values were checked when these predictions were made."""
        return Inputs(self.scores, self.targets, self.is_logits, keep=None, validate=False)

    @property
    def predicted(self) -> Tensor:
        """int64 ``(n,)``: the first class with the highest score, before rounding could make two of them equal."""
        return self.scores.argmax(dim=1)

    @property
    def probs(self) -> Tensor:
        """Probabilities ``(n, K)`` in float32 or wider."""
        wide = at_least_float32(self.scores)
        return torch.softmax(wide, dim=1) if self.is_logits else wide

    @property
    def logits(self) -> Tensor:
        """Logits ``(n, K)`` in float32 or wider; see `log_probs` for those of probabilities."""
        return at_least_float32(self.scores) if self.is_logits else log_probs(self.scores)


def example_predictions() -> tuple[Tensor, Tensor]:
    """Test-set probabilities ``(10000, 10)`` of a WideResNet-16-4 on CIFAR-10, and the targets ``(10000,)``.

    Examples:
        >>> from metacal.functional import expected_calibration_error
        >>> probs, targets = example_predictions()
        >>> round(expected_calibration_error(probs=probs, targets=targets).item(), 4)
        0.0537
    """
    resource = files("metacal") / "assets" / EXAMPLE
    with resource.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return torch.from_numpy(arrays["predictions"]), torch.from_numpy(arrays["ground_truth"])
