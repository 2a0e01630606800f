"""`HeadTap`: sees what the head is given and returns, whatever the model around it looks like."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from metacal.errors import InvalidTypeError, InvalidValueError


class TapHook:
    """A hook that reports to a tap; copied or pickled along with a model, it reports to nobody.

    Args:
        report: takes what the hook is called with.
    """

    def __init__(self, report: Callable[..., None] | None = None) -> None:
        # Not traced by a compiler. Done here rather than by a decorator: it takes as long to import as all of torch.
        self.report = None if report is None else torch.compiler.disable(report)  # type: ignore[no-untyped-call]

    def __call__(self, *call: Any) -> None:
        """Report."""
        if self.report is not None:
            self.report(*call)

    def __reduce__(self) -> tuple[type["TapHook"], tuple[()]]:
        return TapHook, ()


class HeadTap:
    """Two hooks on the head that record its calls while the tap is listening.

    Args:
        head: the module to watch; the hooks stay on it until `remove`.
    """

    def __init__(self, head: nn.Module) -> None:
        self.inputs: list[list[Any]] = []
        self.outputs: list[Any] = []
        self.is_listening = False
        # First of all pre-hooks: those of others belong to the head, and are run again with other parameters.
        before = TapHook(self._record_input)
        self.handles = [
            head.register_forward_pre_hook(before, prepend=True, with_kwargs=True),
            head.register_forward_hook(TapHook(self._record_output)),
        ]

    def _record_input(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.is_listening:
            self.inputs.append([*args, *kwargs.values()])

    def _record_output(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if self.is_listening:
            self.outputs.append(output)

    @contextmanager
    def listening(self) -> Iterator[list[Any]]:
        """Record calls made inside the block, and only those; gives the list of what they have returned so far."""
        self.inputs, self.outputs, self.is_listening = [], [], True
        try:
            yield self.outputs
        finally:
            self.is_listening = False

    def take(self) -> tuple[Tensor, Tensor]:
        """The one recorded call's input and output; both may carry history.

        Raises:
            InvalidValueError: the head was not called once.
            InvalidTypeError: it was not called with one tensor, or did not return one.
        """
        inputs, outputs, self.inputs, self.outputs = self.inputs, self.outputs, [], []
        if not outputs:
            raise InvalidValueError(
                "`head` must be called once in the model's forward pass, got 0 calls; is it the layer in use? "
                "A compiled model that ran before has to be compiled again."
            )
        if len(outputs) > 1:
            raise InvalidValueError(
                f"`head` must be called once in the model's forward pass, got {len(outputs)} calls; name a layer that "
                "runs once and returns the logits."
            )
        if len(inputs[0]) != 1 or not isinstance(inputs[0][0], Tensor):
            kinds = ", ".join(type(value).__name__ for value in inputs[0]) or "nothing"
            raise InvalidTypeError(f"`head` must be called with one tensor, got {kinds}.")
        if not isinstance(outputs[0], Tensor):
            raise InvalidTypeError(f"`head` must return the logits as one tensor, got {type(outputs[0]).__name__}.")
        return inputs[0][0], outputs[0]

    def remove(self) -> None:
        """Take the hooks off."""
        for handle in self.handles:
            handle.remove()


def has_hooks_of_others(head: nn.Module) -> bool:
    """Whether hooks other than a tap's change what the head does."""
    hooks = (*head._forward_hooks.values(), *head._forward_pre_hooks.values())
    return any(not isinstance(hook, TapHook) for hook in hooks)
