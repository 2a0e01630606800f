"""Converts scores: NumPy arrays are returned as NumPy arrays, tensors as tensors, in the same shape."""

from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from numpy.typing import NDArray
from torch import Tensor

from metacal.errors import InvalidValueError
from metacal.functional.boundary import to_tensor
from metacal.functional.inputs import at_least_float32, log_probs, read_inputs

Array = TypeVar("Array", Tensor, NDArray[Any])
"""A tensor or a NumPy array: the same comes out as went in."""


@dataclass(frozen=True)
class Given:
    """Checked scores ``(n, K)`` in float32 or float64, and the form in which they were passed."""

    scores: Tensor
    is_logits: bool
    is_tensor: bool
    is_flat: bool  # one score per sample, that of class 1

    @property
    def name(self) -> str:
        """The keyword of the scores."""
        return "logits" if self.is_logits else "probs"

    @property
    def logits(self) -> Tensor:
        """Logits; see `log_probs` for those of probabilities."""
        return self.scores if self.is_logits else log_probs(self.scores)

    @property
    def probs(self) -> Tensor:
        """Probabilities in float64, normalised to sum to 1."""
        wide = self.scores.double()  # a map that is steep or jumps would make much of a float32's rounding
        return torch.softmax(wide, dim=1) if self.is_logits else wide / wide.sum(dim=1, keepdim=True)

    def give_back(self, probs: Tensor) -> Any:
        """Return probabilities ``(n, K)`` in the kind, dtype and shape of the input."""
        out = probs.to(self.scores.dtype)
        out = out[:, 1] if self.is_flat else out
        return out if self.is_tensor else out.numpy()


def read_scores(
    logits: Any, probs: Any, targets: Any = None, *, num_classes: int | None = None
) -> tuple[Given, Tensor | None]:
    """Check scores (and targets, in a fit) and convert them to one form."""
    if (logits is None) == (probs is None):
        given = "neither" if logits is None else "both"
        raise InvalidValueError(f"Exactly one of `logits` and `probs` must be given, got {given}.")
    name, values = ("logits", logits) if probs is None else ("probs", probs)
    scores = to_tensor(name, values)
    is_flat = scores.ndim == 1
    if is_flat and scores.is_floating_point():
        scores = torch.stack((torch.zeros_like(scores) if name == "logits" else 1.0 - scores, scores), dim=1)
    if scores.ndim != 2:
        raise InvalidValueError(f"`{name}` must have shape (n, K), or (n,) for a binary model, got {scores.shape}.")
    labels = None if targets is None else to_tensor("targets", targets)
    if labels is not None and labels.dtype == torch.bool:
        labels = labels.to(torch.int64)
    if labels is not None and labels.shape != scores.shape[:1]:
        raise InvalidValueError(
            f"`targets` must have shape ({len(scores)},) to fit `{name}`, got {tuple(labels.shape)}."
        )
    if num_classes is not None and scores.shape[1] != num_classes:
        raise InvalidValueError(f"`{name}` must have {num_classes} classes, as in fit, got {scores.shape[1]}.")
    any_labels = torch.zeros(len(scores), dtype=torch.int64, device=scores.device) if labels is None else labels
    keywords: dict[str, Tensor] = {name: scores}
    inputs = read_inputs(**keywords, targets=any_labels, allow_empty=labels is None)  # type: ignore[arg-type]
    for _ in inputs.chunks():  # checks values as it goes
        pass
    found = Given(at_least_float32(inputs.scores), name == "logits", isinstance(values, Tensor), is_flat)
    return found, None if labels is None else inputs.targets
