"""S-AvUC as a loss module."""

from torch import Tensor

from metacal.functional.arguments import check_inside, check_positive
from metacal.functional.soft_avuc import soft_avuc
from metacal.losses.base import Loss


class SAvUC(Loss):
    """Soft accuracy-versus-uncertainty loss of the batch; see `metacal.functional.soft_avuc`.

    Args:
        kappa: normalised entropy from which a prediction counts as uncertain.
        temperature: T, softness of that border.
    """

    def __init__(self, kappa: float = 0.5, temperature: float = 0.1) -> None:
        super().__init__()
        check_positive("temperature", temperature)
        check_inside("kappa", kappa)
        self.kappa, self.temperature = kappa, temperature

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Loss of a batch."""
        return soft_avuc(logits=logits, targets=targets, kappa=self.kappa, temperature=self.temperature)

    def extra_repr(self) -> str:
        """Arguments."""
        return f"kappa={self.kappa}, temperature={self.temperature}"
