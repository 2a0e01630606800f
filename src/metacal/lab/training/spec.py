"""`RunSpec`: one training run, described completely; the same spec gives the same run. `Hardware`: where it runs.

`Method` says how a model is trained, as data; `METHODS` are the paper's, ours, and those to compare with, by name.
"""

import hashlib
import json
import math
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

SCHEMA = 2
"""Version of the spec's meaning; part of the hash, and of every stored run. Raise it when a default changes."""

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0, lt=1)]


class Term(BaseModel):
    """A loss with a weight."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    loss: str  # its name in `metacal.losses.LOSSES`
    weight: float = 1.0
    options: dict[str, Any] = {}  # arguments of the loss

    def times(self, weight: float) -> "Term":
        """Return the term with another weight."""
        return self.model_copy(update={"weight": weight})


CROSS_ENTROPY = (Term(loss="cross_entropy"),)
HELD_OUT_OBJECTIVE = (*CROSS_ENTROPY, Term(loss="dece", weight=0.5))


class Method(BaseModel):
    """A training method: loss, learned hyper-parameters and meta-objective.

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
    mixup: NotNegative = 0.0  # inputs are mixed, in shares of Beta(mixup, mixup)

    @model_validator(mode="after")
    def _parts_fit_together(self) -> "Method":
        if self.mixup and self.hyperparameters:
            raise ValueError("mixup is for methods that learn no hyper-parameters: these are learned from hard labels")
        return self

    @property
    def needs_meta(self) -> bool:
        """Whether the method needs a meta set."""
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

Domain = tuple[str, int]
"""A corruption of images with its severity."""

TESTED = ("impulse_noise", "motion_blur", "fog", "elastic_transform")
TESTED_AT_WORST = ("spatter", "jpeg_compression")


class Domains(BaseModel):
    """Corruptions of images by part of a run.

    Examples:
        >>> Domains(train=["fog:1", "snow:2"], test=[["frost", 5]]).test
        (('frost', 5),)
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    train: tuple[Domain, ...]  # one per step; a meta batch is of another one than the training batch
    val: tuple[Domain, ...] | None = None  # what the checkpoint and a temperature are chosen on; None is ``train``
    test: tuple[Domain, ...]  # each is measured on its own

    @field_validator("train", "val", "test", mode="before")
    @classmethod
    def _as_people_write_them(cls, value: Any) -> Any:
        every = [value] if isinstance(value, str) else value
        return [_domain(each) for each in every] if isinstance(every, list | tuple) else every

    @field_validator("train", "val", "test")
    @classmethod
    def _are_known(cls, listed: tuple[Domain, ...] | None) -> tuple[Domain, ...] | None:
        from metacal.lab.data.corruptions import check_severity, find_corruption  # loads torch

        if listed is not None and not 0 < len(listed) == len(set(listed)):
            raise ValueError("must name a domain once, and at least one domain")
        for name, severity in listed or ():
            find_corruption(name)
            check_severity(severity)
        return listed


def _domain(value: Any) -> Any:
    """Parse name and severity of a corruption: ``JPEG-compression:2`` is ``jpeg_compression``, 2."""
    if isinstance(value, str):
        name, _, severity = value.rpartition(":")
        if not severity.isdecimal():
            raise ValueError(f"a domain must be a corruption with its severity, such as fog:3, got {value}")
        value = (name, int(severity))
    if isinstance(value, list | tuple) and value and isinstance(value[0], str):
        return (value[0].lower().replace("-", "_").replace(" ", "_"), *value[1:])
    return value


@cache
def cifar_c() -> Domains:
    """The paper's domains: 22 of the 95 pairs of corruption and severity are tested on, the others trained on."""
    from metacal.lab.data.corruptions import CORRUPTIONS, SEVERITIES

    tested = [(name, severity) for name in TESTED for severity in SEVERITIES]
    tested += [(name, SEVERITIES[-1]) for name in TESTED_AT_WORST]
    every = [(name, severity) for name in CORRUPTIONS for severity in SEVERITIES]
    return Domains(
        train=tuple(each for each in every if each not in tested), test=tuple(each for each in every if each in tested)
    )


class RunSpec(BaseModel):
    """Everything that determines the result of a run, except where it runs (see `Hardware`).

    Examples:
        >>> spec = RunSpec(dataset="digits", model="mlp", method="mc", epochs=2)
        >>> spec.method.name, RunSpec.model_validate_json(spec.model_dump_json()) == spec
        ('mc', True)
    """

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    dataset: str  # name of a dataset, or the path of your own
    dataset_options: dict[str, Any] = {}
    model: str  # name of a model, or the import path of your own
    model_options: dict[str, Any] = {}
    method: Method = METHODS["ce"]  # or the name of one
    train_size: Count | None = None  # use only so many of the samples that are left for training
    val_share: Share = 0.1  # of the training data
    meta_share: Share = 0.1
    val_size: Count | None = None  # number of samples, instead of a share
    meta_size: Count | None = None
    stratified: bool = False  # split class by class
    # Set the meta part aside even for a method that does not use it; otherwise such a method trains on it too, as in
    # the paper (90 % of the data against 80 %).
    hold_out_meta: bool = False
    augment: bool | None = None  # pad-crop-flip; None is what the dataset asks for
    domains: Domains | None = None  # trained on, chosen on and tested on; ``cifar-c`` names the paper's
    epochs: Count = 350
    batch_size: Count = 128  # samples per step, over all devices
    accumulate: Count = 1  # cut each batch into so many parts, whose gradients are added up
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    lr: Positive = 0.1  # at the start
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9  # of SGD
    nesterov: bool = False
    weight_decay: NotNegative = 0.0005  # L2 (``adamw``: decoupled)
    schedule: Literal["multistep", "cosine", "constant"] = "multistep"
    milestones: tuple[Count, ...] = (150, 250)  # epochs after which the rate is multiplied by ``decay``
    decay: Positive = 0.1
    reduction: Literal["sum", "mean"] = "sum"  # of the loss over the batch
    clip_norm: Positive | None = 2.0  # the gradient is scaled down to this norm
    average: Literal["ema", "swa"] | None = None  # weights that are scored: averaged over steps, or the last epochs
    ema_decay: Share = 0.999  # of ``average=ema``, per step
    interleaved_lr: Positive | None = None  # of the calibration epochs of interleaved training, times the schedule
    patience: Count | None = None  # stop after so many epochs that are not the best
    precision: Literal["32", "64", "bf16", "16"] = "32"  # the last two are mixed
    compile: bool = False  # `torch.compile` the model
    meta: Literal["split", "val"] = "split"  # learn on a part of its own, or on the validation samples
    # How hyper-parameters move; ``first`` and ``steady`` are of version 0.1, for runs that were begun with it.
    outer: Literal["first", "steady", "paper", "default"] = "first"
    through: Literal["head", "model"] | None = None  # what a meta step is simulated on; None is the library's choice
    meta_every: Count | None = None  # iterations from one meta step to the next; None, as those below, is ``outer``'s
    meta_lr: Positive | None = None
    meta_batch_size: Count | None = None  # None is ``batch_size``
    meta_memory: Annotated[int, Field(ge=0)] = 0  # held-out samples that are judged at a time; 0 is ``outer``'s
    # What the published code does beside the paper's algorithm; see `metacal.lab.training.published`.
    published: tuple[Literal["leak", "statistics", "replay", "frozen"], ...] = ()
    select: Literal["accuracy", "refinement"] = "accuracy"  # which checkpoint is scored; refinement: NLL after scaling
    finish: bool = False  # fold a temperature, fitted on the validation samples, into the last layer
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0  # of splits, weights, order, augmentation and dropout

    @model_validator(mode="before")
    @classmethod
    def _as_people_write_it(cls, value: Any) -> Any:
        """Normalise input: names for methods and domains, switches in any order, ``meta_preset`` of version 0.1."""
        if not isinstance(value, dict):
            return value
        given = dict(value)
        if "meta_preset" in given:
            given["outer"] = given.pop("meta_preset") or "first"
        if isinstance(given.get("method"), str):
            given["method"] = METHODS.get(given["method"], given["method"])
        if isinstance(given.get("domains"), str):
            if given["domains"] != "cifar-c":
                raise ValueError(f"domains must be cifar-c, or train and test domains, got {given['domains']!r}")
            given["domains"] = cifar_c()
        if isinstance(switches := given.get("published"), str | list | tuple):
            given["published"] = sorted({switches} if isinstance(switches, str) else set(switches))
        if isinstance(given.get("precision"), int):
            given["precision"] = str(given["precision"])
        return given

    @field_validator("method")
    @classmethod
    def _method_is_known(cls, method: Method) -> Method:
        if method != METHODS.get(method.name):
            method.check_names()
        return method

    @model_validator(mode="after")
    def _fields_fit_together(self) -> "RunSpec":
        if self.nesterov and (self.optimizer != "sgd" or self.momentum == 0):
            raise ValueError("nesterov needs optimizer=sgd with a momentum above 0")
        if self.accumulate > self.batch_size:
            raise ValueError(f"accumulate must be at most batch_size ({self.batch_size}), got {self.accumulate}")
        if self.meta == "val" and self.method.interleaved:
            raise ValueError("meta=val is for learning hyper-parameters; interleaved training needs meta=split")
        if self.meta_size is not None and self.meta == "val" and not self.hold_out_meta:
            raise ValueError(f"meta_size is for meta=split, got {self.meta_size} with meta=val")
        if self.published and (self.outer != "paper" or self.through == "model" or not self.method.hyperparameters):
            raise ValueError("published is for outer=paper, through=head and a method that learns, such as mc")
        if self.published and (self.accumulate > 1 or self.meta_every not in (None, 1) or self.domains is not None):
            raise ValueError("published must be without accumulate, meta_every and domains")
        if reserved := {"num_classes", "input_shape", "embeddings"} & self.model_options.keys():
            raise ValueError(f"model_options must not set what the data decides, got {', '.join(sorted(reserved))}")
        if list(self.milestones) != sorted(set(self.milestones)):
            raise ValueError(f"milestones must increase, got {list(self.milestones)}")
        return self

    @property
    def meta_part(self) -> str:
        """The part of the data for learning hyper-parameters."""
        return "val" if self.meta == "val" else "meta"

    @property
    def sets_meta_aside(self) -> bool:
        """Whether a part of the training data is used neither for training nor for validation."""
        return self.hold_out_meta or (self.method.needs_meta and self.meta == "split")

    @property
    def hash(self) -> str:
        """16 hexadecimal digits that depend on every field, but not on key order or process.

        Fields at their default are left out, so that a field added later does not move the runs that do not use it.
        """
        stated = self.model_dump(mode="json", exclude_defaults=True)
        if stated.get("outer") in ("paper", "steady"):  # as version 0.1 spelled it
            stated["meta_preset"] = stated.pop("outer")
        canonical = json.dumps({"schema": SCHEMA, **stated}, sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

    def lr_factor(self, epoch: int) -> float:
        """The factor of the learning rate in an epoch, numbered from 0.

        Examples:
            >>> spec = RunSpec(dataset="digits", model="mlp", schedule="multistep", milestones=[150, 250], decay=0.1)
            >>> [round(spec.lr_factor(epoch), 3) for epoch in (0, 149, 150, 250)]
            [1.0, 1.0, 0.1, 0.01]
        """
        if self.schedule == "cosine":
            return 0.5 * (1.0 + math.cos(math.pi * epoch / self.epochs))
        if self.schedule == "multistep":
            return float(self.decay ** sum(epoch >= milestone for milestone in self.milestones))
        return 1.0

    @property
    def has_own_model(self) -> bool:
        """Whether the model is an import path, so that building it runs user code."""
        return ":" in self.model

    @property
    def title(self) -> str:
        """A short name for tables and folders."""
        source = self.dataset.rstrip("/").split("/")[-1]
        return f"{source}-{self.model.split(':')[-1]}-{self.method.name}-seed{self.seed}"


class Hardware(BaseModel):
    """Where a run is executed; not part of its identity."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    accelerator: Literal["auto", "cpu", "gpu", "cuda"] = "auto"  # not Apple's GPUs: metrics need float64
    devices: Count = 1
    strategy: Literal["auto", "ddp"] = "auto"
    threads: Count | None = None  # of torch on a CPU; None leaves them
    channels_last: bool | None = None  # memory format of images; None is what is faster on the accelerator

    @field_validator("strategy", mode="before")
    @classmethod
    def _models_stay_whole(cls, value: Any) -> Any:
        if value not in ("auto", "ddp"):
            raise ValueError("must be auto or ddp: checkpoints hold whole models, the meta step needs the whole head")
        return value
