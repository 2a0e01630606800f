"""`MetaTask`: hyper-parameters, objective and training state, shared by both kinds of simulated step."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from metacal.errors import InvalidValueError
from metacal.losses import AfterTemperature, CrossEntropyLoss, DECELoss, Loss
from metacal.metalearning.checks import checked_labels, class_count
from metacal.metalearning.gather import world_size
from metacal.metalearning.hyperparameter import Hyperparameter, InnerLoss, Phase
from metacal.metalearning.model_calls import leaving_no_trace
from metacal.metalearning.optimizer_step import OptimizerStep
from metacal.metalearning.outer_step import OuterStep

OVERFITTING_RATE = 0.2
"""Weight of the latest meta step in the running means of losses."""


class Hypergradient(NamedTuple):
    """Gradient of the meta-loss with respect to omega; tensors in the order of ``hyperparameters.omega()``.

    Attributes:
        through: the part that acts through the training step; proportional to its size.
        direct: the part that acts on the held-out logits themselves, not through the training step.
        meta_loss: scalar, where its gradient was taken.
        judged: the held-out samples that were judged, as they can be judged again later, and their labels.
        losses: ``(2,)``, cross-entropy of the training batch and of the held-out batch before the step.
    """

    through: tuple[Tensor, ...]
    direct: tuple[Tensor, ...]
    meta_loss: Tensor
    judged: tuple[Tensor, Tensor] | None = None
    losses: Tensor | None = None

    @property
    def total(self) -> tuple[Tensor, ...]:
        """The total gradient."""
        return tuple(a + b for a, b in zip(self.through, self.direct, strict=True))


def meta_value(objective: Loss, hyperparameters: Hyperparameter, logits: Tensor, labels: Tensor) -> Tensor:
    """Return the objective of held-out logits, a scalar."""
    value: Tensor = objective(hyperparameters.meta_logits(logits), labels)
    if value.ndim:
        raise InvalidValueError(
            f"`objective` must return one number, got shape {tuple(value.shape)}; set its reduction to 'mean'."
        )
    return value


def gradients(value: Tensor, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return the gradients of a scalar; zeros for inputs that it does not depend on."""
    found = torch.autograd.grad(value, inputs, allow_unused=True) if value.requires_grad else [None] * len(inputs)
    return filled(found, inputs)


def filled(found: Sequence[Tensor | None], inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Replace missing gradients by zeros."""
    return tuple(torch.zeros_like(t) if g is None else g for g, t in zip(found, inputs, strict=True))


def default_objective(outer: OuterStep, hyperparameters: Hyperparameter) -> Loss:
    """Return cross-entropy after the best temperature, or the paper's objective if `OuterStep` does not refine."""
    return judged(CrossEntropyLoss() if outer.refine else CrossEntropyLoss() + 0.5 * DECELoss(), outer, hyperparameters)


def judged(objective: Loss, outer: OuterStep, hyperparameters: Hyperparameter) -> Loss:
    """Return an objective after the best temperature, unless one is learned or `OuterStep` does not refine."""
    return AfterTemperature(objective) if outer.refine and not hyperparameters.acts_on_meta_logits else objective


class MetaMemory:
    """Fills a meta batch up to ``samples`` with the stored samples of earlier meta batches.

    The objective of few samples is mostly noise, and so is its gradient; these need no forward pass. Samples that are
    not finite are remembered like others: meta steps are skipped until they have left.
    """

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self._kept: tuple[Tensor, Tensor] | None = None

    def filled_up(self, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return a meta batch followed by the latest earlier samples, unless shapes or label kinds differ."""
        kept, room = self._kept, self.samples - len(labels)
        if kept is None or room <= 0 or kept[0].shape[1:] != features.shape[1:]:
            return features, labels
        return torch.cat((features, kept[0][:room].to(features))), torch.cat((labels, kept[1][:room].to(labels)))

    def keep(self, features: Tensor, labels: Tensor) -> None:
        """Store a filled meta batch."""
        if self.samples and len(features) == len(labels):
            self._kept = features[: self.samples].detach().clone(), labels[: self.samples].clone()

    def state_dict(self) -> dict[str, Tensor]:
        """Return the stored samples."""
        return {} if self._kept is None else dict(zip(("features", "labels"), self._kept, strict=True))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the stored samples, if any."""
        self._kept = (state["features"], state["labels"]) if state else None


class Overfitting:
    """A measure of over-fitting: 1 - training loss / held-out loss, both running means over meta steps."""

    def __init__(self) -> None:
        self.losses: Tensor | None = None
        self._share: tuple[Tensor, Tensor] | None = None  # and the losses that it is of

    def see(self, losses: Tensor) -> None:
        """Update with the two losses at a meta step, unless one is not finite."""
        old = torch.full_like(losses, torch.nan) if self.losses is None else self.losses.to(losses)
        new = torch.where(old.isfinite().all(), torch.lerp(old, losses, OVERFITTING_RATE), losses)
        self.losses = torch.where(losses.isfinite().all(), new, old)

    def to(self, device: torch.device) -> None:
        """Move to another device."""
        self.losses = None if self.losses is None else self.losses.to(device)

    @property
    def share(self) -> Tensor | float:
        """In [0, 1], on the device; 0 before the first meta step."""
        if self.losses is None:
            return 0.0
        if self._share is None or self._share[0] is not self.losses:  # asked for in each step, it changes in few
            training, held_out = self.losses
            share: Tensor = ((held_out - training) / held_out.clamp(min=1e-12)).clamp(0.0, 1.0)
            self._share = self.losses, share.nan_to_num(nan=0.0)
        return self._share[1]


@dataclass
class MetaTask:
    """The settings of a calibrator: omega, its objective and update, and how the model is trained."""

    hyperparameters: Hyperparameter
    objective: Loss
    base_loss: Loss  # gives one value per sample
    reduction: str
    outer: OuterStep
    optimizer: OptimizerStep
    memory: MetaMemory
    seed: int  # of random numbers drawn in meta steps
    meta_steps: int = 0
    overfitting: Overfitting = field(default_factory=Overfitting)

    def labels(self, y: Tensor, logits: Tensor, name: str = "targets") -> Tensor:
        """Labels as int64 ``(n,)``, checked to fit the logits."""
        return checked_labels(y, logits, name, self.hyperparameters.num_classes)

    def quietly(self, module: nn.Module, mode: str | None = None) -> AbstractContextManager[None]:
        """Run the module inside without side effects, with the same random numbers until the next meta step."""
        device, seed = next(module.parameters()).device, self.seed + self.meta_steps
        return leaving_no_trace(module, mode=mode or self.outer.mode, seed=seed, device=device)

    def inner(self, labels: Tensor, num_classes: int) -> InnerLoss:
        """Return the loss of a training batch at the current learning rate, with omega's slots filled."""
        return self.hyperparameters(InnerLoss.plain(labels, num_classes, self.phase()))  # type: ignore[no-any-return]

    def phase(self) -> Phase:
        """The current state of training."""
        return Phase(self.optimizer.relative_lr, self.overfitting.share)

    @contextmanager
    def training(self, labels: Tensor, logits: Tensor) -> Iterator[InnerLoss]:
        """Return the loss of a training batch with omega's slots filled and detached."""
        omega = self.hyperparameters.omega().values()  # marked, not detached: a functional call takes too long
        for value in omega:
            value.requires_grad_(False)
        try:
            with torch.autocast(logits.device.type, enabled=False):
                yield self.inner(labels, class_count(logits))
        finally:
            for value in omega:
                value.requires_grad_(True)

    def training_loss(self, logits: Tensor, labels: Tensor, penalised: nn.Module, *, boundary: bool = True) -> Tensor:
        """Return the mean or sum over a batch, with history and the current omega.

        DDP averages gradients over processes: a sum is multiplied by their number, so that the joint gradient is that
        of the joint sum. A penalty is there once a step: each process adds its share, at the boundary alone.
        """
        processes = world_size()
        with self.training(labels, logits) as inner:
            if processes > 1 or not boundary:
                inner = inner.with_penalty_scaled(1.0 / processes if boundary else 0.0)
            parameters = {} if inner.penalty is None else dict(penalised.named_parameters())
            total = inner.value(self.base_loss, logits, parameters)
        return total / len(inner.labels) if self.reduction == "mean" else total * processes
