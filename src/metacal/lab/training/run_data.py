"""From the names in a spec to its model and its data: the dataset, its parts, and batches of them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from lightning_fabric import Fabric
from torch import nn

from metacal.lab.data import Batches, Dataset, Examples, Splits, load_dataset, make_splits, make_transform
from metacal.lab.data.corruptions import check_images
from metacal.lab.data.domains import Corrupting, DomainBatches, Turn, by_domain, check_corruptions, corrupted_mixture
from metacal.lab.models import create_model
from metacal.lab.training.domains import Domains
from metacal.lab.training.predict import share_of
from metacal.lab.training.spec import RunSpec


def load_data(spec: RunSpec, data_dir: Path | None) -> tuple[Dataset, Splits]:
    """The dataset and its parts."""
    dataset = load_dataset(spec.dataset, folder=data_dir, **spec.dataset_options)
    if spec.domains is not None and spec.domains.is_column:
        dataset = by_domain(
            dataset, [str(each) for each in spec.domains.train], [str(each) for each in spec.domains.test]
        )
    elif spec.domains is not None:
        check_corruptions(Domains.corruptions((*spec.domains.train, *(spec.domains.val or ()), *spec.domains.test)))
        check_images(dataset.train.inputs)
    if spec.augment is not None:
        dataset = replace(dataset, augment=spec.augment)
    splits = make_splits(
        dataset,
        seed=spec.seed,
        with_meta=spec.sets_meta_aside,
        val_share=spec.val_share,
        meta_share=spec.meta_share,
        val_size=spec.val_size,
        meta_size=spec.meta_size,
        train_size=spec.train_size,
        stratified=spec.stratified,
    )
    if spec.domains is not None and not spec.domains.is_column:
        chosen_on = Domains.corruptions(spec.domains.val or spec.domains.train)
        splits = replace(splits, val=corrupted_mixture(splits.val, chosen_on, spec.seed))
    return dataset, splits


def batches_of(
    spec: RunSpec, dataset: Dataset, splits: Splits, part: str, fabric: Fabric, turn: Turn, *, follows: bool = False
) -> Batches:
    """Shuffled batches of the training part, augmented, or of another, as it is: this process's share of each.

    With domains every batch is of one; one that ``follows`` is of another domain than the batch whose turn it is.
    """
    size = spec.batch_size if part == "train" else spec.meta_batch_size or spec.batch_size
    options: dict[str, Any] = {
        "seed": spec.seed + (part != "train"),
        "transform": make_transform(dataset, training=part == "train", seed=spec.seed),
        "device": fabric.device,
        "rank": fabric.global_rank,
        "world_size": fabric.world_size,
    }
    if spec.domains is None:
        return Batches(getattr(splits, part), size, **options)
    if spec.domains.is_column:
        return DomainBatches(getattr(splits, part), size, turn=turn, follows=follows, **options)
    corruptions = Domains.corruptions(spec.domains.train)
    options["transform"] = Corrupting(
        corruptions, options["transform"], seed=options["seed"], turn=turn, follows=follows
    )
    is_corrupted = part == "val"  # once and for all, as checkpoints are chosen: here each batch is corrupted anew
    examples = dataset.train.select(splits.indices[part]) if is_corrupted else getattr(splits, part)
    return Batches(examples, size, **options)


def evaluation_batches(spec: RunSpec, dataset: Dataset, examples: Examples, fabric: Fabric) -> Batches:
    """This process's share of some examples, in order, as they are."""
    return Batches(
        share_of(examples, fabric),
        4 * spec.batch_size,
        shuffle=False,
        transform=make_transform(dataset, training=False),
        device=fabric.device,
    )


def build_model(spec: RunSpec, dataset: Dataset) -> nn.Module:
    """A new model, with weights from torch's random numbers as they are."""
    return create_model(
        spec.model,
        num_classes=dataset.num_classes,
        input_shape=dataset.input_shape,
        embeddings=dataset.embeddings,
        **spec.model_options,
    )
