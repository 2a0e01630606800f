"""`RunSpec` describes a training run completely: the same spec gives the same run. `Hardware` says where it runs.

`Method` describes a training method as data; `METHODS` has the paper's, ours and further baselines, by name.
"""

import hashlib
import json
import math
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

SCHEMA = 2
"""Version of the spec; part of the hash and of every stored run. Increase it when a default changes."""

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
    averaged: bool = False  # average the loss over the batch, even if the recipe sums it
    hyperparameters: tuple[str, ...] = ()  # meta-learned; names in `metalearning.HYPERPARAMETERS`
    objective: tuple[Term, ...] = HELD_OUT_OBJECTIVE  # the meta-objective
    interleaved: tuple[Term, ...] = ()  # a calibration loss for an extra epoch on the meta part after each epoch
    mixup: NotNegative = 0.0  # inputs are mixed with weights from Beta(mixup, mixup)

    @model_validator(mode="after")
    def _check_mixup(self) -> "Method":
        if self.mixup and self.hyperparameters:
            raise ValueError("mixup must be 0 for methods that learn hyper-parameters, which need hard labels")
        return self

    @property
    def needs_meta(self) -> bool:
        """Whether the method needs a meta set."""
        return bool(self.hyperparameters or self.interleaved)

    def check_names(self) -> None:
        """Raise for an unknown hyper-parameter or loss; imports torch, so built-in methods are not checked."""
        from metacal.losses import LOSSES
        from metacal.metalearning import HYPERPARAMETERS

        for name in self.hyperparameters:
            if name not in HYPERPARAMETERS:
                raise ValueError(f"hyperparameters must be among {', '.join(HYPERPARAMETERS)}, got {name!r}")
        for term in (*self.loss, *self.objective, *self.interleaved):
            if term.loss not in LOSSES:
                raise ValueError(f"a term's loss must be one of {', '.join(LOSSES)}, got {term.loss!r}")


FOCAL = (Term(loss="focal", options={"gamma": 3.0}),)
# The paper does not give the weights of these terms: docs/design/fidelity.md says how we chose them.
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
"""Display names; other methods are shown by their name."""

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
        # Further baselines, not in the paper, each with the settings of its own paper.
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
    train: tuple[Domain, ...]  # one per step; a meta batch has another one than the training batch
    val: tuple[Domain, ...] | None = None  # to select the checkpoint and the temperature; None means ``train``
    test: tuple[Domain, ...]  # each is measured separately

    @field_validator("train", "val", "test", mode="before")
    @classmethod
    def _parse(cls, value: Any) -> Any:
        every = [value] if isinstance(value, str) else value
        return [_domain(each) for each in every] if isinstance(every, list | tuple) else every

    @field_validator("train", "val", "test")
    @classmethod
    def _check(cls, listed: tuple[Domain, ...] | None) -> tuple[Domain, ...] | None:
        from metacal.lab.data.corruptions import check_severity, find_corruption  # loads torch

        if listed is None:
            return None
        for _, severity in listed:
            check_severity(severity)
        found = tuple((find_corruption(name), severity) for name, severity in listed)
        if not 0 < len(found) == len(set(found)):
            raise ValueError("must name at least one domain, and each only once")
        return found


def _domain(value: Any) -> Any:
    """Split the text ``fog:3`` into name and severity."""
    if not isinstance(value, str):
        return value
    name, _, severity = value.rpartition(":")
    if not severity.isdecimal():
        raise ValueError(f"a domain must be a corruption with its severity, such as fog:3, got {value}")
    return name, int(severity)


@cache
def cifar_c() -> Domains:
    """The paper's domains: of the 95 pairs of corruption and severity, 22 are for testing, the others for training."""
    from metacal.lab.data.corruptions import CORRUPTIONS, SEVERITIES

    tested = [(name, severity) for name in TESTED for severity in SEVERITIES]
    tested += [(name, SEVERITIES[-1]) for name in TESTED_AT_WORST]
    every = [(name, severity) for name in CORRUPTIONS for severity in SEVERITIES]
    return Domains(
        train=tuple(each for each in every if each not in tested), test=tuple(each for each in every if each in tested)
    )


class RunSpec(BaseModel):
    """Everything that determines the result of a run, except for the `Hardware`.

    Examples:
        >>> spec = RunSpec(dataset="digits", model="mlp", method="mc", epochs=2)
        >>> spec.method.name, RunSpec.model_validate_json(spec.model_dump_json()) == spec
        ('mc', True)
    """

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    dataset: str  # name, or path of your own
    dataset_options: dict[str, Any] = {}
    model: str  # name, or import path of your own
    model_options: dict[str, Any] = {}
    method: Method = METHODS["ce"]  # or the name of one
    train_size: Count | None = None  # train on only this many of the remaining samples
    val_share: Share = 0.1  # of the training data
    meta_share: Share = 0.1
    val_size: Count | None = None  # number of samples, instead of a share
    meta_size: Count | None = None
    stratified: bool = False  # split class by class
    # Hold out the meta part even for a method that does not use it. By default such a method trains on it too, as in
    # the paper (90 % of the data against 80 %).
    hold_out_meta: bool = False
    augment: bool | None = None  # pad, crop and flip; None is the dataset's default
    domains: Domains | None = None  # corruptions for training, validation and test; ``cifar-c`` is the paper's
    epochs: Count = 350
    batch_size: Count = 128  # samples per step, over all devices
    accumulate: Count = 1  # split each batch into this many parts and add up their gradients
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    lr: Positive = 0.1  # initial learning rate
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9  # of SGD
    nesterov: bool = False
    weight_decay: NotNegative = 0.0005  # L2 (``adamw``: decoupled)
    schedule: Literal["multistep", "cosine", "constant"] = "multistep"
    milestones: tuple[Count, ...] = (150, 250)  # epochs after which the learning rate is multiplied by ``decay``
    decay: Positive = 0.1
    reduction: Literal["sum", "mean"] = "sum"  # of the loss over the batch
    clip_norm: Positive | None = 2.0  # largest norm of the gradient
    average: Literal["ema", "swa"] | None = None  # score weights averaged over steps, or over the last epochs
    ema_decay: Share = 0.999  # of ``average=ema``, per step
    interleaved_lr: Positive | None = None  # in the extra epochs of interleaved training, times the schedule
    patience: Count | None = None  # stop after this many epochs without improvement
    precision: Literal["32", "64", "bf16", "16"] = "32"  # the last two are mixed
    compile: bool = False  # `torch.compile` the model
    meta: Literal["split", "val"] = "split"  # learn on a separate part, or on the validation samples
    # The outer step; ``first`` and ``steady`` are those of version 0.1, for runs started with it.
    outer: Literal["first", "steady", "paper", "default"] = "first"
    through: Literal["head", "model"] | None = None  # what the hypergradient goes through; None: depends on ``outer``
    meta_every: Count | None = None  # iterations between meta steps; here and below, None means the value of ``outer``
    meta_lr: Positive | None = None
    meta_batch_size: Count | None = None  # None means ``batch_size``
    meta_memory: Annotated[int, Field(ge=0)] = 0  # held-out samples per meta step; 0 means the value of ``outer``
    # Differences of the published code from the paper's algorithm; see `metacal.lab.training.published`.
    published: tuple[Literal["leak", "statistics", "replay", "frozen"], ...] = ()
    select: Literal["accuracy", "refinement"] = "accuracy"  # selects the checkpoint; refinement: NLL after temperature
    finish: bool = False  # fold a temperature, fitted on the validation samples, into the last layer
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0  # of splits, weights, order, augmentation and dropout

    @model_validator(mode="before")
    @classmethod
    def _normalise(cls, value: Any) -> Any:
        """Accept names of methods and domains, switches in any order, and ``meta_preset`` of version 0.1."""
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
    def _check_method(cls, method: Method) -> Method:
        if method != METHODS.get(method.name):
            method.check_names()
        return method

    @model_validator(mode="after")
    def _check_combinations(self) -> "RunSpec":
        if self.nesterov and (self.optimizer != "sgd" or self.momentum == 0):
            raise ValueError("nesterov needs optimizer=sgd with a momentum above 0")
        if self.accumulate > self.batch_size:
            raise ValueError(f"accumulate must be at most batch_size ({self.batch_size}), got {self.accumulate}")
        if self.meta == "val" and self.method.interleaved:
            raise ValueError("meta must be split for interleaved training, got val")
        if self.meta_size is not None and self.meta == "val" and not self.hold_out_meta:
            raise ValueError(f"meta_size needs meta=split, got {self.meta_size} with meta=val")
        if self.published and (self.outer != "paper" or self.through == "model" or not self.method.hyperparameters):
            raise ValueError("published needs outer=paper, through=head and a method that learns, such as mc")
        if self.published and (self.accumulate > 1 or self.meta_every not in (None, 1) or self.domains is not None):
            raise ValueError("published must be used without accumulate, meta_every and domains")
        if reserved := {"num_classes", "input_shape", "embeddings"} & self.model_options.keys():
            raise ValueError(f"model_options must not set what the data decides, got {', '.join(sorted(reserved))}")
        if list(self.milestones) != sorted(set(self.milestones)):
            raise ValueError(f"milestones must increase, got {list(self.milestones)}")
        return self

    @property
    def meta_part(self) -> str:
        """The part of the data that hyper-parameters are learned on."""
        return "val" if self.meta == "val" else "meta"

    @property
    def sets_meta_aside(self) -> bool:
        """Whether a part of the training data is held out besides the validation set."""
        return self.hold_out_meta or (self.method.needs_meta and self.meta == "split")

    @property
    def hash(self) -> str:
        """16 hexadecimal digits that depend on every field, but not on key order or process.

        Fields at their default are left out, so that adding a field does not change the hashes of earlier runs.
        """
        stated = self.model_dump(mode="json", exclude_defaults=True)
        if stated.get("outer") in ("paper", "steady"):  # as version 0.1 spelled it
            stated["meta_preset"] = stated.pop("outer")
        canonical = json.dumps({"schema": SCHEMA, **stated}, sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

    def lr_factor(self, epoch: int) -> float:
        """Factor of the learning rate in an epoch, counted from 0.

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
    threads: Count | None = None  # of torch on a CPU; None keeps the current number
    channels_last: bool | None = None  # memory format of images; None means yes for images

    @field_validator("strategy", mode="before")
    @classmethod
    def _check_strategy(cls, value: Any) -> Any:
        if value not in ("auto", "ddp"):
            raise ValueError("must be auto or ddp: checkpoints and meta steps need unsharded models")
        return value
