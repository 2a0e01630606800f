"""`HeadRate`: the learning rate that the head is trained with, now."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from metacal.errors import InvalidValueError


class HeadRate:
    """Looks for the parameter group of the head once, and for its learning rate whenever it is called.

    Args:
        head: the layer that returns the logits.
    """

    def __init__(self, head: nn.Module) -> None:
        self.head = head
        self.place: tuple[int, int] | None = None

    def __call__(self, optimizers: Sequence[Any]) -> float:
        """The learning rate.

        Raises:
            InvalidValueError: no optimizer has the head's parameters.
        """
        if self.place is None:
            own = {id(parameter) for parameter in self.head.parameters()}
            places = [
                (number, place)
                for number, optimizer in enumerate(optimizers)
                for place, group in enumerate(optimizer.param_groups)
                if any(id(parameter) in own for parameter in group["params"])
            ]
            if not places:
                raise InvalidValueError("`head` must be trained, got one that no optimizer has parameters of.")
            self.place = places[0]
        number, place = self.place
        return float(optimizers[number].param_groups[place]["lr"])
