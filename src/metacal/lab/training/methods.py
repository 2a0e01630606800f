"""`Method`: how a model is trained, as data, and methods by name: the paper's, ours, and those to compare with."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Term(BaseModel):
    """A loss times a number."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    loss: str  # its name in `metacal.losses.LOSSES`
    weight: float = 1.0
    options: dict[str, Any] = {}  # arguments of the loss

    def times(self, weight: float) -> "Term":
        """The same term with another weight."""
        return self.model_copy(update={"weight": weight})


CROSS_ENTROPY = (Term(loss="cross_entropy"),)
HELD_OUT_OBJECTIVE = (*CROSS_ENTROPY, Term(loss="dece", weight=0.5))


class Method(BaseModel):
    """What is minimised, what is learned, and by what it is judged.

    Examples:
        >>> METHODS["mc"].hyperparameters, METHODS["ce"].needs_meta
        (('nonuniform_smoothing',), False)
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str  # for tables and folders
    loss: tuple[Term, ...] = CROSS_ENTROPY
    averaged: bool = False  # the loss is averaged over the batch even where the recipe sums it
    hyperparameters: tuple[str, ...] = ()  # what is meta-learned, by names of `metalearning.HYPERPARAMETERS`
    objective: tuple[Term, ...] = HELD_OUT_OBJECTIVE  # what hyper-parameters are judged by
    interleaved: tuple[Term, ...] = ()  # a calibration loss, trained on alone, on the meta part, after each epoch
    mixup: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0  # inputs are mixed, in shares of Beta(mixup, mixup)

    @model_validator(mode="after")
    def _parts_fit_together(self) -> "Method":
        if self.mixup and self.hyperparameters:
            raise ValueError("mixup is for methods that learn no hyper-parameters: these are learned from hard labels")
        return self

    @property
    def needs_meta(self) -> bool:
        """Whether a part of the training data is set aside for it."""
        return bool(self.hyperparameters or self.interleaved)

    def check_names(self) -> None:
        """Raise for an unknown hyper-parameter or loss. Imports torch, so methods of ours are not checked."""
        from metacal.losses import LOSSES
        from metacal.metalearning import HYPERPARAMETERS

        for name in self.hyperparameters:
            if name not in HYPERPARAMETERS:
                raise ValueError(f"hyperparameters must be among {', '.join(HYPERPARAMETERS)}, got {name!r}")
        for term in (*self.loss, *self.objective, *self.interleaved):
            if term.loss not in LOSSES:
                raise ValueError(f"a term's loss must be one of {', '.join(LOSSES)}, got {term.loss!r}")


FOCAL = (Term(loss="focal", options={"gamma": 3.0}),)
# The paper names these terms without their weights: docs/design/fidelity.md says how they were chosen.
SB_ECE, S_AVUC, DECE = Term(loss="sb_ece"), Term(loss="s_avuc"), Term(loss="dece")
MDCA, SMOOTH_ECE = Term(loss="mdca"), Term(loss="smooth_ece", weight=0.5)
NON_UNIFORM: tuple[str, ...] = ("nonuniform_smoothing",)

READABLE = {
    "ce": "cross-entropy",
    "brier": "Brier score",
    "mmce": "MMCE",
    "fl3": "focal loss",
    "flsd53": "focal loss (FLSD-53)",
    "ls": "label smoothing",
    "meta": "meta-calibration",
    "mc": "meta-calibration (paper)",
}
"""What people call these methods; others go by their name."""

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(name="ce"),
        Method(name="brier", loss=(Term(loss="brier"),), averaged=True),
        Method(name="mmce", loss=(*CROSS_ENTROPY, Term(loss="mmce_weighted", weight=2.0))),
        Method(name="fl3", loss=FOCAL),
        Method(name="flsd53", loss=(Term(loss="flsd"),)),
        Method(name="ls", loss=(Term(loss="label_smoothing", options={"strength": 0.05}),)),
        Method(name="meta", hyperparameters=("logit_penalty",), objective=CROSS_ENTROPY),
        Method(name="mc", hyperparameters=NON_UNIFORM),
        Method(name="mc-s", hyperparameters=("scalar_smoothing",)),
        Method(name="mc-v", hyperparameters=("vector_smoothing",)),
        Method(name="mc-l2", hyperparameters=("unitwise_l2",)),
        Method(name="ce+sbece", loss=(*CROSS_ENTROPY, SB_ECE.times(0.1))),
        Method(name="ce+savuc", loss=(*CROSS_ENTROPY, S_AVUC.times(0.1))),
        Method(name="fl3+sbece", loss=(*FOCAL, SB_ECE)),
        Method(name="fl3+savuc", loss=(*FOCAL, S_AVUC)),
        Method(name="ce+dece", loss=(*CROSS_ENTROPY, DECE.times(0.1))),
        Method(name="mc-ce", hyperparameters=NON_UNIFORM, objective=CROSS_ENTROPY),
        Method(name="mc-mmce", hyperparameters=NON_UNIFORM, objective=(Term(loss="mmce"),)),
        Method(name="mc-dece", hyperparameters=NON_UNIFORM, objective=(DECE,)),
        Method(name="mc-sbece", hyperparameters=NON_UNIFORM, objective=(*CROSS_ENTROPY, SB_ECE.times(3.0))),
        Method(name="mc-savuc", hyperparameters=NON_UNIFORM, objective=(*CROSS_ENTROPY, S_AVUC.times(3.0))),
        Method(name="ce-interleaved-sbece", interleaved=(SB_ECE,)),
        Method(name="ce-interleaved-savuc", interleaved=(S_AVUC,)),
        Method(name="fl3-interleaved-sbece", loss=FOCAL, interleaved=(SB_ECE,)),
        Method(name="fl3-interleaved-savuc", loss=FOCAL, interleaved=(S_AVUC,)),
        # Not in the paper: to compare with, each with the settings of its own paper.
        Method(name="dual_focal", loss=(Term(loss="dual_focal"),)),
        Method(name="adafocal", loss=(Term(loss="adafocal"),)),
        Method(name="mbls", loss=(Term(loss="mbls"),)),
        Method(name="acls", loss=(Term(loss="acls"),)),
        Method(name="logit_norm", loss=(Term(loss="logit_norm"),)),
        Method(name="ce+mdca", loss=(*CROSS_ENTROPY, MDCA)),
        Method(name="fl3+mdca", loss=(*FOCAL, MDCA)),
        Method(name="mixup", mixup=0.2),
        Method(name="gamma-net", hyperparameters=("gamma_net",), objective=(*CROSS_ENTROPY, SMOOTH_ECE)),
        Method(name="mc-smece", hyperparameters=NON_UNIFORM, objective=(*CROSS_ENTROPY, SMOOTH_ECE)),
    )
}
