"""`MetaTask`: what is learned, by what it is judged, and how training goes: all that both ways to step share."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from metacal.losses import Loss
from metacal.metalearning.checks import checked_labels, class_count
from metacal.metalearning.gather import world_size
from metacal.metalearning.hyperparameter import Hyperparameter
from metacal.metalearning.inner_loss import InnerLoss
from metacal.metalearning.meta_memory import MetaMemory
from metacal.metalearning.optimizer_step import OptimizerStep
from metacal.metalearning.outer_step import OuterStep
from metacal.metalearning.quiet_forward import leaving_no_trace


@dataclass
class MetaTask:
    """What a calibrator was made with.

    Attributes:
        hyperparameters: omega.
        objective: what held-out logits are judged by.
        base_loss: training loss, one value per sample.
        reduction: ``"mean"`` or ``"sum"`` of it.
        outer: how omega moves.
        optimizer: how the model moves.
        memory: held-out samples of earlier meta steps.
        seed: of random numbers drawn in meta steps.
        meta_steps: taken so far.
    """

    hyperparameters: Hyperparameter
    objective: Loss
    base_loss: Loss
    reduction: str
    outer: OuterStep
    optimizer: OptimizerStep
    memory: MetaMemory
    seed: int
    meta_steps: int = 0

    def labels(self, y: Tensor, logits: Tensor, name: str = "targets") -> Tensor:
        """Labels as int64 ``(n,)``, checked to fit the logits."""
        return checked_labels(y, logits, name, self.hyperparameters.num_classes)

    @contextmanager
    def quietly(self, module: nn.Module, mode: str | None = None) -> Iterator[None]:
        """Running the module inside leaves no trace; it draws the same random numbers until the next meta step."""
        device = next(module.parameters()).device
        with leaving_no_trace(module, mode=mode or self.outer.mode, seed=self.seed + self.meta_steps, device=device):
            yield

    @contextmanager
    def training(self, labels: Tensor, logits: Tensor) -> Iterator[InnerLoss]:
        """The loss of a training batch, its slots filled with omega, which no gradient of what is done inside reaches.

        Omega is not detached but marked: a functional call would take as long as all the rest.
        """
        omega = [value for value in self.hyperparameters.parameters() if value.requires_grad]
        for value in omega:
            value.requires_grad_(False)
        try:
            with torch.autocast(logits.device.type, enabled=False):
                yield self.hyperparameters(InnerLoss.plain(labels, class_count(logits)))
        finally:
            for value in omega:
                value.requires_grad_(True)

    def training_loss(self, logits: Tensor, labels: Tensor, penalised: nn.Module, *, boundary: bool = True) -> Tensor:
        """The mean or the sum over a batch, with history and omega as it is.

        DDP averages gradients over processes: a sum is multiplied by their number, so that the joint gradient is that
        of the joint sum. A penalty is there once a step: each process adds its share, at the boundary alone.
        """
        processes = world_size()
        share = 1.0 / processes if boundary else 0.0
        with self.training(labels, logits) as inner:
            if share != 1.0:
                inner = inner.with_penalty_scaled(share)
            parameters = {} if inner.penalty is None else dict(penalised.named_parameters())
            total = inner.value(self.base_loss, logits, parameters)
        return total / len(inner.labels) if self.reduction == "mean" else total * processes
