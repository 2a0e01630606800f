"""Differences between the published code and the paper's algorithm, as switches: ``published=leak,statistics``.

- ``leak``: the gradient of the meta-loss is added to that of the network. The backward pass to omega goes through the
  whole network, for the held-out batch and (by the simulated step) for the training batch, and is never cleared.
- ``statistics``: held-out batches update the running statistics of batch normalisation.
- ``replay``: the held-out batches of an epoch repeat one shuffled pass, including its short last batch.
- ``frozen``: omega keeps its initial value, as for the published WideResNet, which never uses the simulated step. What
  leaks is then the gradient of the meta-loss of the current network.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from itertools import chain, count, islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from metacal.errors import InvalidValueError
from metacal.functional.inputs import at_least_float32
from metacal.lab.data import Batches
from metacal.lab.training.spec import RunSpec
from metacal.lab.training.training_loss import MetaCalibratedLoss, held_out_terms, sum_terms
from metacal.metalearning import InnerLoss, MetaCalibrator
from metacal.metalearning.gather import world_size
from metacal.metalearning.head_tap import HeadTap
from metacal.metalearning.meta_stream import MetaStream
from metacal.metalearning.model_calls import Batch, leaving_no_trace, unwrapped


class Replayed:
    """Epochs of ``steps`` batches that repeat one shuffled pass.

    Examples:
        >>> import torch
        >>> from metacal.lab.data import Batches, Examples
        >>> pass_of_two = Batches(Examples(torch.arange(5.0), torch.zeros(5, dtype=torch.int64)), 3)
        >>> [len(y) for x, y in Replayed(pass_of_two, steps=5).epoch(0)]
        [3, 2, 3, 2, 3]
    """

    def __init__(self, batches: Batches, steps: int) -> None:
        self.batches, self.steps = batches, steps

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.batches)

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        """Yield batches from ``start`` on; each epoch is shuffled once."""
        first = self.batches.epoch(number, start=start % len(self.batches))
        again = (batch for _ in count() for batch in self.batches.epoch(number))
        return islice(chain(first, again), self.steps - start)


class RememberingStream(MetaStream):
    """A stream of held-out batches that remembers the last one."""

    last: Batch

    def __next__(self) -> Batch:
        self.last = super().__next__()
        return self.last


def published_stream(spec: RunSpec, meta: Batches, steps: int) -> RememberingStream:
    """Return held-out batches according to the switches, for epochs of this many training steps."""
    return RememberingStream(Replayed(meta, steps) if "replay" in spec.published else meta, seed=spec.seed)


class PublishedLoss(MetaCalibratedLoss):
    """A meta-calibrated loss on a `published_stream`, with the effects of the switches."""

    def __init__(self, calibrator: MetaCalibrator, spec: RunSpec, optimizer: Any) -> None:
        super().__init__(calibrator)
        if world_size() > 1:
            raise InvalidValueError(f"`published` must be used with one process, got {world_size()}; set devices=1.")
        stream, head = calibrator.stream, calibrator.model.head
        assert isinstance(stream, RememberingStream) and isinstance(head, nn.Module)
        self.stream, self.head, self._tap = stream, head, HeadTap(head)
        self.switches, self.seed, self.optimizer = frozenset(spec.published), spec.seed, optimizer
        self.objective = sum_terms(held_out_terms(spec))
        self.base_loss = sum_terms(spec.method.loss, reduction="none")

    def __call__(self, x: Any, y: Tensor, *, boundary: bool) -> tuple[Tensor, Tensor]:
        """Return the loss after a meta step; its backward pass gives the gradient that the switches define."""
        omega = {name: value.detach().clone() for name, value in self.hyperparameters.named_parameters()}
        with self._tap.listening():
            loss, logits = super().__call__(x, y, boundary=boundary)
            features = self._tap.inputs.kept[0].tensor()  # the training batch is run first, with a graph
        if not self.switches & {"leak", "statistics"}:
            return loss, logits
        held_out, labels = next(self.stream) if "frozen" in self.switches else self.stream.last
        held_out_features = self._run_held_out(held_out)
        if "leak" in self.switches:
            own: dict[str, Tensor] = dict(self.head.named_parameters())
            head = own if "frozen" in self.switches else self._stepped(own, features, y, omega)
            leaked = self.objective(self._logits(head, held_out_features), labels)
            loss = loss + (leaked - leaked.detach())  # adds its gradient, but not its value
        return loss, logits

    def _run_held_out(self, x: Any) -> Tensor:
        """Return the head's input for a held-out batch, normalised by batch statistics."""
        model = unwrapped(self.calibrator.model)
        seed, device = self.seed + self.stream.drawn, next(model.parameters()).device
        keeps = "statistics" in self.switches
        quietly = nullcontext() if keeps else leaving_no_trace(model, mode="train", seed=seed, device=device)
        with self._tap.listening(), quietly, torch.set_grad_enabled("leak" in self.switches):
            model(x)
        features: Tensor = self._tap.inputs.kept[0].tensor()
        return features

    def _logits(self, parameters: dict[str, Tensor], features: Tensor) -> Tensor:
        with torch.autocast(features.device.type, enabled=False):
            logits: Tensor = functional_call(self.head, parameters, (at_least_float32(features),))
        return logits

    def _stepped(
        self, parameters: dict[str, Tensor], features: Tensor, y: Tensor, omega: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return the head's parameters after a plain step, as a differentiable function."""
        inner: InnerLoss = functional_call(
            self.hyperparameters, omega, (InnerLoss.plain(y, self.calibrator.num_classes),)
        )
        value = inner.value(self.base_loss, self._logits(parameters, features), parameters)
        value = value / len(y) if self.reduction == "mean" else value
        gradients = torch.autograd.grad(value, tuple(parameters.values()), create_graph=True)
        lr = float(self.optimizer.param_groups[0]["lr"])
        return {name: own - lr * step for (name, own), step in zip(parameters.items(), gradients, strict=True)}
