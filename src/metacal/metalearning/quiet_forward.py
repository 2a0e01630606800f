"""A forward pass that leaves no trace: statistics, counters, modes and random streams stay as they were."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase


@contextmanager
def leaving_no_trace(model: nn.Module, *, mode: str, seed: int, device: torch.device) -> Iterator[None]:
    """Nothing of the model, nor of the caller's random state, is changed afterwards.

    Args:
        model: what will be run.
        mode: ``"train"``: layers as they are, normalisation by the batch's own statistics; ``"eval"``: evaluation mode.
        seed: of the random numbers (dropout) drawn inside.
        device: where the model runs.
    """
    modules = list(model.modules())
    # Without tracking, a normalisation layer in training mode uses the batch's statistics and stores nothing.
    tracking = [module for module in modules if isinstance(module, _NormBase) and module.track_running_stats]
    known = {id(buffer) for module in tracking for buffer in module.buffers(recurse=False)}
    others = [buffer for buffer in model.buffers() if id(buffer) not in known]
    before = [buffer.clone() for buffer in others]
    modes = [module.training for module in modules]
    if mode == "eval":
        model.eval()
    else:
        for module in tracking:
            module.track_running_stats = False
    try:
        with fresh_random_stream(seed, device):
            yield
    finally:
        for module in tracking:
            module.track_running_stats = True
        for part, was_training in zip(modules, modes, strict=True):
            part.training = was_training
        with torch.no_grad():
            for buffer, old in zip(others, before, strict=True):
                buffer.copy_(old)


@contextmanager
def fresh_random_stream(seed: int, device: torch.device) -> Iterator[None]:
    """Random numbers of a stream of its own; the caller's goes on afterwards as if nothing had been drawn."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield
