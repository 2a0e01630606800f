"""Test sets under shift: the published arrays where they are there, the same corruptions generated otherwise."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from metacal.lab.data.dataset import Dataset, Examples
from metacal.lab.data.domains import Corrupted, check_corruptions, corrupted_examples, each_domain
from metacal.lab.data.folder import data_folder
from metacal.lab.data.sources.cifar_c import PublishedArrays, open_arrays

REAL, GENERATED, OWN = "real", "generated", "the data's own"


@dataclass(frozen=True, eq=False)
class ShiftedSets:
    """Test sets, one per domain.

    Attributes:
        names: of the domains.
        source: ``real`` for published arrays, ``generated`` for corruptions made here.
    """

    names: tuple[str, ...]
    source: str
    _dataset: Dataset
    _domains: tuple[Corrupted | str, ...]
    _arrays: PublishedArrays | None = None

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Examples]:
        for domain in self._domains:
            if isinstance(domain, str):
                yield from each_domain(self._dataset.test, self._dataset.domain_names or (), (domain,))
            elif self._arrays is not None:
                yield self._arrays.read(*domain)
            else:
                yield corrupted_examples(self._dataset.test, domain)


def shifted_sets(
    dataset: Dataset, domains: Sequence[Corrupted | str], *, folder: str | Path | None = None
) -> ShiftedSets:
    """The test images of a dataset as each of some domains shows them.

    Args:
        dataset: its test examples are corrupted, unless the arrays are published and in the data folder.
        domains: corruptions with severities, or names of the data's own domains.
        folder: the data folder.

    Examples:
        >>> from metacal.lab.data import load_dataset
        >>> sets = shifted_sets(load_dataset("digits"), [("fog", 1), ("snow", 5)])
        >>> sets.names, sets.source, [len(examples) for examples in sets]
        (('fog:1', 'snow:5'), 'generated', [359, 359])
    """
    if any(isinstance(domain, str) for domain in domains):
        return ShiftedSets(tuple(map(str, domains)), OWN, dataset, tuple(domains))
    pairs = [domain for domain in domains if not isinstance(domain, str)]
    check_corruptions(pairs)
    arrays = open_arrays(data_folder(folder), dataset.name)
    names = tuple(f"{name}:{severity}" for name, severity in pairs)
    return ShiftedSets(names, GENERATED if arrays is None else REAL, dataset, tuple(pairs), arrays)
