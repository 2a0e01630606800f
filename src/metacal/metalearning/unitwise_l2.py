"""A learned L2 coefficient for every weight and bias of the head (MC-L2)."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.metalearning.hyperparameter import Hyperparameter
from metacal.metalearning.inner_loss import InnerLoss


class UnitwiseL2(Hyperparameter, name="unitwise_l2"):
    """Adds ``sum(omega * phi ** 2)`` over the head's parameters phi to the summed training loss; any sign.

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
        """One for all weights and biases of the last layer."""
        return cls(head)

    def forward(self, inner: InnerLoss) -> InnerLoss:
        """Fill the penalty."""
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
