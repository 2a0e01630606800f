"""`HeadTap` records the inputs and outputs of the head in any model; `find_output_layer` finds the head."""

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
    """A hook that records a module's inputs or outputs while it listens; a copy of the model never records."""

    def __init__(self, keep: Callable[..., Any] | None = None) -> None:
        self.is_listening, self.kept = False, list[Any]()

        def record(*call: Any) -> None:
            if self.is_listening and keep is not None:
                self.kept.append(keep(*call))

        # Not traced by a compiler. Done here rather than by a decorator: it takes as long to import as all of torch.
        self.record = torch.compiler.disable(record) if keep else None  # type: ignore[no-untyped-call]

    def __call__(self, *call: Any) -> None:
        """Record the value."""
        if self.record is not None:
            self.record(*call)

    def __reduce__(self) -> tuple[type["TapHook"], tuple[()]]:
        return TapHook, ()


class HeadTap:
    """Two hooks on the head that record its calls while the tap is listening.

    A copy, or what is unpickled, watches the copied head.
    """

    def __init__(self, head: nn.Module) -> None:
        for hooks in _hooks(head):  # copied along with a head
            for key in [key for key, hook in hooks.items() if isinstance(hook, TapHook) and hook.record is None]:
                del hooks[key]
                head._forward_pre_hooks_with_kwargs.pop(key, None)
        self.head = head
        self.inputs = TapHook(lambda module, args, kwargs: Call(args, kwargs))
        self.outputs = TapHook(lambda module, args, output: output)
        # First of all pre-hooks: those of others belong to the head, and are run again with other parameters.
        handles = [
            head.register_forward_pre_hook(self.inputs, prepend=True, with_kwargs=True),
            head.register_forward_hook(self.outputs),
        ]
        self.remove = weakref.finalize(self, _remove, handles)

    def __reduce__(self) -> tuple[type["HeadTap"], tuple[nn.Module]]:
        return HeadTap, (self.head,)

    @contextmanager
    def listening(self) -> Iterator[list[Any]]:
        """Record calls made inside the block; yields the list of outputs so far."""
        for hook in (self.inputs, self.outputs):
            hook.kept, hook.is_listening = [], True
        try:
            yield self.outputs.kept
        finally:
            self.inputs.is_listening = self.outputs.is_listening = False

    def take(self) -> tuple[Call, Any]:
        """The one recorded call, and what it returned; both may carry history. Raises if there was not one."""
        inputs, outputs = self.inputs.kept, self.outputs.kept
        self.inputs.kept, self.outputs.kept = [], []
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
    """Whether a module is a plain linear layer: no subclass, hook, parametrisation or further parameter."""
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
    """Return the logits in a model's output: the tensor itself, or its field ``logits``."""
    found = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", output)
    if not isinstance(found, Tensor) or not found.is_floating_point():
        kind = str(found.dtype) if isinstance(found, Tensor) else type(output).__name__
        raise InvalidTypeError(f"`model` must return logits, as a tensor or under that name, got {kind}.")
    return found


@torch.no_grad()
def find_output_layer(model: nn.Module, x: Any, head: nn.Module | None) -> tuple[Tensor, nn.Module | None]:
    """Return the logits, and the innermost module with parameters that returns them; None if there is none.

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
    """Return a sentence that names the model's last layers with parameters."""
    names = [
        f"{name or '(the model itself)'} ({type(module).__name__})"
        for name, module in model.named_modules()
        if next(module.parameters(recurse=False), None) is not None
    ]
    return f"its last layers are {', '.join(names[-most:])}." if names else "it has no layer with parameters."
