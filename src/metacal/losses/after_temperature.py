"""A loss judged after the temperature that is best for the batch: what is left is what a temperature cannot fix."""

from torch import Tensor

from metacal.errors import InvalidTypeError
from metacal.functional.arguments import check_positive
from metacal.functional.temperature_prior import PRIOR_STD, temperature_with_prior
from metacal.losses.base import Loss


class AfterTemperature(Loss):
    """``loss(logits / T)`` with T the most probable temperature for the batch itself, held fixed.

    For the NLL this is refinement (Berta et al. 2025): by the envelope theorem, holding T fixed leaves the gradient
    exact up to the prior's share. See `metacal.functional.temperature_with_prior`.

    Args:
        loss: of scaled logits.
        prior_std: of log T.

    Examples:
        >>> import torch
        >>> from metacal.losses import CrossEntropy
        >>> logits, targets = torch.tensor([[9.0, 0.0], [9.0, 0.0]]), torch.tensor([0, 1])
        >>> refined = AfterTemperature(CrossEntropy())
        >>> round(CrossEntropy()(logits, targets).item(), 3), round(refined(logits, targets).item(), 3)
        (4.5, 2.247)
    """

    def __init__(self, loss: Loss, prior_std: float = PRIOR_STD) -> None:
        super().__init__()
        check_positive("prior_std", prior_std)
        if not isinstance(loss, Loss):
            raise InvalidTypeError(
                f"`loss` must be a metacal Loss, got {type(loss).__name__}; FunctionLoss wraps any callable."
            )
        self.loss, self.prior_std = loss, prior_std

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Loss of a batch."""
        temperature = temperature_with_prior(logits=logits, targets=targets, prior_std=self.prior_std)
        value: Tensor = self.loss(logits / temperature, targets)
        return value

    def extra_repr(self) -> str:
        """What is judged."""
        return repr(self.loss)
