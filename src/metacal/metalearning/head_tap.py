"""`HeadTap`: sees what the head is given and returns, whatever the model around it looks like."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from metacal.errors import InvalidTypeError, InvalidValueError


class HeadTap:
    """A forward hook on the head that records its calls while it is listening.

    Args:
        head: the module to watch; the hook stays on it until `remove`.
    """

    def __init__(self, head: nn.Module) -> None:
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any], Any]] = []
        self.is_listening = False
        # Decorated here rather than below: the compiler takes as long to import as all of torch.
        record = torch.compiler.disable(self._record)  # type: ignore[no-untyped-call]
        self.handle = head.register_forward_hook(record, with_kwargs=True)

    def _record(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if self.is_listening:
            self.calls.append((args, kwargs, output))

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Record calls made inside the block, and only those."""
        self.calls, self.is_listening = [], True
        try:
            yield
        finally:
            self.is_listening = False

    def take(self) -> tuple[Tensor, Tensor]:
        """The one recorded call's input and output; both may carry history.

        Raises:
            InvalidValueError: the head was not called once.
            InvalidTypeError: it was not called with one tensor, or did not return one.
        """
        calls, self.calls = self.calls, []
        if not calls:
            raise InvalidValueError(
                "`head` must be called once in the model's forward pass, got 0 calls; is it the layer in use? "
                "A compiled model that ran before has to be compiled again."
            )
        if len(calls) > 1:
            raise InvalidValueError(
                f"`head` must be called once in the model's forward pass, got {len(calls)} calls; name a layer that "
                "runs once and returns the logits."
            )
        args, kwargs, output = calls[0]
        inputs = [*args, *kwargs.values()]
        if len(inputs) != 1 or not isinstance(inputs[0], Tensor):
            kinds = ", ".join(type(value).__name__ for value in inputs) or "nothing"
            raise InvalidTypeError(f"`head` must be called with one tensor, got {kinds}.")
        if not isinstance(output, Tensor):
            raise InvalidTypeError(f"`head` must return the logits as one tensor, got {type(output).__name__}.")
        return inputs[0], output

    def remove(self) -> None:
        """Take the hook off."""
        self.handle.remove()
