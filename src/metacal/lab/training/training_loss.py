"""What the loop minimises: a plain loss, or a meta-calibrated one, from the terms of a spec's method."""

import math
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

import torch
from torch import Tensor, nn

from metacal.lab.training.methods import Term
from metacal.lab.training.spec import RunSpec
from metacal.losses import LOSSES, Loss
from metacal.metalearning import HYPERPARAMETERS, PAPER, MetaCalibrator, OuterStep
from metacal.metalearning.gather import world_size
from metacal.metalearning.hyperparameter import as_one
from metacal.metalearning.meta_task import judged

FIRST = replace(PAPER, every=16, dense_start=1000, dense_every=1, adaptive=True)
OUTER_STEPS: dict[str, OuterStep] = {
    "default": OuterStep(),
    "paper": PAPER,
    # Those of version 0.1: runs that were begun with them can be resumed.
    "first": FIRST,
    "steady": replace(FIRST, per_unit_step=True, estimator="small_step", memory=512),
}


class TrainingLoss:
    """The training loss of a batch, for a method that learns nothing unless a subclass says otherwise.

    Attributes:
        reduction: whether the loss is the ``"mean"`` or the ``"sum"`` over the batch.
        hyperparameters: what is learned about it.
    """

    reduction: str
    hyperparameters = nn.Module()

    def __call__(self, x: Any, y: Tensor, *, boundary: bool) -> tuple[Tensor, Tensor]:
        """Loss with history, and detached logits; ``boundary`` is False for all but the last part of a batch."""
        raise NotImplementedError

    def observe(self, logits: Tensor, targets: Tensor) -> None:
        """Validation predictions after an epoch, for losses that follow them."""

    def learned(self) -> dict[str, Tensor]:
        """Every hyper-parameter in full, by name, as it is now."""
        return {name: value.detach().clone() for name, value in self.hyperparameters.named_parameters()}

    def load_learned(self, learned: dict[str, Tensor]) -> None:
        """Restore what `learned` gave."""
        self.hyperparameters.load_state_dict(learned, strict=False)

    def export(self) -> dict[str, Any]:
        """What `learned` gives, as plain numbers; soft labels among them."""
        return {}

    def summary(self) -> dict[str, float]:
        """The numbers worth plotting about the hyper-parameters."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """What has to be saved to go on."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""


class PlainLoss(TrainingLoss):
    """A loss as it is.

    Args:
        model: what is trained.
        loss: averages over the batch.
        reduction: ``"sum"`` multiplies it by the size of the batch.
    """

    def __init__(self, model: nn.Module, loss: Loss, reduction: str) -> None:
        self.model, self.loss, self.reduction = model, loss.to(next(model.parameters()).device), reduction

    def __call__(self, x: Any, y: Tensor, *, boundary: bool) -> tuple[Tensor, Tensor]:
        """The loss of the batch alone."""
        logits = self.model(x)
        value = self.loss(logits, y)
        return (value * len(y) if self.reduction == "sum" else value), logits.detach()

    def observe(self, logits: Tensor, targets: Tensor) -> None:
        """Hand them on."""
        self.loss.observe(logits, targets)

    def state_dict(self) -> dict[str, Any]:
        """What the loss has taken from earlier epochs."""
        return {name: value.clone() for name, value in self.loss.state_dict().items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore it."""
        self.loss.load_state_dict(state)


class MixupLoss(PlainLoss):
    """A loss of inputs that are mixed in pairs, by the same shares of both labels (Zhang et al. 2018).

    For cross-entropy that is the loss of labels that are mixed as the inputs are. One share, of Beta(alpha, alpha), is
    drawn for each batch.
    """

    def __init__(self, model: nn.Module, loss: Loss, reduction: str, alpha: float) -> None:
        super().__init__(model, loss, reduction)
        self.shares = torch.distributions.Beta(torch.tensor(alpha), torch.tensor(alpha))

    def __call__(self, x: Any, y: Tensor, *, boundary: bool) -> tuple[Tensor, Tensor]:
        """The loss of a mixed batch, and its logits."""
        share, other = float(self.shares.sample()), torch.randperm(len(y), device=y.device)
        logits = self.model(share * x + (1.0 - share) * x[other])
        value = share * self.loss(logits, y) + (1.0 - share) * self.loss(logits, y[other])
        return (value * len(y) if self.reduction == "sum" else value), logits.detach()


class MetaCalibratedLoss(TrainingLoss):
    """The loss whose hyper-parameters a calibrator learns."""

    def __init__(self, calibrator: MetaCalibrator) -> None:
        self.calibrator, self.reduction = calibrator, calibrator.reduction
        self.hyperparameters = calibrator.hyperparameters

    def __call__(self, x: Any, y: Tensor, *, boundary: bool) -> tuple[Tensor, Tensor]:
        """The loss after a meta step, if one is due; a sum is that of this process, as the loop expects."""
        loss = self.calibrator.step(x, y, boundary)
        assert self.calibrator.last_logits is not None
        return (loss / world_size() if self.reduction == "sum" else loss), self.calibrator.last_logits

    def export(self) -> dict[str, Any]:
        """Omega in plain numbers."""
        return self.calibrator.export()

    def summary(self) -> dict[str, float]:
        """What the hyper-parameters say of themselves."""
        return {name: float(value) for name, value in self.calibrator.hyperparameters.summary().items()}

    def state_dict(self) -> dict[str, Any]:
        """Omega, its optimiser's state, and the place among the held-out samples."""
        return {"calibrator": self.calibrator.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore all of it."""
        drawn = {"drawn": state["drawn"]} if "drawn" in state else {}  # as version 0.1 kept it
        self.calibrator.load_state_dict({**state["calibrator"], **drawn})


def build_loss(spec: RunSpec, model: nn.Module, optimizer: Any, meta: Any, num_classes: int) -> TrainingLoss:
    """A plain loss, or a meta-calibrated one if the method learns something, from held-out batches ``meta``."""
    method = spec.method
    if not method.hyperparameters:
        plain = (model, sum_terms(method.loss), "mean" if method.averaged else spec.reduction)
        return MixupLoss(*plain, method.mixup) if method.mixup else PlainLoss(*plain)
    head = model.head
    assert isinstance(head, nn.Module)
    members = {name: HYPERPARAMETERS[name].for_head(head, num_classes) for name in method.hyperparameters}
    hyperparameters = as_one(members if len(members) > 1 else next(iter(members.values())))
    outer = outer_step(spec)
    calibrator = MetaCalibrator(
        model,
        optimizer,
        meta,
        hyperparameters,
        judged(sum_terms(held_out_terms(spec)), outer, hyperparameters),
        through=spec.through or ("model" if spec.outer == "default" else "head"),
        head=head,
        base_loss=sum_terms(method.loss, reduction="none"),
        reduction=spec.reduction,
        outer=outer,
        seed=spec.seed,
    )
    return MetaCalibratedLoss(calibrator)


def outer_step(spec: RunSpec) -> OuterStep:
    """How the hyper-parameters of a run move."""
    given = {"every": spec.meta_every, "lr": spec.meta_lr, "memory": spec.meta_memory or None}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if "frozen" in spec.published:
        changes["every"] = math.inf
    if "every" in changes:
        changes["dense_start"] = 0
    return replace(OUTER_STEPS[spec.outer], **changes)


def held_out_terms(spec: RunSpec) -> tuple[Term, ...]:
    """The terms that hyper-parameters are judged by, DECE with the gradient that goes with the outer step."""
    if spec.outer != "steady":
        return spec.method.objective
    return tuple(
        term.model_copy(update={"options": {"gradient": "confidence", **term.options}}) if term.loss == "dece" else term
        for term in spec.method.objective
    )


def sum_terms(terms: tuple[Term, ...], **options: Any) -> Loss:
    """A Loss from its terms."""
    return reduce(add, (term.weight * LOSSES[term.loss](**term.options, **options) for term in terms))
