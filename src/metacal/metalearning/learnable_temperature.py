"""A temperature learned while the model trains."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from metacal.metalearning.hyperparameter import Hyperparameter
from metacal.metalearning.inner_loss import InnerLoss

LOWEST, HIGHEST = 1e-2, 1e2


class LearnableTemperature(Hyperparameter, name="temperature"):
    """Divides held-out logits by T: post-hoc scaling, ready when training ends; `MetaCalibrator.calibrate` applies it.

    Its effect on the meta-objective is direct, so no inner step is needed for its gradient. With ``in_training`` the
    training loss sees ``z / T`` as well, and the gradient through the inner step is added.

    Args:
        in_training: also divide the logits of the training loss.

    Attributes:
        log_temperature: ``()``, starts at 0 (T = 1).
    """

    acts_on_meta_logits = True

    def __init__(self, in_training: bool = False) -> None:
        super().__init__()
        self.in_training = in_training
        self.log_temperature = nn.Parameter(torch.zeros(()))

    @classmethod
    def for_head(cls, head: nn.Module, num_classes: int) -> "LearnableTemperature":
        """The same for any model."""
        return cls()

    @property
    def temperature(self) -> Tensor:
        """T."""
        return self.log_temperature.exp()

    def forward(self, inner: InnerLoss) -> InnerLoss:
        """Fill the transform of the logits, if it acts in training."""
        if not self.in_training:
            return inner
        temperature = self.temperature
        return inner.with_transform(lambda logits: logits / temperature)

    def meta_logits(self, logits: Tensor) -> Tensor:
        """Held-out logits, scaled."""
        return logits / self.temperature

    def bounds(self) -> dict[str, tuple[float | None, float | None]]:
        """T in [0.01, 100]."""
        return {"log_temperature": (math.log(LOWEST), math.log(HIGHEST))}

    def summary(self) -> dict[str, Tensor]:
        """T."""
        return {"temperature": self.temperature.detach()}

    def export(self) -> dict[str, Any]:
        """T."""
        return {"temperature": self.temperature.item()}
