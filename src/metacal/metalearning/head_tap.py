"""`HeadTap`: records what the head is given and returns, in any model; `find_output_layer`: finds the head."""

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.metalearning.model_calls import Call, call_model, eagerly, plain_model, unconverted


class TapHook:
    """A hook that reports what it is called with; copied or pickled along with a model, it reports to nobody."""

    def __init__(self, report: Callable[..., None] | None = None) -> None:
        # Not traced by a compiler. Done here rather than by a decorator: it takes as long to import as all of torch.
        self.report = None if report is None else torch.compiler.disable(report)  # type: ignore[no-untyped-call]

    def __call__(self, *call: Any) -> None:
        """Report."""
        if self.report is not None:
            self.report(*call)

    def __reduce__(self) -> tuple[type["TapHook"], tuple[()]]:
        return TapHook, ()


class RecordedCalls:
    """What a module was given and returned, recorded by hooks while a tap is listening."""

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
    """

    def __init__(self, head: nn.Module) -> None:
        for hooks in _hooks(head):  # copied along with a head, reporting to nobody
            for key in [key for key, hook in hooks.items() if isinstance(hook, TapHook) and hook.report is None]:
                del hooks[key]
                head._forward_pre_hooks_with_kwargs.pop(key, None)
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
        """The one recorded call, and what it returned; both may carry history. Raises if there was not one."""
        inputs, outputs, self.calls.inputs, self.calls.outputs = self.calls.inputs, self.calls.outputs, [], []
        if len(outputs) != 1:
            advice = "name a layer that runs once and returns the logits."
            if not outputs:
                advice = "is it the layer in use? A compiled model that ran before has to be compiled again."
            raise InvalidValueError(
                f"`head` must be called once in the model's forward pass, got {len(outputs)} calls; {advice}"
            )
        return inputs[0], outputs[0]


def _remove(handles: list[RemovableHandle]) -> None:
    for handle in handles:
        handle.remove()


def is_plain_linear(head: nn.Module | None) -> bool:
    """Whether a module is a linear layer and nothing more: no subclass, hook, parametrisation or further parameter."""
    return (
        type(head) is nn.Linear
        and "forward" not in vars(head)
        and all(isinstance(hook, TapHook) for hooks in _hooks(head) for hook in hooks.values())
        and all(name in ("weight", "bias") for name, _ in head.named_parameters())
        and not any(True for _ in head.buffers())
    )


def _hooks(head: nn.Module) -> tuple[dict[int, Any], dict[int, Any]]:
    return head._forward_hooks, head._forward_pre_hooks


def logits_of(output: Any) -> Tensor:
    """The logits in what a model returns: the tensor itself, or what it calls ``logits``."""
    found = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", output)
    if not isinstance(found, Tensor) or not found.is_floating_point():
        kind = str(found.dtype) if isinstance(found, Tensor) else type(output).__name__
        raise InvalidTypeError(f"`model` must return logits, as a tensor or under that name, got {kind}.")
    return found


@torch.no_grad()
def find_output_layer(model: nn.Module, x: Any, head: nn.Module | None) -> tuple[Tensor, nn.Module | None]:
    """The logits, and the innermost module with parameters that returns them; None if there is none.

    Logits are what the ``head`` returns, if one is given (it has to be called once), or else the model. The model is
    run once on ``x``; the caller sees to it that this leaves no trace.
    """
    calls: list[tuple[nn.Module, Any]] = []
    handles = [
        module.register_forward_hook(lambda called, _, output: calls.append((called, output)))
        for module in model.modules()
        if next(module.parameters(), None) is not None
    ]
    try:
        # Compiled for these hooks and few samples, it would have to be compiled again.
        with unconverted(model), eagerly():
            call_model(model, x)
    finally:
        _remove(handles)
    plain = plain_model(model)
    outputs = [output for module, output in calls if module is (plain if head is None else head)]
    if head is not None and len(outputs) != 1:
        raise InvalidValueError(
            f"`head` must be called once in the model's forward pass, got {len(outputs)} calls; {named_layers(model)}"
        )
    logits = logits_of(outputs[-1])
    # Inner modules return before those around them; a whole model of several layers is not a layer.
    found = next((module for module, output in calls if output is logits), None)
    is_whole = found is plain and any(True for _ in plain.children())
    is_called_once = sum(module is found for module, _ in calls) == 1
    return logits, found if is_called_once and not is_whole else None


def named_layers(model: nn.Module, most: int = 5) -> str:
    """A sentence that names the model's last layers with parameters."""
    names = [
        f"{name or '(the model itself)'} ({type(module).__name__})"
        for name, module in model.named_modules()
        if next(module.parameters(recurse=False), None) is not None
    ]
    return f"its last layers are {', '.join(names[-most:])}." if names else "it has no layer with parameters."
