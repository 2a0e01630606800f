"""Losses of single samples: shells over `metacal.functional`. ``reduction`` is ``"mean"``, ``"sum"`` or ``"none"``."""

from typing import Any

import torch
from torch import Tensor

from metacal import functional
from metacal.errors import InvalidValueError
from metacal.functional.arguments import check_choice, check_num_bins, check_positive
from metacal.functional.boundary import public
from metacal.functional.inputs import class_logits_and_targets
from metacal.functional.sample_losses import REDUCTIONS, reduce_losses, signed_focal_weight, target_log_probs
from metacal.losses.base import Loss, ShellLoss

__all__ = [
    "ACLSLoss",
    "AdaFocalLoss",
    "BrierLoss",
    "CrossEntropyLoss",
    "DualFocalLoss",
    "FLSDLoss",
    "FocalLoss",
    "LabelSmoothingLoss",
    "LogitNormLoss",
    "MbLSLoss",
]


class CrossEntropyLoss(Loss, name="cross_entropy"):
    """Cross-entropy; see `metacal.functional.cross_entropy`. Float targets ``(n, K)`` are soft labels.

    Class weights ``(K,)`` are moved along with the module. With them the mean is the weighted mean for hard targets,
    the mean over samples for soft ones, as in `torch.nn.CrossEntropyLoss`.
    """

    class_weights: Tensor | None

    def __init__(self, class_weights: Tensor | None = None, reduction: str = "mean") -> None:
        super().__init__()
        check_choice("reduction", reduction, REDUCTIONS)
        self.register_buffer("class_weights", None if class_weights is None else torch.as_tensor(class_weights))
        self.reduction = reduction

    @public
    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Loss of a batch."""
        options: dict[str, Any] = {"class_weights": self.class_weights, "reduction": self.reduction}
        if targets.is_floating_point():
            return functional.soft_cross_entropy(logits=logits, targets=targets, **options)
        return functional.cross_entropy(logits=logits, targets=targets, **options)

    def extra_repr(self) -> str:
        """Arguments that differ from one instance to the next."""
        return f"reduction={self.reduction!r}"


class LabelSmoothingLoss(ShellLoss, name="label_smoothing"):
    """Cross-entropy with uniformly smoothed labels; see `metacal.functional.label_smoothing_loss`."""

    function = staticmethod(functional.label_smoothing_loss)

    def __init__(self, strength: float = 0.05, reduction: str = "mean") -> None:
        super().__init__(strength=strength, reduction=reduction)


class BrierLoss(ShellLoss, name="brier"):
    """Squared distance of the probabilities from the label; see `metacal.functional.brier_loss`."""

    function = staticmethod(functional.brier_loss)

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)


class FocalLoss(ShellLoss, name="focal"):
    """Focal loss; see `metacal.functional.focal_loss`. The paper's FL-3 has gamma 3."""

    function = staticmethod(functional.focal_loss)

    def __init__(self, gamma: float = 3.0, reduction: str = "mean") -> None:
        super().__init__(gamma=gamma, reduction=reduction)


class FLSDLoss(ShellLoss, name="flsd"):
    """FLSD-53; see `metacal.functional.flsd_loss`."""

    function = staticmethod(functional.flsd_loss)

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)


class DualFocalLoss(ShellLoss, name="dual_focal"):
    """Dual focal loss (Tao et al. 2023); see `metacal.functional.dual_focal_loss`."""

    function = staticmethod(functional.dual_focal_loss)

    def __init__(self, gamma: float = 5.0, reduction: str = "mean") -> None:
        super().__init__(gamma=gamma, reduction=reduction)


class MbLSLoss(ShellLoss, name="mbls"):
    """Margin-based label smoothing (Liu et al. 2022); see `metacal.functional.mbls_loss`."""

    function = staticmethod(functional.mbls_loss)

    def __init__(self, margin: float = 10.0, weight: float = 0.1, reduction: str = "mean") -> None:
        super().__init__(margin=margin, weight=weight, reduction=reduction)


class ACLSLoss(ShellLoss, name="acls"):
    """Adaptive and conditional label smoothing (Park et al. 2023); see `metacal.functional.acls_loss`."""

    function = staticmethod(functional.acls_loss)

    def __init__(
        self, margin: float = 10.0, weight: float = 0.1, *, top: float = 1.0, rest: float = 0.1, reduction: str = "mean"
    ) -> None:
        super().__init__(margin=margin, weight=weight, top=top, rest=rest, reduction=reduction)


class LogitNormLoss(ShellLoss, name="logit_norm"):
    """Cross-entropy of normalised logits (Wei et al. 2022); see `metacal.functional.logit_norm_loss`."""

    function = staticmethod(functional.logit_norm_loss)

    def __init__(self, temperature: float = 0.04, reduction: str = "mean") -> None:
        super().__init__(temperature=temperature, reduction=reduction)


class AdaFocalLoss(Loss, name="adafocal"):
    """Focal loss whose exponents follow held-out calibration, bin by bin (Ghosh et al. 2022).

    A sample has the gamma of the bin that its true class's probability falls into. After each epoch, `observe` sorts
    held-out predictions into bins of equal mass; where their confidence is above their accuracy by g, gamma is
    multiplied by ``exp(rate * g)``, and divided by it where gamma is negative. Below ``switch`` in size it changes its
    sign: a negative one is inverse focal loss, ``-(1 + p) ** -gamma log p``.

    Args:
        num_bins: M.
        rate: how fast gammas move.
        start: of all gammas.
        lowest: no gamma is below.
        highest: no gamma is above.
        switch: smallest size of a gamma.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Attributes:
        gammas: ``(M,)``.
        edges: ``(M - 1,)``, between bins.
    """

    gammas: Tensor
    edges: Tensor

    def __init__(
        self,
        num_bins: int = 15,
        rate: float = 1.0,
        *,
        start: float = 1.0,
        lowest: float = -2.0,
        highest: float = 20.0,
        switch: float = 0.2,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        check_num_bins(num_bins)
        check_positive("rate", rate)
        check_positive("switch", switch)
        check_choice("reduction", reduction, REDUCTIONS)
        if not lowest <= -switch < switch <= start <= highest:
            raise InvalidValueError(
                "`lowest`, `switch`, `start` and `highest` must obey lowest <= -switch and switch <= start <= highest, "
                f"got {lowest}, {switch}, {start} and {highest}."
            )
        self.rate, self.lowest, self.highest, self.switch, self.reduction = rate, lowest, highest, switch, reduction
        self.register_buffer("gammas", torch.full((num_bins,), start, dtype=torch.float64))
        self.register_buffer("edges", torch.arange(1, num_bins, dtype=torch.float64) / num_bins)

    @public
    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Loss of a batch."""
        log_probs = target_log_probs(logits, targets)
        bins = torch.bucketize(log_probs.detach().double().exp(), self.edges, right=True)
        weight = signed_focal_weight(log_probs, self.gammas[bins].to(log_probs.dtype))
        return reduce_losses(-weight * log_probs, self.reduction)

    @torch.no_grad()
    def observe(self, logits: Tensor, targets: Tensor) -> None:
        """Update gammas and bins from held-out predictions; bins without samples keep their gamma."""
        wide, targets = class_logits_and_targets(logits, targets)
        confidences, predicted = torch.softmax(wide.double(), dim=1).max(dim=1)
        num_bins, ordered = len(self.gammas), confidences.sort().values
        cuts = torch.arange(1, num_bins, device=ordered.device) * len(ordered) // num_bins
        self.edges.copy_(ordered[cuts])
        members = torch.nn.functional.one_hot(torch.bucketize(confidences, self.edges, right=True), num_bins).double()
        counts = members.sum(dim=0)
        gaps = ((confidences - (predicted == targets).double()) @ members) / counts.clamp(min=1.0)
        moved = self.gammas * torch.exp(self.rate * gaps * self.gammas.sign())
        moved = torch.where(moved.abs() < self.switch, -self.switch * moved.sign(), moved)
        self.gammas.copy_(torch.where(counts > 0.0, moved.clamp(self.lowest, self.highest), self.gammas))

    def extra_repr(self) -> str:
        """Bins, rate and reduction."""
        return f"num_bins={len(self.gammas)}, rate={self.rate}, reduction={self.reduction!r}"
