"""Batches as users have them (tensors, tuples, dictionaries): running a model on one, drawing the next."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from metacal.functional.inputs import as_rows, at_least_float32
from metacal.metalearning.head_tap import Call

Batch = tuple[Any, Tensor]
"""Input of a model, and labels."""


def call_model(model: nn.Module, x: Any) -> Any:
    """What the model returns: ``model(x)``, ``model(*x)`` for a tuple or list, ``model(**x)`` for a mapping."""
    if isinstance(x, Call):
        return model(*x.args, **x.kwargs)
    if isinstance(x, Mapping):
        return model(**x)
    return model(*x) if isinstance(x, (tuple, list)) else model(x)


def uncompiled(model: nn.Module) -> nn.Module:
    """What `torch.compile` was given; any other model itself."""
    inner: nn.Module = getattr(model, "_orig_mod", model)
    return inner


def forwarded(model: nn.Module) -> nn.Module:
    """What a wrapper of Fabric's calls, after the conversions of its precision; any other model itself."""
    model = uncompiled(model)
    return uncompiled(getattr(model, "_forward_module", model))


def unwrapped(model: nn.Module) -> nn.Module:
    """The model without DDP, whose forward would broadcast buffers: a meta step must leave them alone.

    A wrapper of Fabric's stays around it: it brings inputs into the dtype of the weights, and autocast. But for its
    hook, which refuses any backward pass that is not Fabric's.
    """
    inner, wrapper = forwarded(model), uncompiled(model)
    if inner is wrapper:
        return inner.module if isinstance(inner, DistributedDataParallel) else model
    is_parallel = isinstance(inner, DistributedDataParallel)
    quiet = type(wrapper)(inner.module if is_parallel else wrapper._forward_module, wrapper._strategy)
    quiet._register_backward_hook = lambda tensor: tensor  # type: ignore[assignment]
    return quiet


def plain_model(model: nn.Module) -> nn.Module:
    """The user's own module, without DDP, Fabric or the compiler around it."""
    inner = forwarded(model)
    return uncompiled(inner.module) if isinstance(inner, DistributedDataParallel) else inner


@contextmanager
def unconverted(model: nn.Module) -> Iterator[None]:
    """Inside, ``forward`` is the model's own, without the autocast and conversions that Accelerate puts around it."""
    plain = plain_model(model)
    original, around = (vars(plain).get(name) for name in ("_original_forward", "forward"))
    if original is None or around is None:
        yield
        return
    plain.forward = original
    try:
        yield
    finally:
        plain.forward = around


def changes_logits(output: Any, logits: Tensor) -> bool:
    """Whether a model returns something of the logits' shape that is none of logits, softmax, log-softmax."""
    if not isinstance(output, Tensor):
        output = getattr(output, "logits", None) if not isinstance(output, Mapping) else output.get("logits")
    if not isinstance(output, Tensor) or output is logits or output.shape != logits.shape:
        return False
    ours, theirs = logits.detach().float(), output.detach().float()
    return not any(torch.allclose(theirs, same, atol=1e-3) for same in (ours, ours.log_softmax(-1), ours.softmax(-1)))


def warn_of_change(output: Any, logits: Tensor, stacklevel: int) -> None:
    """Warn if the model does something to its logits after the head."""
    if changes_logits(output, logits):
        warnings.warn(
            "The model changes its logits after the head; the loss is that of the head's output. "
            "Name as `head` the module that includes the change.",
            stacklevel=stacklevel,
        )


def moved(value: Any, device: torch.device) -> Any:
    """Tensors inside tuples, lists and mappings on another device; anything else as it is."""
    if isinstance(value, Tensor):
        return value.to(device, non_blocking=True)
    if isinstance(value, Mapping):
        return {key: moved(item, device) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        items = [moved(item, device) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def in_dtype(value: Any, model: nn.Module) -> Any:
    """Floating tensors in the dtype of a model's parameters, as a wrapper of Fabric's would bring them into."""
    dtype = next(model.parameters()).dtype
    if isinstance(value, Call):
        return Call(*(in_dtype(part, model) for part in value))
    if isinstance(value, Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, Mapping):
        return {key: in_dtype(item, model) for key, item in value.items()}
    return type(value)(in_dtype(item, model) for item in value) if type(value) in (tuple, list) else value


def share_samples(first: Any, second: Any) -> bool:
    """Whether two inputs, if they are float tensors with one sample per row, have a row in common to the bit."""
    if not (isinstance(first, Tensor) and isinstance(second, Tensor)) or first.shape[1:] != second.shape[1:]:
        return False
    if first.ndim < 2 or not first.is_floating_point() or first.dtype != second.dtype:
        return False
    rows, others = first.flatten(1), second.flatten(1).to(first.device)
    if rows.shape[1] < 8:
        return False  # a few low-precision features may well repeat
    wide = torch.float32 if rows.device.type == "mps" else torch.float64  # all that Apple's GPUs have
    marks = torch.linspace(0.5, 1.5, rows.shape[1], device=rows.device, dtype=wide)
    same = (rows.to(wide) @ marks).unsqueeze(1) == (others.to(wide) @ marks).unsqueeze(0)
    return any(torch.equal(rows[i], others[j]) for i, j in same.nonzero().tolist())


def rows_of(features: Tensor, head: nn.Module) -> Tensor:
    """Detached; a linear layer works on the last dimension, so whatever stands before it is rows."""
    return as_rows(features.detach()) if isinstance(head, nn.Linear) else features.detach()


def widened(batch: tuple[Tensor, Tensor], head: nn.Module) -> tuple[Tensor, Tensor]:
    """Features in the dtype that the head is simulated in; integers as they are."""
    features, labels = batch
    if not features.is_floating_point():
        return batch
    return features.to(at_least_float32(next(head.parameters()).detach()).dtype), labels
