"""`RunSpec`: one training run, described completely; the same spec gives the same run."""

import hashlib
import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from metacal.lab.training.domains import NAMED, Domains
from metacal.lab.training.methods import METHODS, Method

SCHEMA = 2
"""Version of the spec's meaning; part of the hash, and of every stored run. Raise it when a default changes."""

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0, lt=1)]


class RunSpec(BaseModel):
    """Everything that decides the outcome of a run; where it runs is not part of it (see `Hardware`).

    Attributes:
        dataset: name of a dataset, or the path of your own.
        dataset_options: passed on to it.
        model: name of a model, or the import path of your own.
        model_options: passed on to it.
        method: a `Method`, or the name of one.
        train_size: use only so many of the samples that are left for training.
        val_share: share of the training data for validation.
        meta_share: share of the training data for the meta set.
        val_size: number of validation samples, instead of a share.
        meta_size: number of meta samples, instead of a share.
        stratified: split class by class.
        hold_out_meta: set the meta part aside even for a method that does not use it; otherwise such a method trains
            on it too, as in the paper (90 % of the data against 80 %).
        augment: pad-crop-flip; None is what the dataset asks for.
        domains: what is trained on, chosen on and tested on, by domain; ``cifar-c`` names the paper's; None has none.
        epochs: passes over the training data.
        batch_size: samples per step, over all devices.
        accumulate: cut each batch into so many parts, whose gradients are added up.
        optimizer: ``sgd``, ``adam`` or ``adamw``.
        lr: learning rate at the start.
        momentum: of SGD.
        nesterov: of SGD.
        weight_decay: L2 (``adamw``: decoupled).
        schedule: ``multistep``, ``cosine`` or ``constant``, by epochs.
        milestones: epochs after which the rate is multiplied by ``decay``.
        decay: factor at a milestone.
        reduction: ``sum`` or ``mean`` of the loss over the batch.
        clip_norm: the gradient is scaled down to this norm; None leaves it.
        interleaved_lr: learning rate of the calibration epochs of interleaved training, times the schedule.
        patience: stop after so many epochs without a better validation accuracy; None never stops early.
        precision: ``32``, ``64``, ``bf16`` or ``16`` (the last two mixed).
        compile: `torch.compile` the model.
        meta: what hyper-parameters are learned on: ``val``, the validation samples; ``split``, a part of its own.
        outer: how they move: ``default``, the library's; ``paper``, the published way; ``first`` and ``steady`` are of
            version 0.1, for runs that were begun with it.
        through: what a meta step is simulated on: ``head`` or ``model``; None is the library's choice.
        meta_every: iterations from one meta step to the next; None is that of ``outer``.
        meta_lr: step size of the hyper-parameters; None is that of ``outer``.
        meta_batch_size: None is ``batch_size``.
        meta_memory: held-out samples that are judged at a time; 0 is that of ``outer``.
        select: the checkpoint that is scored: that of the best validation ``accuracy``, or ``refinement``: the lowest
            validation NLL after temperature scaling.
        finish: fit a temperature on the validation samples in the end, and fold it into the last layer.
        seed: of splits, weights, order, augmentation and dropout.

    Examples:
        >>> spec = RunSpec(dataset="digits", model="mlp", method="mc", epochs=2)
        >>> spec.method.name, RunSpec.model_validate_json(spec.model_dump_json()) == spec
        ('mc', True)
    """

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    dataset: str
    dataset_options: dict[str, Any] = {}
    model: str
    model_options: dict[str, Any] = {}
    method: Method = METHODS["ce"]
    train_size: Count | None = None
    val_share: Share = 0.1
    meta_share: Share = 0.1
    val_size: Count | None = None
    meta_size: Count | None = None
    stratified: bool = False
    hold_out_meta: bool = False
    augment: bool | None = None
    domains: Domains | None = None
    epochs: Count = 350
    batch_size: Count = 128
    accumulate: Count = 1
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    lr: Positive = 0.1
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    nesterov: bool = False
    weight_decay: NotNegative = 0.0005
    schedule: Literal["multistep", "cosine", "constant"] = "multistep"
    milestones: tuple[Count, ...] = (150, 250)
    decay: Positive = 0.1
    reduction: Literal["sum", "mean"] = "sum"
    clip_norm: Positive | None = 2.0
    interleaved_lr: Positive | None = None
    patience: Count | None = None
    precision: Literal["32", "64", "bf16", "16"] = "32"
    compile: bool = False
    meta: Literal["split", "val"] = "split"
    outer: Literal["first", "steady", "paper", "default"] = "first"
    through: Literal["head", "model"] | None = None
    meta_every: Count | None = None
    meta_lr: Positive | None = None
    meta_batch_size: Count | None = None
    meta_memory: Annotated[int, Field(ge=0)] = 0
    select: Literal["accuracy", "refinement"] = "accuracy"
    finish: bool = False
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0

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
        told = self.model_dump(mode="json", exclude_defaults=True)
        if told.get("outer") in ("paper", "steady"):  # as version 0.1 spelled it
            told["meta_preset"] = told.pop("outer")
        canonical = json.dumps({"schema": SCHEMA, **told}, sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

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
    """Where a run is executed; nothing here belongs to its identity.

    Attributes:
        accelerator: ``auto`` (CUDA if it is there), ``cpu``, ``gpu``. Apple's GPUs have no float64, which metrics need.
        devices: how many.
        strategy: ``auto`` or ``ddp``.
        threads: of torch on a CPU; None leaves them.
        channels_last: memory format of images; None is what is faster on the accelerator.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    accelerator: Literal["auto", "cpu", "gpu", "cuda"] = "auto"
    devices: Count = 1
    strategy: Literal["auto", "ddp"] = "auto"
    threads: Count | None = None
    channels_last: bool | None = None

    @field_validator("strategy", mode="before")
    @classmethod
    def _models_stay_whole(cls, value: Any) -> Any:
        if value not in ("auto", "ddp"):
            raise ValueError("must be auto or ddp: checkpoints hold whole models, the meta step needs the whole head")
        return value
