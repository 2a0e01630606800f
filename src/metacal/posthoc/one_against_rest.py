"""What calibrators share that treat every class against the rest: probabilities that must be made to sum to 1."""

from torch import Tensor


def normalised(each: Tensor, given: Tensor) -> Tensor:
    """Rows of ``each`` divided by their sum; a row of zeros says nothing and stays as it was ``given``."""
    totals = each.sum(dim=1, keepdim=True)
    is_empty = totals <= 0.0
    return (each / totals.masked_fill(is_empty, 1.0)).where(~is_empty, given.to(each.dtype))


def is_class(targets: Tensor, num_classes: int) -> Tensor:
    """Bool ``(n, K)``: whether each class is the target."""
    return targets.unsqueeze(1) == targets.new_tensor(range(num_classes))
