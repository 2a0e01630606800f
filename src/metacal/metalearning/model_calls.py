"""Runs users' models (wrapped, compiled, converted) on their batches without side effects."""

import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from metacal.errors import InvalidTypeError

Batch = tuple[Any, Tensor]
"""Input of a model, and labels."""


class Call(NamedTuple):
    """The arguments of a module's call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def tensor(self) -> Tensor:
        """The only tensor argument."""
        values = [*self.args, *self.kwargs.values()]
        if len(values) != 1 or not isinstance(values[0], Tensor):
            kinds = ", ".join(type(value).__name__ for value in values) or "nothing"
            raise InvalidTypeError(f"`head` must be called with one tensor, got {kinds}.")
        return values[0]


def call_model(model: nn.Module, x: Any) -> Any:
    """Call the model: ``model(x)``, ``model(*x)`` for a tuple or list, ``model(**x)`` for a mapping."""
    if isinstance(x, Call):
        return model(*x.args, **x.kwargs)
    if isinstance(x, Mapping):
        return model(**x)
    return model(*x) if isinstance(x, (tuple, list)) else model(x)


def uncompiled(model: nn.Module) -> nn.Module:
    """Return the original of a compiled model; any other model itself."""
    inner: nn.Module = getattr(model, "_orig_mod", model)
    return inner


def forwarded(model: nn.Module) -> nn.Module:
    """Return the module that Fabric's wrapper calls after conversions; any other model itself."""
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
    """Return the user's own module, without DDP, Fabric or the compiler around it."""
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


def eagerly() -> AbstractContextManager[object]:
    """Run compiled parts of a model uncompiled inside: the compiler has no second derivatives."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()


def map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Apply a function to the tensors inside tuples, lists and mappings."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return {key: map_tensors(item, change) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        items = [map_tensors(item, change) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def moved(value: Any, device: torch.device) -> Any:
    """Return a batch on another device."""
    return map_tensors(value, lambda tensor: tensor.to(device, non_blocking=True))


def in_dtype(value: Any, model: nn.Module) -> Any:
    """Convert floating tensors to the dtype of a model's parameters, as Fabric's wrapper would."""
    dtype = next(model.parameters()).dtype
    return map_tensors(value, lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor)


@contextmanager
def leaving_no_trace(model: nn.Module, *, mode: str, seed: int, device: torch.device) -> Iterator[None]:
    """Restore the model's state and the caller's random state afterwards; ``seed`` applies inside.

    Buffers (running statistics, counters, whatever a layer keeps) are stand-ins meanwhile: the originals are not
    written to, so that a graph that holds them stays valid. ``mode="train"`` leaves layers as they are, so that
    normalisation in training mode uses the batch's own statistics; ``"eval"`` is evaluation mode.
    """
    modules = list(model.modules())
    modes = [module.training for module in modules]
    originals = [dict(module._buffers) for module in modules]
    stand_ins: dict[int, Tensor] = {}
    for module, buffers in zip(modules, originals, strict=True):
        for name, buffer in buffers.items():
            if buffer is not None:
                module._buffers[name] = stand_ins.setdefault(id(buffer), buffer.detach().clone())
    if mode == "eval":
        model.eval()
    try:
        with fresh_random_stream(seed, device):
            yield
    finally:
        for module, was_training, buffers in zip(modules, modes, originals, strict=True):
            module.training = was_training
            module._buffers.update(buffers)


@contextmanager
def fresh_random_stream(seed: int, device: torch.device) -> Iterator[None]:
    """Use separate random numbers of torch, Python and NumPy inside; the caller's continue afterwards unchanged."""
    is_cuda = device.type == "cuda"
    python, numpy = random.getstate(), np.random.get_state(legacy=False)
    with torch.random.fork_rng(devices=[device] if is_cuda else []):
        seed_all(seed)
        if is_cuda:
            index = device.index if device.index is not None else torch.cuda.current_device()
            torch.cuda.default_generators[index].manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


def seed_all(seed: int) -> None:
    """Seed the random numbers of torch (on the CPU), Python and NumPy."""
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)
