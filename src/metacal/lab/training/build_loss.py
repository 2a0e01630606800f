"""From the terms of a method to what is minimised, and what is learned by which objective."""

from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

from lightning_fabric import Fabric
from torch import nn

from metacal import metalearning
from metacal.lab.data import Dataset, Splits
from metacal.lab.data.domains import Turn
from metacal.lab.training.methods import Term
from metacal.lab.training.run_data import batches_of
from metacal.lab.training.spec import RunSpec
from metacal.lab.training.training_loss import MetaObjective, Objective, PlainObjective
from metacal.losses import LOSSES, Loss
from metacal.metalearning import HYPERPARAMETERS, PAPER, Hyperparameter, OuterStep
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


def main_objective(
    spec: RunSpec, dataset: Dataset, splits: Splits, model: nn.Module, optimizer: Any, fabric: Fabric, turn: Turn
) -> Objective:
    """A plain loss, or a meta-calibrated one if the method learns something."""
    method = spec.method
    if not method.hyperparameters:
        return PlainObjective(model, sum_of(method.loss), "mean" if method.averaged else spec.reduction)
    head = model.head
    assert isinstance(head, nn.Module)
    members: dict[str, Hyperparameter] = {
        name: HYPERPARAMETERS[name].for_head(head, dataset.num_classes) for name in method.hyperparameters
    }
    learned = as_one(members if len(members) > 1 else next(iter(members.values())))
    outer = outer_step(spec)
    calibrator = metalearning.MetaCalibrator(
        model,
        optimizer,
        batches_of(spec, dataset, splits, spec.meta_part, fabric, turn, follows=True),
        learned,
        judged(sum_of(judged_by(spec)), outer, learned),
        through=spec.through or ("model" if spec.outer == "default" else "head"),
        head=head,
        base_loss=sum_of(method.loss, reduction="none"),
        reduction=spec.reduction,
        outer=outer,
        seed=spec.seed,
    )
    return MetaObjective(calibrator)


def outer_step(spec: RunSpec) -> OuterStep:
    """How the hyper-parameters of a run move."""
    given = {"every": spec.meta_every, "lr": spec.meta_lr, "memory": spec.meta_memory or None}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if "every" in changes:
        changes["dense_start"] = 0
    return replace(OUTER_STEPS[spec.outer], **changes)


def judged_by(spec: RunSpec) -> tuple[Term, ...]:
    """The terms of a method's objective on held-out data, DECE with the gradient that goes with the outer step."""
    if spec.outer != "steady":
        return spec.method.objective
    return tuple(
        term.model_copy(update={"options": {"gradient": "confidence", **term.options}}) if term.loss == "dece" else term
        for term in spec.method.objective
    )


def sum_of(terms: tuple[Term, ...], **options: Any) -> Loss:
    """A Loss from its terms."""
    return reduce(add, (term.weight * LOSSES[term.loss](**term.options, **options) for term in terms))
