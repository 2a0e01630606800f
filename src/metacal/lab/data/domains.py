"""Domains (corruptions with a severity): training batches of one domain each, and test sets under shift.

The domain of a batch is a function of seed, epoch and batch number; a meta batch also avoids the domain of the current
training batch. A resumed run therefore needs no state.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from metacal.lab.data.batches import Transform
from metacal.lab.data.corruptions import check_severity, corrupt, find_corruption
from metacal.lab.data.dataset import Dataset, Examples
from metacal.lab.data.files import data_folder
from metacal.lab.data.sources.cifar_c import corrupted_examples, find_published, read_published
from metacal.seeding import generator, mixed

CHOICE, NOISE, HELD_OUT = 11, 12, 13
"""Stream numbers: they separate this module's random numbers from others with the same seed."""
Corrupted = tuple[str, int]


class Corrupting:
    """A transform that applies one of ``domains`` to each batch, and then the transform ``then``.

    ``unlike`` is given for meta batches: the transform of the training batches. A meta batch never has the corruption
    of the current training batch; if there is only one corruption, it has another severity.
    """

    def __init__(
        self,
        domains: Sequence[Corrupted],
        then: Transform | None,
        *,
        seed: int,
        unlike: "Corrupting | None" = None,
    ) -> None:
        self.domains, self.then, self.seed, self.unlike = tuple(domains), then, seed, unlike
        self.current: Corrupted | None = None

    def choose(self, epoch: int, batch: int) -> Corrupted:
        """Return the domain of a batch."""
        listed, avoided = self.domains, None if self.unlike is None else self.unlike.current
        if avoided is not None:
            others = tuple(domain for domain in listed if domain != avoided)
            listed = tuple(domain for domain in others if domain[0] != avoided[0]) or others or listed
        return listed[mixed(CHOICE, self.seed, int(self.unlike is not None), epoch, batch) % len(listed)]

    def __call__(self, inputs: Tensor, *, epoch: int, samples: Tensor, batch: int) -> Tensor:
        """Corrupt the images, then apply the next transform."""
        self.current = name, severity = self.choose(epoch, batch)
        seed = mixed(NOISE, self.seed, int(self.unlike is not None), epoch)
        shown = corrupt(inputs, name, severity, seed=seed, samples=samples, validate=False)
        return shown if self.then is None else self.then(shown, epoch=epoch, samples=samples, batch=batch)


def corrupted_mixture(examples: Examples, domains: Sequence[Corrupted], seed: int) -> Examples:
    """Spread examples evenly over domains and corrupt them; used to select the checkpoint."""
    order = torch.randperm(len(examples), generator=generator(HELD_OUT, seed))
    inputs = examples.inputs.clone()
    for number, (name, severity) in enumerate(domains):
        rows = order[number :: len(domains)].sort().values.to(inputs.device)
        if len(rows):
            inputs[rows] = corrupt(inputs[rows], name, severity, seed=mixed(HELD_OUT, seed), samples=rows)
    return replace(examples, inputs=inputs)


@dataclass(frozen=True, eq=False)
class ShiftedSets:
    """One test set per domain, read or generated on request; ``source`` says which."""

    names: tuple[str, ...]
    source: str
    readers: tuple[Callable[[], Examples], ...]

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Examples]:
        return (read() for read in self.readers)


def shifted_sets(dataset: Dataset, domains: Sequence[Corrupted], *, folder: str | Path | None = None) -> ShiftedSets:
    """Test images of a dataset under corruptions: the published arrays if the data folder has them, else generated.

    Examples:
        >>> from metacal.lab.data import load_dataset
        >>> sets = shifted_sets(load_dataset("digits"), [("fog", 1), ("snow", 5)])
        >>> sets.names, sets.source, [len(examples) for examples in sets]
        (('fog:1', 'snow:5'), 'generated', [359, 359])
    """
    for name, severity in domains:  # all are checked before the first is read
        find_corruption(name)
        check_severity(severity)
    published = find_published(data_folder(folder), dataset.name)
    read = partial(read_published, published) if published else partial(corrupted_examples, dataset.test)
    return ShiftedSets(
        tuple(f"{name}:{severity}" for name, severity in domains),
        "real" if published else "generated",
        tuple(partial(read, *domain) for domain in domains),
    )
