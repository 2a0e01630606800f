"""After training: one temperature, fitted on the held-out samples and folded into the model."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from metacal.functional import calibration_error_interval
from metacal.functional.temperature import LEAST_LOGIT, temperature_with_prior
from metacal.metalearning.head_tap import is_plain_linear, logits_of

ITERATIONS = 60


@dataclass(frozen=True)
class Figures:
    """Calibration of the held-out samples: mean NLL, ECE (15 bins) and the ends of its 95 % interval."""

    nll: float
    ece: float
    low: float
    high: float


@dataclass(frozen=True)
class Finish:
    """The result of `MetaCalibrator.finish`; prints as a verdict.

    Attributes:
        temperature: the most probable one for the held-out samples.
        helps: whether it improves the NLL of the held-out samples by more than its standard error.
        is_folded: whether the model's logits are divided by it now.
        reason: why, or why not.
        samples: held-out samples.
        before: their figures with the logits as they were.
        after: with the temperature.
    """

    temperature: float
    helps: bool
    is_folded: bool
    reason: str
    samples: int
    before: Figures
    after: Figures

    @property
    def verdict(self) -> str:
        """What was done, and why, in one line."""
        done = "folded into the last layer" if self.is_folded else "not folded"
        return f"temperature {self.temperature:.3f}, {done}: {self.reason}"

    def __str__(self) -> str:
        rows = [self.verdict, f"  {'':8}{'NLL':>8}   ECE (95 % interval)"]
        for name, figures in (("before", self.before), ("after", self.after)):
            rows.append(f"  {name:8}{figures.nll:8.4f}   {figures.ece:.2%} ({figures.low:.2%} to {figures.high:.2%})")
        rows.append(
            f"These {self.samples:,} samples were learned from: check on a test set with "
            "`metacal evaluate predictions.npz`."
        )
        return "\n".join(rows)


class TemperatureScaled(nn.Module):
    """A model with logits divided by a temperature T > 0, for models whose last layer cannot absorb it.

    The model returns logits, or has them in its output under that name; what is returned is the logits.
    """

    temperature: Tensor

    def __init__(self, model: nn.Module, temperature: float) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("temperature", torch.tensor(float(temperature)))

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return the model's scaled logits."""
        return logits_of(self.model(*args, **kwargs)) / self.temperature


def finish(model: nn.Module, head: nn.Module | None, logits: Tensor, labels: Tensor, *, folds: bool) -> Finish:
    """Fit a temperature and, with ``folds``, fold it into the head if possible.

    The logits ``(n, K)`` are those of held-out samples in evaluation mode; ``head`` is the layer that returns them, if
    it is known.
    """
    wide = logits.double() if logits.device.type != "mps" else logits.float()
    temperature = temperature_with_prior(logits=wide, targets=labels, iterations=ITERATIONS)
    gain, error = gain_of(wide, labels, temperature)
    before, after = _figures(wide, labels), _figures(wide / temperature, labels)  # raises if a logit is not a number
    reason = f"it lowers held-out NLL by {gain:.4f} (s.e. {error:.4f})"
    is_folded = folds and can_fold(model, head)
    if is_folded and head is not None:
        with torch.no_grad():
            for parameter in head.parameters():  # the layer's output is then divided too
                parameter.div_(float(temperature))
    elif folds:
        reason += "; the last layer is not a plain linear one: use metacal.TemperatureScaled(model, temperature)"
    return Finish(float(temperature), gain > error, is_folded, reason, len(labels), before, after)


def can_fold(model: nn.Module, head: nn.Module | None) -> bool:
    """Whether a head is a plain linear layer whose parameters nothing else uses."""
    if head is None or not is_plain_linear(head):
        return False
    own = {id(parameter) for parameter in head.parameters()}
    others = (p for module in model.modules() if module is not head for p in module.parameters(recurse=False))
    return not any(id(parameter) in own for parameter in others)


def gain_of(logits: Tensor, labels: Tensor, temperature: Tensor | float) -> tuple[float, float]:
    """Return the decrease of the mean NLL with a temperature, and its standard error; one sample shows nothing."""
    gains = _nll(logits, labels) - _nll(logits / temperature, labels)
    return float(gains.mean()), float(gains.std()) / len(gains) ** 0.5 if len(gains) > 1 else math.inf


def _nll(logits: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits, labels, reduction="none")


def _figures(logits: Tensor, labels: Tensor) -> Figures:
    ruled_out = logits == -torch.inf  # classes that cannot be; any logit far below the others says so
    interval = calibration_error_interval(logits=logits.masked_fill(ruled_out, LEAST_LOGIT), targets=labels)
    return Figures(float(_nll(logits, labels).mean()), *(float(end) for end in interval[:3]))
