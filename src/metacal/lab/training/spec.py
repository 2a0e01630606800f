"""`RunSpec`: one training run, described completely; the same spec gives the same run. `Hardware`: where it runs."""

import hashlib
import json
import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from metacal.lab.training.methods import METHODS, Method

SCHEMA = 2
"""Version of the spec's meaning; part of the hash, and of every stored run. Raise it when a default changes."""

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0, lt=1)]


Domain = tuple[str, int] | str
"""A corruption of images with its severity, or the name of a domain in the data's own ``domains`` column."""

TESTED = ("impulse_noise", "motion_blur", "fog", "elastic_transform")
TESTED_AT_WORST = ("spatter", "jpeg_compression")
WRITTEN = re.compile(r"([a-z_]+):([0-9]+)")


class Domains(BaseModel):
    """Domains by part of a run; corruptions of images, or names in a column of the user's data, not both.

    Examples:
        >>> Domains(train=["A", "B", "C", "D"], test=["E"]).is_column
        True
        >>> Domains(train=["fog:1", "snow:2"], test=[["frost", 5]]).test
        (('frost', 5),)
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    train: tuple[Domain, ...]  # one per step; a meta batch is of another one than the training batch
    val: tuple[Domain, ...] | None = None  # what the checkpoint and a temperature are chosen on; None is ``train``
    test: tuple[Domain, ...]  # each is measured on its own

    @field_validator("train", "val", "test", mode="before")
    @classmethod
    def _as_domains(cls, value: Any) -> Any:
        if isinstance(value, str | int):
            value = [value]
        return [_domain(each) for each in value] if isinstance(value, list | tuple) else value

    @model_validator(mode="after")
    def _fit_together(self) -> "Domains":
        every = [*self.train, *(self.val or ()), *self.test]
        if len({isinstance(each, str) for each in every}) > 1:
            raise ValueError("domains must be corruptions or names in the data's column, not both")
        for part in ("train", "val", "test"):
            listed = getattr(self, part)
            if listed is None:
                continue
            if not listed:
                raise ValueError(f"domains.{part} must name at least one domain")
            if len(set(listed)) < len(listed):
                raise ValueError(f"domains.{part} must name a domain once")
        if corruptions := self.corruptions(every):
            from metacal.lab.data.corruptions import check_severity, find_corruption  # loads torch

            for name, severity in corruptions:
                find_corruption(name)
                check_severity(severity)
        if self.is_column and set(self.train) & set(self.test):
            raise ValueError("domains.test must not be trained on: samples of one domain cannot be in both")
        if self.is_column and self.val is not None:
            raise ValueError("domains.val must be left out for domains in a column: a share of the training data is it")
        return self

    @property
    def is_column(self) -> bool:
        """Whether they are names in a column of the data."""
        return isinstance(self.train[0], str)

    @staticmethod
    def corruptions(domains: Any) -> list[tuple[str, int]]:
        """Those of these domains that are corruptions."""
        return [domain for domain in domains if not isinstance(domain, str)]


def _domain(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        name, _, severity = value.rpartition(":")
        is_corruption = WRITTEN.fullmatch(value) or (severity.isdecimal() and _is_corruption(name))
        return (_plain_name(name), int(severity)) if is_corruption else value
    if isinstance(value, list | tuple) and value and isinstance(value[0], str):
        return (_plain_name(value[0]), *value[1:])
    return tuple(value) if isinstance(value, list) else value


def _plain_name(corruption: str) -> str:
    """A corruption's name as the files are called: ``JPEG-compression`` is ``jpeg_compression``."""
    return corruption.lower().replace("-", "_").replace(" ", "_")


def _is_corruption(name: str) -> bool:
    from metacal.lab.data.corruptions import CORRUPTIONS  # loads torch

    return _plain_name(name) in CORRUPTIONS


@lru_cache(maxsize=1)
def cifar_c() -> Domains:
    """The paper's domains: 22 of the 95 corruptions with severities are tested on, the others trained on."""
    from metacal.lab.data.corruptions import CORRUPTIONS, SEVERITIES

    every = [(name, severity) for name in CORRUPTIONS for severity in SEVERITIES]
    test = [
        (name, severity)
        for name, severity in every
        if name in TESTED or (name in TESTED_AT_WORST and severity == SEVERITIES[-1])
    ]
    return Domains(train=tuple(each for each in every if each not in test), test=tuple(test))


NAMED: dict[str, Callable[[], Domains]] = {"cifar-c": cifar_c}


class RunSpec(BaseModel):
    """Everything that decides the outcome of a run; where it runs is not part of it (see `Hardware`).

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
    def _names_of_before(cls, value: Any) -> Any:
        """Specs of version 0.1 say ``meta_preset``."""
        if isinstance(value, dict) and "meta_preset" in value:
            value = dict(value)
            value["outer"] = value.pop("meta_preset") or "first"
        return value

    @field_validator("method", mode="before")
    @classmethod
    def _method_by_name(cls, value: Any) -> Any:
        return METHODS.get(value, value) if isinstance(value, str) else value

    @field_validator("method")
    @classmethod
    def _method_is_known(cls, method: Method) -> Method:
        if method != METHODS.get(method.name):
            method.check_names()
        return method

    @field_validator("domains", mode="before")
    @classmethod
    def _domains_by_name(cls, value: Any) -> Any:
        if isinstance(value, str) and value not in NAMED:
            raise ValueError(f"must be {' or '.join(NAMED)}, or train and test domains")
        return NAMED[value]() if isinstance(value, str) else value

    @field_validator("published", mode="before")
    @classmethod
    def _switches_in_one_order(cls, value: Any) -> Any:
        every = [value] if isinstance(value, str) else value
        return sorted(set(every)) if isinstance(every, list | tuple) else every

    @field_validator("precision", mode="before")
    @classmethod
    def _precision_as_text(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) else value

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
        """The part of the data that hyper-parameters are learned on."""
        return "val" if self.meta == "val" else "meta"

    @property
    def sets_meta_aside(self) -> bool:
        """Whether a part of the training data is neither trained on nor validated on."""
        return self.hold_out_meta or (self.method.needs_meta and self.meta == "split")

    @property
    def hash(self) -> str:
        """Stable over key order and processes: 16 hexadecimal digits that any change of a field changes.

        Fields at their default are left out, so that a field added later does not move the runs that do not use it.
        """
        stated = self.model_dump(mode="json", exclude_defaults=True)
        if stated.get("outer") in ("paper", "steady"):  # as version 0.1 spelled it
            stated["meta_preset"] = stated.pop("outer")
        canonical = json.dumps({"schema": SCHEMA, **stated}, sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

    def lr_factor(self, epoch: int) -> float:
        """The factor on the learning rate from the start of an epoch, numbered from 0, to its end.

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
        """Whether the model is named by its import path: building it runs code of the user's own."""
        return ":" in self.model

    @property
    def title(self) -> str:
        """A short name for tables and folders."""
        source = self.dataset.rstrip("/").split("/")[-1]
        return f"{source}-{self.model.split(':')[-1]}-{self.method.name}-seed{self.seed}"


class Hardware(BaseModel):
    """Where a run is executed; nothing here belongs to its identity."""

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
