"""Losses of a whole batch: differentiable calibration errors, and any loss after the best temperature."""

from torch import Tensor

from metacal.errors import InvalidTypeError
from metacal.functional.arguments import check_positive
from metacal.functional.batch_losses import dece, mdca, mmce, mmce_weighted, smooth_ece, soft_avuc, soft_binned_ece
from metacal.functional.temperature import PRIOR_STD, temperature_with_prior
from metacal.losses.base import Loss, ShellLoss

__all__ = [
    "AfterTemperature",
    "DECELoss",
    "MDCALoss",
    "MMCELoss",
    "MMCEWeightedLoss",
    "SAvUCLoss",
    "SBECELoss",
    "SmoothECELoss",
]


class DECELoss(ShellLoss, name="dece"):
    """Differentiable expected calibration error of the batch; see `metacal.functional.dece`."""

    function = staticmethod(dece)

    def __init__(
        self, num_bins: int = 15, tau_a: float = 100.0, tau_b: float = 0.01, *, gradient: str = "full"
    ) -> None:
        super().__init__(num_bins=num_bins, tau_a=tau_a, tau_b=tau_b, gradient=gradient)


class SBECELoss(ShellLoss, name="sb_ece"):
    """Soft-binned ECE of the batch; see `metacal.functional.soft_binned_ece`."""

    function = staticmethod(soft_binned_ece)

    def __init__(self, num_bins: int = 15, temperature: float = 0.01, power: float = 2.0) -> None:
        super().__init__(num_bins=num_bins, temperature=temperature, power=power)


class SAvUCLoss(ShellLoss, name="s_avuc"):
    """Soft accuracy-versus-uncertainty loss of the batch; see `metacal.functional.soft_avuc`."""

    function = staticmethod(soft_avuc)

    def __init__(self, kappa: float = 0.5, temperature: float = 0.1) -> None:
        super().__init__(kappa=kappa, temperature=temperature)


class MMCELoss(ShellLoss, name="mmce"):
    """Kernel calibration error of the batch; see `metacal.functional.mmce`."""

    function = staticmethod(mmce)


class MMCEWeightedLoss(ShellLoss, name="mmce_weighted"):
    """Weighted kernel calibration error of the batch; see `metacal.functional.mmce_weighted`."""

    function = staticmethod(mmce_weighted)


class MDCALoss(ShellLoss, name="mdca"):
    """Confidence against frequency of each class in the batch; see `metacal.functional.mdca`."""

    function = staticmethod(mdca)


class SmoothECELoss(ShellLoss, name="smooth_ece"):
    """Smooth ECE of the batch; see `metacal.functional.smooth_ece`. A meta-objective, beside cross-entropy."""

    function = staticmethod(smooth_ece)


class AfterTemperature(Loss):
    """``loss(logits / T)`` with T the most probable temperature for the batch itself, held fixed.

    For the NLL this is refinement (Berta et al. 2025): by the envelope theorem, holding T fixed leaves the gradient
    exact up to the prior's share. ``prior_std`` is that of log T; see `metacal.functional.temperature_with_prior`.

    Examples:
        >>> import torch
        >>> from metacal.losses import CrossEntropyLoss
        >>> logits, targets = torch.tensor([[9.0, 0.0], [9.0, 0.0]]), torch.tensor([0, 1])
        >>> refined = AfterTemperature(CrossEntropyLoss())
        >>> round(CrossEntropyLoss()(logits, targets).item(), 3), round(refined(logits, targets).item(), 3)
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
        """The inner loss."""
        return repr(self.loss)
