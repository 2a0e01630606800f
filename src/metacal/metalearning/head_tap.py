"""`HeadTap`: sees what the head is given and returns, whatever the model around it looks like."""

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

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


class Call(NamedTuple):
    """How a module was called."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def tensor(self) -> Tensor:
        """The one tensor that it was given."""
        values = [*self.args, *self.kwargs.values()]
        if len(values) != 1 or not isinstance(values[0], Tensor):
            kinds = ", ".join(type(value).__name__ for value in values) or "nothing"
            raise InvalidTypeError(f"`head` must be called with one tensor, got {kinds}.")
        return values[0]


class RecordedCalls:
    """What a module was given and returned, recorded by hooks while somebody listens."""

    def __init__(self) -> None:
        self.inputs: list[Call] = []
        self.outputs: list[Any] = []
        self.is_listening = False

    def record_input(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """For a pre-hook."""
        if self.is_listening:
            self.inputs.append(Call(args, kwargs))

    def record_output(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        """For a hook."""
        if self.is_listening:
            self.outputs.append(output)


class HeadTap:
    """Two hooks on the head that record its calls while the tap is listening; they are taken off along with the tap.

    A copy, or what is unpickled, watches the copied head.

    Args:
        head: the module to watch.
    """

    def __init__(self, head: nn.Module) -> None:
        forget_copied_hooks(head)
        self.head, self.calls = head, RecordedCalls()
        # First of all pre-hooks: those of others belong to the head, and are run again with other parameters.
        before = TapHook(self.calls.record_input)
        handles = [
            head.register_forward_pre_hook(before, prepend=True, with_kwargs=True),
            head.register_forward_hook(TapHook(self.calls.record_output)),
        ]
        self.remove = weakref.finalize(self, _remove, handles)

    def __reduce__(self) -> tuple[type["HeadTap"], tuple[nn.Module]]:
        return HeadTap, (self.head,)

    @contextmanager
    def listening(self) -> Iterator[list[Any]]:
        """Record calls made inside the block, and only those; gives the list of what they have returned so far."""
        calls = self.calls
        calls.inputs, calls.outputs, calls.is_listening = [], [], True
        try:
            yield calls.outputs
        finally:
            calls.is_listening = False

    def take(self) -> tuple[Call, Any]:
        """The one recorded call, and what it returned; both may carry history.

        Raises:
            InvalidValueError: the module was not called once.
        """
        inputs, outputs, self.calls.inputs, self.calls.outputs = self.calls.inputs, self.calls.outputs, [], []
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
        return inputs[0], outputs[0]


def _remove(handles: list[RemovableHandle]) -> None:
    for handle in handles:
        handle.remove()


def forget_copied_hooks(head: nn.Module) -> None:
    """Take the hooks off that were copied along with a head and report to nobody."""
    for hooks in (head._forward_hooks, head._forward_pre_hooks):
        for number in [number for number, hook in hooks.items() if isinstance(hook, TapHook) and hook.report is None]:
            del hooks[number]
            head._forward_pre_hooks_with_kwargs.pop(number, None)


def is_plain_linear(head: nn.Module | None) -> bool:
    """Whether a module is a linear layer and nothing more: no subclass, hook, parametrisation or further parameter."""
    return (
        type(head) is nn.Linear
        and "forward" not in vars(head)
        and not has_hooks_of_others(head)
        and all(name in ("weight", "bias") for name, _ in head.named_parameters())
        and not any(True for _ in head.buffers())
    )


def has_hooks_of_others(head: nn.Module) -> bool:
    """Whether hooks other than a tap's change what the head does."""
    hooks = (*head._forward_hooks.values(), *head._forward_pre_hooks.values())
    return any(not isinstance(hook, TapHook) for hook in hooks)
