"""From the terms of a method to what is minimised, and what is learned by which objective."""

from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Any

from lightning_fabric import Fabric
from torch import nn

from metacal import losses, metalearning
from metacal.data import Dataset, Splits
from metacal.data.domains import Turn
from metacal.losses import Loss
from metacal.metalearning import Hyperparameter
from metacal.metalearning.settings import PRESETS
from metacal.pipeline.data import batches_of
from metacal.runs import RunSpec, Term
from metacal.training import MetaObjective, Objective, PlainObjective

LOSSES: dict[str, type[Loss]] = {
    "cross_entropy": losses.CrossEntropy,
    "label_smoothing": losses.LabelSmoothing,
    "brier": losses.BrierLoss,
    "focal": losses.FocalLoss,
    "flsd": losses.FLSDLoss,
    "dece": losses.DECE,
    "mmce": losses.MMCE,
    "mmce_weighted": losses.MMCEWeighted,
    "sb_ece": losses.SBECE,
    "s_avuc": losses.SAvUC,
}
HYPERPARAMETERS: dict[str, Callable[[Any, int], Hyperparameter]] = {
    "nonuniform_smoothing": lambda head, num_classes: metalearning.NonUniformLabelSmoothing(num_classes),
    "vector_smoothing": lambda head, num_classes: metalearning.VectorLabelSmoothing(num_classes),
    "scalar_smoothing": lambda head, num_classes: metalearning.ScalarLabelSmoothing(num_classes),
    "unitwise_l2": lambda head, num_classes: metalearning.UnitwiseL2(head),
    "temperature": lambda head, num_classes: metalearning.LearnableTemperature(),
    "focal_gamma": lambda head, num_classes: metalearning.LearnableFocalGamma(num_classes),
}


def main_objective(
    spec: RunSpec, dataset: Dataset, splits: Splits, model: nn.Module, head: nn.Module, fabric: Fabric, turn: Turn
) -> Objective:
    """A plain loss, or a meta-calibrated one if the method learns something."""
    method = spec.method
    if not method.hyperparameters:
        return PlainObjective(model, sum_of(method.loss), "mean" if method.averaged else spec.reduction)
    learned: dict[str, Hyperparameter] = {
        name: HYPERPARAMETERS[name](head, dataset.num_classes) for name in method.hyperparameters
    }
    calibrator = metalearning.MetaCalibrator(
        model,
        head,
        learned if len(learned) > 1 else next(iter(learned.values())),
        sum_of(judged_by(spec)),
        base_loss=sum_of(method.loss, reduction="none"),
        inner_reduction=spec.reduction,
        every=spec.meta_every,
        memory=spec.meta_memory or None,
        meta_lr=spec.meta_lr,
        preset=spec.meta_preset,
        seed=spec.seed,
    )
    return MetaObjective(calibrator, batches_of(spec, dataset, splits, "meta", fabric, turn, follows=True))


def judged_by(spec: RunSpec) -> tuple[Term, ...]:
    """The terms of a method's objective on held-out data, DECE with the gradient that goes with the outer step."""
    gradient = PRESETS[spec.meta_preset].dece_gradient
    return tuple(
        term.model_copy(update={"options": {"gradient": gradient, **term.options}}) if term.loss == "dece" else term
        for term in spec.method.objective
    )


def sum_of(terms: tuple[Term, ...], **options: Any) -> Loss:
    """A Loss from its terms."""
    return reduce(add, (term.weight * LOSSES[term.loss](**term.options, **options) for term in terms))
