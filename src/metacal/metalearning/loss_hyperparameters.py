"""Learnable parameters of the loss other than labels: a temperature, focal exponents, L2 coefficients."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.functional.arguments import check_inside, check_integer
from metacal.functional.sample_losses import focal_weight, target_log_probs
from metacal.metalearning.hyperparameter import Bounds, Hyperparameter, InnerLoss

__all__ = ["GammaNet", "LearnableFocalGamma", "LearnableTemperature", "UnitwiseL2"]


class LearnableTemperature(Hyperparameter, name="temperature"):
    """Divides held-out logits by a learned T, so post-hoc scaling is ready when training ends.

    Its effect on the meta-objective is direct, so no inner step is needed for its gradient. With ``in_training`` the
    training loss sees ``z / T`` as well, and the gradient through the inner step is added.

    Attributes:
        log_temperature: ``()``, starts at 0 (T = 1); T stays in [0.01, 100].
    """

    acts_on_meta_logits = True

    def __init__(self, in_training: bool = False) -> None:
        super().__init__()
        self.in_training = in_training
        self.log_temperature = nn.Parameter(torch.zeros(()))

    @classmethod
    def for_head(cls, head: nn.Module, num_classes: int) -> "LearnableTemperature":
        """Build one; it does not depend on the model."""
        return cls()

    @property
    def temperature(self) -> Tensor:
        """The temperature T."""
        return self.log_temperature.exp()

    def forward(self, inner: InnerLoss) -> InnerLoss:
        """Scale the logits, if it also acts in training."""
        if not self.in_training:
            return inner
        temperature = self.temperature
        return inner.with_transform(lambda logits: logits / temperature)

    def meta_logits(self, logits: Tensor) -> Tensor:
        """Return the scaled held-out logits."""
        return logits / self.temperature

    def bounds(self) -> Bounds:
        """T in [0.01, 100]."""
        return {"log_temperature": (math.log(1e-2), math.log(1e2))}

    def summary(self) -> dict[str, Tensor]:
        """Return T."""
        return {"temperature": self.temperature.detach()}

    def export(self) -> dict[str, Any]:
        """Return T."""
        return {"temperature": self.temperature.item()}


class LearnableFocalGamma(Hyperparameter, name="focal_gamma"):
    """Focal loss with a learned gamma: weights each sample by ``(1 - p) ** gamma``, p of the true class.

    Args:
        num_classes: K.
        per_class: a gamma for each true class instead of one.

    Attributes:
        gamma: ``()`` or ``(K,)``, in [0, 10], starts at 0 (cross-entropy).
    """

    def __init__(self, num_classes: int, per_class: bool = False) -> None:
        super().__init__()
        check_integer("num_classes", num_classes, 2)
        self.num_classes = num_classes
        self.gamma = nn.Parameter(torch.zeros(num_classes if per_class else ()))

    def forward(self, inner: InnerLoss) -> InnerLoss:
        """Set the sample weights."""
        labels = inner.labels
        gamma = self.gamma if self.gamma.ndim == 0 else self.gamma[labels]
        return inner.with_weight(lambda logits: focal_weight(target_log_probs(logits, labels), gamma))

    def bounds(self) -> Bounds:
        """Gamma in [0, 10]."""
        return {"gamma": (0.0, 10.0)}


class GammaNet(Hyperparameter, name="gamma_net"):
    """Focal loss whose exponent a small network predicts for each sample (Wang and Golebiowski 2024).

    The network, of two layers and a sigmoid, reads the sample's log-probabilities (the paper's reads features): they
    are trained through the exponent, too. All samples start with the same one.

    Args:
        num_classes: K.
        hidden: units of the hidden layer.
        start: gamma of all samples at first; between 0 and ``most``.
        most: no gamma is above.

    Examples:
        >>> import torch
        >>> GammaNet(3).gammas(torch.tensor([[0.0, 0.0, 0.0], [9.0, 0.0, 0.0]])).tolist()
        [1.0, 1.0]
    """

    num_classes: int

    def __init__(self, num_classes: int, hidden: int = 16, *, start: float = 1.0, most: float = 10.0) -> None:
        super().__init__()
        check_integer("num_classes", num_classes, 2)
        check_integer("hidden", hidden, 1)
        check_inside("start / most", start / most)
        self.num_classes, self.most = num_classes, most
        generator = torch.Generator().manual_seed(0)  # the caller's random numbers stay as they are
        width = 1.0 / math.sqrt(num_classes)
        self.inner_weight = nn.Parameter(width * (2.0 * torch.rand(hidden, num_classes, generator=generator) - 1.0))
        self.inner_bias = nn.Parameter(torch.zeros(hidden))
        self.outer_weight = nn.Parameter(torch.zeros(hidden))
        self.outer_bias = nn.Parameter(torch.tensor(math.log(start / (most - start))))

    def gammas(self, logits: Tensor) -> Tensor:
        """``(n,)``: the exponent of each sample, from logits ``(n, K)``."""
        return self._exponent()(logits)

    def forward(self, inner: InnerLoss) -> InnerLoss:
        """Set the sample weights."""
        labels, gammas = inner.labels, self._exponent()
        return inner.with_weight(lambda logits: focal_weight(target_log_probs(logits, labels), gammas(logits)))

    def summary(self) -> dict[str, Tensor]:
        """Gamma for uniform predictions, and the mean over one-hot predictions."""
        certain = torch.diag(self.outer_bias.detach().new_full((self.num_classes,), 20.0))
        gammas = self.gammas(torch.cat((torch.zeros_like(certain[:1]), certain))).detach()
        return {"gamma_unsure": gammas[0], "gamma_certain": gammas[1:].mean()}

    def _exponent(self) -> Callable[[Tensor], Tensor]:
        """Return the network with its current parameters as a function of logits, in [0, most]."""
        inner_weight, inner_bias, outer_weight, outer_bias = self.parameters()
        most = self.most

        def gammas(logits: Tensor) -> Tensor:
            known = torch.log_softmax(logits, dim=1).clamp(min=-10.0)
            return most * torch.sigmoid(torch.tanh(known @ inner_weight.T + inner_bias) @ outer_weight + outer_bias)

        return gammas


class UnitwiseL2(Hyperparameter, name="unitwise_l2"):
    """Adds ``sum(omega * phi ** 2)`` over the head's parameters phi to the summed training loss; any sign (MC-L2).

    Args:
        head: the module whose parameters are penalised; coefficients are shaped, and named, as they are.

    Examples:
        >>> from torch import nn
        >>> l2 = UnitwiseL2(nn.Linear(4, 3))
        >>> tuple(l2.weight.shape), tuple(l2.bias.shape)
        ((3, 4), (3,))
    """

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        if not isinstance(head, nn.Module):
            raise InvalidTypeError(f"`head` must be a torch.nn.Module, got {type(head).__name__}.")
        self.names = {name: name.replace(".", "__") for name, _ in head.named_parameters()}
        if not self.names:
            raise InvalidValueError("`head` must have parameters to penalise, got none.")
        for name, parameter in head.named_parameters():
            self.register_parameter(self.names[name], nn.Parameter(torch.zeros_like(parameter)))

    @classmethod
    def for_head(cls, head: nn.Module, num_classes: int) -> "UnitwiseL2":
        """Build one with a coefficient for each weight and bias of the last layer."""
        return cls(head)

    def forward(self, inner: InnerLoss) -> InnerLoss:
        """Add the penalty."""
        coefficients: dict[str, Tensor] = {name: getattr(self, own) for name, own in self.names.items()}

        def penalty(parameters: Mapping[str, Tensor]) -> Tensor:
            own, theirs = ({n: tuple(v.shape) for n, v in x.items()} for x in (coefficients, parameters))
            if own != theirs:
                raise InvalidValueError(
                    f"`UnitwiseL2` must be made for the head in use, {theirs}, got {own}; name it to MetaCalibrator, "
                    "such as head=model.fc."
                )
            terms = [(coefficients[name] * parameters[name].square()).sum() for name in coefficients]
            return torch.stack(terms).sum()

        return inner.with_penalty(penalty)

    def summary(self) -> dict[str, Tensor]:
        """Mean coefficient and mean absolute coefficient of each parameter."""
        means = {}
        for name, parameter in self.named_parameters():
            means[f"l2_{name}"] = parameter.detach().mean()
            means[f"l2_{name}_abs"] = parameter.detach().abs().mean()
        return means
