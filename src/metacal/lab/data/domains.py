"""Domains: training batches of one domain each, meta batches of another one, and test sets under shift.

A domain is a corruption of images with its severity (`Corrupting`), or one of the places that samples come from, as the
data says (`DomainBatches`). Which one a batch is of is a function of seed, epoch and batch number; a meta batch also
looks at the training batch in progress, whose domain it must not have. So nothing needs to be kept to resume.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from metacal.errors import InvalidValueError
from metacal.lab.data.batches import Batches, Transform
from metacal.lab.data.corruptions import check_severity, corrupt, find_corruption
from metacal.lab.data.dataset import Dataset, Examples
from metacal.lab.data.files import data_folder
from metacal.lab.data.sources.cifar_c import corrupted_examples, open_arrays
from metacal.seeding import generator, mixed

CHOICE, NOISE, HELD_OUT, ORDER = 11, 12, 13, 15
"""Set the random numbers of this module apart from those of others with the same seed."""
Corrupted = tuple[str, int]
REAL, GENERATED, OWN = "real", "generated", "the data's own"


@dataclass
class Turn:
    """Whose turn it is: the domain of the training batch in progress, a corruption with its severity or a number."""

    current: Any = None


class Corrupting:
    """A transform that corrupts each batch by one of some corruptions, then does what comes ``then``.

    Training and meta batches share a ``turn``. Meta batches have ``follows=True``: never the corruption whose turn it
    is; if there is no other, another severity.
    """

    def __init__(
        self, domains: Sequence[Corrupted], then: Transform | None, *, seed: int, turn: Turn, follows: bool = False
    ) -> None:
        self.domains, self.then, self.seed, self.turn, self.follows = tuple(domains), then, seed, turn, follows

    def choose(self, epoch: int, batch: int) -> Corrupted:
        """The domain of a batch."""
        listed = self.domains
        if self.follows and self.turn.current is not None:
            others = tuple(domain for domain in listed if domain != self.turn.current)
            listed = tuple(domain for domain in others if domain[0] != self.turn.current[0]) or others or listed
        return listed[mixed(CHOICE, self.seed, int(self.follows), epoch, batch) % len(listed)]

    def __call__(self, inputs: Tensor, *, epoch: int, samples: Tensor, batch: int) -> Tensor:
        """Images as this batch's domain shows them, then as the network gets them."""
        name, severity = self.choose(epoch, batch)
        if not self.follows:
            self.turn.current = (name, severity)
        seed = mixed(NOISE, self.seed, int(self.follows), epoch)
        shown = corrupt(inputs, name, severity, seed=seed, samples=samples, validate=False)
        return shown if self.then is None else self.then(shown, epoch=epoch, samples=samples, batch=batch)


class DomainBatches(Batches):
    """Batches of one domain each: an epoch goes through every sample once, in batches whose domains come in turns.

    Training and meta batches share a ``turn``. Meta batches have ``follows=True``: each is drawn from a domain whose
    turn it is not, unless there is no other.
    """

    def __init__(
        self, examples: Examples, batch_size: int, *, turn: Turn, follows: bool = False, **options: Any
    ) -> None:
        super().__init__(examples, batch_size, **options)
        if examples.domains is None:
            raise InvalidValueError("`examples` must know the domains of their samples, got some that do not.")
        self.turn, self.follows = turn, follows
        domains = examples.domains.cpu()
        self._rows: dict[int, Tensor] = {
            int(number): (domains == number).nonzero().view(-1) for number in torch.unique(domains)
        }
        self._planned: tuple[int, list[tuple[int, Tensor]]] = (-1, [])
        sizes = [len(part) for rows in self._rows.values() for part in self._cut(rows)]
        self._batches = len(sizes)
        if min(sizes) < self.world_size:
            raise InvalidValueError(
                f"`world_size` must be at most {min(sizes)}, the size of the smallest batch of one domain, got "
                f"{self.world_size}; another `batch_size` leaves no small batch."
            )

    def size(self, number: int, batch: int) -> int:
        """Samples in a batch of an epoch, over all processes."""
        return len(self._epoch_plan(number)[batch][1])

    def _plan(self, number: int) -> Callable[[int], Tensor]:
        device = self.examples.inputs.device
        if self.follows:
            return lambda batch: self._draw(number, batch).to(device)
        plan = self._epoch_plan(number)

        def take(batch: int) -> Tensor:
            self.turn.current, rows = plan[batch]
            return rows.to(device)

        return take

    def _epoch_plan(self, number: int) -> list[tuple[int, Tensor]]:
        """Domain and samples of every batch of an epoch."""
        if self._planned[0] != number:
            random = generator(ORDER, self.seed, number)
            batches = [
                (domain, rows)
                for domain, every in self._rows.items()
                for rows in self._cut(every[torch.randperm(len(every), generator=random)])
            ]
            order = torch.randperm(len(batches), generator=random).tolist()
            self._planned = (number, [batches[place] for place in order])
        return self._planned[1]

    def _cut(self, rows: Tensor) -> list[Tensor]:
        """Rows in batches; a single one that is left over joins the batch before, as in `Batches`."""
        parts = list(torch.split(rows, self.batch_size))
        if len(parts) > 1 and len(parts[-1]) == 1:
            parts[-2:] = [torch.cat(parts[-2:])]
        return parts

    def _draw(self, number: int, batch: int) -> Tensor:
        """Samples of one domain, other than the one whose turn it is."""
        listed = [domain for domain in self._rows if domain != self.turn.current] or list(self._rows)
        random = generator(ORDER, self.seed, number, batch)
        rows = self._rows[listed[int(torch.randint(len(listed), (1,), generator=random))]]
        return rows[torch.randperm(len(rows), generator=random)[: self.batch_size]]


def corrupted_mixture(examples: Examples, domains: Sequence[Corrupted], seed: int) -> Examples:
    """Examples dealt out evenly to some domains, each corrupted by its own: what a checkpoint is chosen on."""
    order = torch.randperm(len(examples), generator=generator(HELD_OUT, seed))
    inputs = examples.inputs.clone()
    for number, (name, severity) in enumerate(domains):
        rows = order[number :: len(domains)].sort().values.to(inputs.device)
        if len(rows):
            inputs[rows] = corrupt(inputs[rows], name, severity, seed=mixed(HELD_OUT, seed), samples=rows)
    return replace(examples, inputs=inputs)


def by_domain(dataset: Dataset, train: Sequence[str], test: Sequence[str]) -> Dataset:
    """A dataset whose training and test samples are those of some of its domains, wherever they were before."""
    names = dataset.domain_names
    if names is None:
        raise InvalidValueError(
            f"`domains` must be corruptions for {dataset.name}, whose samples do not say where they come from; an .npz "
            "file says it by an array `domains`, a folder by <domain>/<class>/ and dataset_options.domains=true."
        )
    unknown = [name for name in (*train, *test) if name not in names]
    if unknown:
        raise InvalidValueError(
            f"`domains` must be among those of {dataset.name}: {', '.join(names)}; got {', '.join(unknown)}."
        )
    parts, fields = (dataset.train, dataset.test), ("inputs", "targets", "domains")
    everything = Examples(*(torch.cat([getattr(part, field) for part in parts]) for field in fields))
    chosen = {}
    for part, wanted in (("train", train), ("test", test)):
        chosen[part] = _of_domains(everything, [names.index(name) for name in wanted])
        if not len(chosen[part]):
            raise InvalidValueError(f"`domains.{part}` must have samples, got none of {', '.join(wanted)}.")
    return replace(dataset, train=chosen["train"], test=chosen["test"])


def _of_domains(examples: Examples, numbers: Sequence[int]) -> Examples:
    assert examples.domains is not None
    wanted = torch.tensor(numbers, device=examples.domains.device)
    return examples.select(torch.isin(examples.domains, wanted).nonzero().view(-1))


@dataclass(frozen=True, eq=False)
class ShiftedSets:
    """Test sets, one for each domain, read or made when they are asked for; where they come from is ``source``."""

    names: tuple[str, ...]
    source: str
    readers: tuple[Callable[[], Examples], ...]

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Examples]:
        return (read() for read in self.readers)


def shifted_sets(
    dataset: Dataset, domains: Sequence[Corrupted | str], *, folder: str | Path | None = None
) -> ShiftedSets:
    """The test images of a dataset under each of some corruptions with severities, or of its own domains.

    They are generated, unless the published arrays are in the data folder.

    Examples:
        >>> from metacal.lab.data import load_dataset
        >>> sets = shifted_sets(load_dataset("digits"), [("fog", 1), ("snow", 5)])
        >>> sets.names, sets.source, [len(examples) for examples in sets]
        (('fog:1', 'snow:5'), 'generated', [359, 359])
    """
    own = [domain for domain in domains if isinstance(domain, str)]
    if own:
        numbers = [(dataset.domain_names or ()).index(name) for name in own]
        return ShiftedSets(tuple(own), OWN, tuple(partial(_of_domains, dataset.test, [each]) for each in numbers))
    pairs = [domain for domain in domains if not isinstance(domain, str)]
    for name, severity in pairs:  # before the first is asked for
        find_corruption(name)
        check_severity(severity)
    arrays = open_arrays(data_folder(folder), dataset.name)
    names = tuple(f"{name}:{severity}" for name, severity in pairs)
    if arrays is not None:
        return ShiftedSets(names, REAL, tuple(partial(arrays.read, *pair) for pair in pairs))
    return ShiftedSets(names, GENERATED, tuple(partial(corrupted_examples, dataset.test, *pair) for pair in pairs))
