"""The loss that the loop minimises, plain or meta-calibrated, built from the terms of a method."""

import math
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

import torch
from torch import Tensor, nn

from metacal.lab.training.spec import RunSpec, Term
from metacal.losses import LOSSES, Loss
from metacal.metalearning import HYPERPARAMETERS, PAPER, Hyperparameter, MetaCalibrator, OuterStep
from metacal.metalearning.gather import world_size
from metacal.metalearning.hyperparameter import as_one
from metacal.metalearning.meta_task import judged

FIRST = replace(PAPER, every=16, dense_start=1000, dense_every=1, adaptive=True)
OUTER_STEPS: dict[str, OuterStep] = {
    "default": OuterStep(),
    "paper": PAPER,
    # Those of version 0.1, so that its runs can be resumed.
    "first": FIRST,
    "steady": replace(FIRST, per_unit_step=True, looks_ahead=False, memory=512),
}


class TrainingLoss:
    """The interface of training losses.

    Attributes:
        reduction: whether the loss is the ``"mean"`` or the ``"sum"`` over the batch.
        hyperparameters: what is learned; nothing by default.
    """

    reduction: str
    hyperparameters = Hyperparameter()

    def __call__(self, x: Any, y: Tensor, *, boundary: bool) -> tuple[Tensor, Tensor]:
        """Return the loss, and detached logits; ``boundary`` is False for all but the last part of a batch."""
        raise NotImplementedError

    def observe(self, logits: Tensor, targets: Tensor) -> None:
        """Receive the validation predictions after an epoch, for losses that depend on them."""

    def learned(self) -> dict[str, Tensor]:
        """Return the current value of every hyper-parameter by name."""
        return {name: value.detach().clone() for name, value in self.hyperparameters.named_parameters()}

    def load_learned(self, learned: dict[str, Tensor]) -> None:
        """Restore the result of `learned`."""
        self.hyperparameters.load_state_dict(learned, strict=False)

    def state_dict(self) -> dict[str, Any]:
        """Return the state to resume from."""
        raise NotImplementedError

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state."""
        raise NotImplementedError


class PlainLoss(TrainingLoss):
    """A loss without learned hyper-parameters.

    Args:
        model: to train.
        loss: averages over the batch.
        reduction: ``"sum"`` multiplies it by the batch size.
        mixup: if above 0, mix inputs in pairs, and the losses of both labels, with a weight from Beta(mixup, mixup)
            per batch (Zhang et al. 2018).
    """

    def __init__(self, model: nn.Module, loss: Loss, reduction: str, mixup: float = 0.0) -> None:
        self.model, self.loss, self.reduction = model, loss.to(next(model.parameters()).device), reduction
        self.shares = torch.distributions.Beta(torch.tensor(mixup), torch.tensor(mixup)) if mixup else None

    def __call__(self, x: Any, y: Tensor, *, boundary: bool) -> tuple[Tensor, Tensor]:
        """Return the loss and logits of the batch, with mixed inputs for mixup."""
        if self.shares is None:
            logits = self.model(x)
            value = self.loss(logits, y)
        else:
            share, other = float(self.shares.sample()), torch.randperm(len(y), device=y.device)
            logits = self.model(share * x + (1.0 - share) * x[other])
            value = share * self.loss(logits, y) + (1.0 - share) * self.loss(logits, y[other])
        return (value * len(y) if self.reduction == "sum" else value), logits.detach()

    def observe(self, logits: Tensor, targets: Tensor) -> None:
        """Pass the predictions to the loss."""
        self.loss.observe(logits, targets)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the loss."""
        return {name: value.clone() for name, value in self.loss.state_dict().items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state of the loss."""
        self.loss.load_state_dict(state)


class MetaCalibratedLoss(TrainingLoss):
    """A loss whose hyper-parameters a calibrator learns."""

    def __init__(self, calibrator: MetaCalibrator) -> None:
        self.calibrator, self.reduction = calibrator, calibrator.reduction
        self.hyperparameters = calibrator.hyperparameters

    def __call__(self, x: Any, y: Tensor, *, boundary: bool) -> tuple[Tensor, Tensor]:
        """Return the loss after a meta step, if one is due; a sum is over the samples of this process."""
        loss = self.calibrator.step(x, y, boundary)
        assert self.calibrator.last_logits is not None
        return (loss / world_size() if self.reduction == "sum" else loss), self.calibrator.last_logits

    def state_dict(self) -> dict[str, Any]:
        """Omega, its optimiser's state, and the position in the held-out samples."""
        return {"calibrator": self.calibrator.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state."""
        drawn = {"drawn": state["drawn"]} if "drawn" in state else {}  # as version 0.1 kept it
        self.calibrator.load_state_dict({**state["calibrator"], **drawn})


def build_loss(spec: RunSpec, model: nn.Module, optimizer: Any, meta: Any, num_classes: int) -> TrainingLoss:
    """Build a plain loss, or a meta-calibrated one with held-out batches ``meta`` if the method learns."""
    method = spec.method
    if not method.hyperparameters:
        reduction = "mean" if method.averaged else spec.reduction
        return PlainLoss(model, sum_terms(method.loss), reduction, method.mixup)
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
    """Return the outer step of a run."""
    every = math.inf if "frozen" in spec.published else spec.meta_every
    given = {"every": every, "lr": spec.meta_lr, "memory": spec.meta_memory or None}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if "every" in changes:
        changes["dense_start"] = 0
    return replace(OUTER_STEPS[spec.outer], **changes)


def held_out_terms(spec: RunSpec) -> tuple[Term, ...]:
    """Return the terms of the meta-objective, with the DECE gradient that fits the outer step."""
    if spec.outer != "steady":
        return spec.method.objective
    return tuple(
        term.model_copy(update={"options": {"gradient": "confidence", **term.options}}) if term.loss == "dece" else term
        for term in spec.method.objective
    )


def sum_terms(terms: tuple[Term, ...], **options: Any) -> Loss:
    """Build a Loss from its terms."""
    return reduce(add, (term.weight * LOSSES[term.loss](**term.options, **options) for term in terms))
