"""Where the callback's held-out batches come from: what it was given, a hook of the datamodule, or validation."""

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.utilities import CombinedLoader
from torch import Tensor
from torch.utils.data import DataLoader

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.metalearning.labels import Targets, labels_of

HOOK = "meta_dataloader"
SEVERAL = (list, tuple, dict, CombinedLoader)


def find_held_out(meta: Any, trainer: Trainer, module: LightningModule) -> tuple[Any, bool]:
    """Held-out batches: a loader or another iterable, and whether they are the ones that are validated on.

    Args:
        meta: what was given; None asks ``meta_dataloader`` of the datamodule or module, and then for the validation
            loader.
        trainer: in the midst of fitting.
        module: what it fits.
    """
    owners = (getattr(trainer, "datamodule", None), module)
    hook = next((getattr(owner, HOOK) for owner in owners if hasattr(owner, HOOK)), None)
    if meta is None and hook is not None:
        meta = hook()
    if meta is not None:
        return meta, False
    source = trainer.fit_loop.epoch_loop.val_loop._data_source
    found = source.dataloader() if source.is_defined() else None
    if isinstance(found, (list, tuple)) and len(found) == 1:
        found = found[0]
    if found is None or isinstance(found, SEVERAL):
        raise InvalidValueError(
            "`meta` must be a DataLoader of held-out samples where there is not one validation loader: "
            f"torch.utils.data.random_split splits some off. Got {'several' if found else 'no'} such loaders."
        )
    return found, True


class WholeBatch:
    """A batch as ``(batch,)``, the input of `UpToHead`, with its labels.

    Args:
        targets: where the labels are.
        collate: makes the batch of samples; None if it is made already.
    """

    def __init__(self, targets: Targets, collate: Callable[[Any], Any] | None = None) -> None:
        self.targets, self.collate = targets, collate

    def __call__(self, samples: Any) -> tuple[tuple[Any], Tensor]:
        """Collate, and find the labels."""
        batch = samples if self.collate is None else self.collate(samples)
        return (batch,), labels_of(batch, self.targets)


class WholeBatches:
    """`WholeBatch` of each of some batches.

    Args:
        batches: any iterable of them.
        targets: where the labels are.
    """

    def __init__(self, batches: Iterable[Any], targets: Targets) -> None:
        self.batches, self.whole = batches, WholeBatch(targets)

    def __iter__(self) -> Iterator[tuple[tuple[Any], Tensor]]:
        return map(self.whole, self.batches)


def with_labels(batches: Any, targets: Targets) -> Any:
    """Held-out batches as a calibrator takes them; a loader stays one, so that its samples can be reordered."""
    if isinstance(batches, DataLoader) and type(batches).__iter__ is DataLoader.__iter__:
        loader = copy.copy(batches)
        loader.collate_fn, loader._iterator = WholeBatch(targets, batches.collate_fn), None
        return loader
    if not isinstance(batches, Iterable) or isinstance(batches, (Iterator, str)):
        raise InvalidTypeError(
            "`meta` must be a DataLoader, or another iterable of batches that can be gone through again and again, got "
            f"{type(batches).__name__}."
        )
    return WholeBatches(batches, targets)
