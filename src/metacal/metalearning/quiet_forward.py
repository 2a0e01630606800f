"""A forward pass that leaves no trace: buffers, modes and random streams stay as they were."""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn


@contextmanager
def leaving_no_trace(model: nn.Module, *, mode: str, seed: int, device: torch.device) -> Iterator[None]:
    """Nothing of the model, nor of the caller's random state, is changed afterwards.

    Buffers (running statistics, counters, whatever a layer keeps) are stand-ins meanwhile: the originals are not
    written to, so that a graph that holds them stays valid.

    Args:
        model: what will be run.
        mode: ``"train"``: layers as they are, so that normalisation in training mode uses the batch's own statistics;
            ``"eval"``: evaluation mode.
        seed: of the random numbers (dropout) drawn inside.
        device: where the model runs.
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
    """Random numbers of a stream of its own; the caller's goes on afterwards as if nothing had been drawn."""
    is_cuda = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if is_cuda else []):
        torch.default_generator.manual_seed(seed)
        if is_cuda:
            index = device.index if device.index is not None else torch.cuda.current_device()
            torch.cuda.default_generators[index].manual_seed(seed)
        yield


def eagerly() -> AbstractContextManager[object]:
    """Compiled parts of a model run uncompiled inside: the compiler has no second derivatives."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
