"""Where the callback's meta batches come from: what it was given, a hook of the datamodule, or the training set."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler

from metacal.data import split_off
from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.integrations.meta_stream import MetaStream, loading_of

HOOK = "meta_dataloader"


def is_share(meta: Any) -> bool:
    """Whether ``meta`` says how much of the training set to split off."""
    return isinstance(meta, float)


def split_training_set(trainer: Trainer, share: float, seed: int) -> DataLoader[Any]:
    """Let the trainer train on the rest of its training set; returns a loader of the part that was split off."""
    source = trainer.fit_loop._data_source
    loader = source.dataloader()
    if not isinstance(loader, DataLoader):
        raise InvalidTypeError(
            f"`meta` must not be a share here: it can be split off one DataLoader, got {type(loader).__name__}; "
            "metacal.data.split_off splits a dataset."
        )
    samplers = (RandomSampler, SequentialSampler)
    if type(loader.batch_sampler) is not BatchSampler or type(loader.sampler) not in samplers:
        raise InvalidValueError(
            "`meta` must not be a share where the training loader has a sampler of its own: split the dataset with "
            "metacal.data.split_off and pass the second part as `meta`."
        )
    rest, held_out = split_off(loader.dataset, share, seed)
    shuffles = type(loader.sampler) is RandomSampler
    trainer.fit_loop._data_source = replace(source, instance=_like(loader, rest, shuffles, loader.drop_last))
    return _like(loader, held_out, False, False)


def find_stream(
    meta: Any, trainer: Trainer, module: LightningModule, *, batch_size: int | None, seed: int
) -> MetaStream | Iterator[Any]:
    """Meta batches without end.

    Args:
        meta: a loader, a dataset, or None for what the datamodule's or module's ``meta_dataloader`` returns.
        trainer: in the midst of fitting.
        module: what it fits.
        batch_size: of meta batches; None: the loader's, or that of the training loader for a dataset.
        seed: of the order.
    """
    place: dict[str, Any] = {"seed": seed, "rank": trainer.global_rank, "ranks": trainer.world_size}
    if meta is None:
        owners = (getattr(trainer, "datamodule", None), module)
        hook = next((getattr(owner, HOOK) for owner in owners if hasattr(owner, HOOK)), None)
        if hook is None:
            raise InvalidValueError(
                "`meta` must be given: a DataLoader or Dataset of held-out samples, or a share such as 0.1 of the "
                f"training set to split off; or define {HOOK}() in the datamodule. Got None."
            )
        meta = hook()
    if isinstance(meta, DataLoader):
        stream = MetaStream.of_loader(meta, **place)
        if batch_size is None:
            return stream
        if not isinstance(stream, MetaStream):
            raise InvalidValueError(
                "`meta_batch_size` must not be given for a loader with a sampler, batches or a stream of its own, got "
                f"{batch_size}; set it in the loader."
            )
        stream.batch_size = batch_size
        return stream
    if batch_size is None:
        batch_size = getattr(trainer.train_dataloader, "batch_size", None)
        if batch_size is None:
            raise InvalidValueError("`meta_batch_size` must be given: the training loader does not tell one.")
    return MetaStream(meta, batch_size, **place)


def _like(loader: DataLoader[Any], dataset: Any, shuffle: bool, drop_last: bool) -> DataLoader[Any]:
    """A loader with another's settings over another dataset."""
    return DataLoader(
        dataset,
        batch_size=loader.batch_size,
        shuffle=shuffle,
        drop_last=drop_last,
        generator=loader.generator if shuffle else None,
        **loading_of(loader),
    )
