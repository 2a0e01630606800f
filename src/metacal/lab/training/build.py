"""Builds the objects of a spec: devices, data, batches, model and optimiser."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import nn
from torch.optim import Optimizer

from metacal.bf16 import check_bf16
from metacal.errors import InvalidValueError
from metacal.lab.data import Batches, Dataset, Examples, Splits, load_dataset, make_splits, make_transform
from metacal.lab.data.corruptions import check_images
from metacal.lab.data.domains import Corrupting, corrupted_mixture
from metacal.lab.models import create_model
from metacal.lab.training.run_folder import RunFolder
from metacal.lab.training.spec import Hardware, RunSpec

PRECISIONS = {"32": "32-true", "64": "64-true", "bf16": "bf16-mixed", "16": "16-mixed"}


@dataclass(frozen=True)
class Job:
    """A run with its data and devices, for every step of the pipeline."""

    spec: RunSpec
    folder: RunFolder
    dataset: Dataset
    splits: Splits
    fabric: Fabric  # devices, precision and processes


def choose_accelerator(name: str) -> str:
    """Choose Fabric's accelerator; its own ``auto`` and ``gpu`` include Apple GPUs, which lack float64 for metrics."""
    return {"gpu": "cuda", "auto": "cuda" if torch.cuda.is_available() else "cpu"}.get(name, name)


def make_fabric(spec: RunSpec, hardware: Hardware) -> Fabric:
    """Set up devices, precision and processes."""
    if hardware.threads is not None:
        torch.set_num_threads(hardware.threads)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*AMP with fp16 is not supported on CPU")  # refused below
            fabric = Fabric(
                accelerator=choose_accelerator(hardware.accelerator),
                devices=hardware.devices,
                strategy=hardware.strategy,
                precision=PRECISIONS[spec.precision],  # type: ignore[arg-type]
            )
    except (RuntimeError, ValueError) as error:
        raise InvalidValueError(
            f"`accelerator`, `devices` and `strategy` must be available on this machine: {str(error).splitlines()[0]}"
        ) from None
    if spec.precision == "16" and fabric.device.type == "cpu":
        raise InvalidValueError("`precision` must be 32, 64 or bf16 on a CPU, got 16.")
    if spec.precision == "bf16":
        check_bf16(fabric.device.type, instead="precision=32")
    fabric.launch()
    return fabric


def load_data(spec: RunSpec, data_dir: Path | None) -> tuple[Dataset, Splits]:
    """Load the dataset and split it."""
    dataset = load_dataset(spec.dataset, folder=data_dir, **spec.dataset_options)
    domains = spec.domains
    if domains is not None:
        check_images(dataset.train.inputs)
    if spec.augment is not None:
        dataset = replace(dataset, augment=spec.augment)
    sizes = ("val_share", "meta_share", "val_size", "meta_size", "train_size", "stratified")
    splits = make_splits(
        dataset, seed=spec.seed, with_meta=spec.sets_meta_aside, **{name: getattr(spec, name) for name in sizes}
    )
    if domains is not None:
        splits = replace(splits, val=corrupted_mixture(splits.val, domains.val or domains.train, spec.seed))
    return dataset, splits


def make_batches(job: Job, part: str, *, unlike: Batches | None = None) -> Batches:
    """Return this process's shuffled batches of a part; those of the training part are augmented.

    With domains, every batch is of one domain, which is never that of the current batch of ``unlike``.
    """
    spec, fabric = job.spec, job.fabric
    size = spec.batch_size if part == "train" else spec.meta_batch_size or spec.batch_size
    options: dict[str, Any] = {
        "seed": spec.seed + (part != "train"),
        "transform": make_transform(job.dataset, training=part == "train", seed=spec.seed),
        "device": fabric.device,
        "rank": fabric.global_rank,
        "world_size": fabric.world_size,
    }
    examples: Examples = getattr(job.splits, part)
    if spec.domains is None:
        return Batches(examples, size, **options)
    if part == "val":  # its images are already corrupted, to select checkpoints: take the clean ones
        examples = job.dataset.train.select(job.splits.indices[part])
    other = None if unlike is None else unlike.transform
    assert other is None or isinstance(other, Corrupting)
    options["transform"] = Corrupting(spec.domains.train, options["transform"], seed=options["seed"], unlike=other)
    return Batches(examples, size, **options)


def evaluation_batches(spec: RunSpec, dataset: Dataset, examples: Examples, fabric: Fabric) -> Batches:
    """Return this process's contiguous share of the examples, in order and without augmentation."""
    if fabric.world_size > 1:
        examples = examples.select(torch.arange(len(examples)).tensor_split(fabric.world_size)[fabric.global_rank])
    transform = make_transform(dataset, training=False)
    return Batches(examples, 4 * spec.batch_size, shuffle=False, transform=transform, device=fabric.device)


def build_model(spec: RunSpec, dataset: Dataset) -> nn.Module:
    """Build a model, initialised from the current RNG state."""
    return create_model(
        spec.model,
        num_classes=dataset.num_classes,
        input_shape=dataset.input_shape,
        embeddings=dataset.embeddings,
        **spec.model_options,
    )


def build_optimizer(spec: RunSpec, parameters: Iterable[nn.Parameter]) -> Optimizer:
    """Build an optimiser of the trainable parameters."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    if not trained:
        raise InvalidValueError("`model` must have a trainable parameter, got none that requires a gradient.")
    common: dict[str, Any] = {"lr": spec.lr, "weight_decay": spec.weight_decay}
    if spec.optimizer == "sgd":
        return torch.optim.SGD(trained, momentum=spec.momentum, nesterov=spec.nesterov, **common)
    return (torch.optim.AdamW if spec.optimizer == "adamw" else torch.optim.Adam)(trained, **common)
