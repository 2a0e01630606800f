"""MMCE, plain and weighted, as loss modules."""

from torch import Tensor

from metacal.functional.mmce import mmce, mmce_weighted
from metacal.losses.base import Loss


class MMCE(Loss):
    """Kernel calibration error of the batch; see `metacal.functional.mmce`."""

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Loss of a batch."""
        return mmce(logits=logits, targets=targets)


class MMCEWeighted(Loss):
    """Weighted kernel calibration error of the batch; see `metacal.functional.mmce_weighted`."""

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Loss of a batch."""
        return mmce_weighted(logits=logits, targets=targets)
