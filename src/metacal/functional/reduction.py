"""How one loss per sample becomes one number."""

from torch import Tensor

from metacal.functional.arguments import check_choice

REDUCTIONS = ("mean", "sum", "none")


def reduce_losses(losses: Tensor, reduction: str) -> Tensor:
    """Mean, sum or nothing, over all entries."""
    check_choice("reduction", reduction, REDUCTIONS)
    if reduction == "mean":
        return losses.mean()
    return losses.sum() if reduction == "sum" else losses
