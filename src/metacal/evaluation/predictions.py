"""`Predictions`: scores and targets of a set of samples, in memory or sampled from a file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metacal.errors import InvalidValueError
from metacal.evaluation.groups import GroupLabels, label_groups
from metacal.evaluation.prediction_file import Batch, PredictionFile
from metacal.evaluation.tables import Column, join_columns
from metacal.functional.boundary import to_tensor
from metacal.functional.inputs import Inputs, at_least_float32, log_probs, read_inputs

SAMPLE = 100_000
SAMPLE_ELEMENTS = 2**26
"""Scores that a sample of rows may hold: fewer rows are kept of very many classes."""

EXAMPLE = "wideresnet-16-4-cifar-10.npz"


@dataclass(frozen=True)
class Predictions:
    """Scores of n samples over K classes with their targets; values are checked when it is made.

    Attributes:
        scores: ``(n, K)``, logits or probabilities, any float dtype.
        is_logits: which of the two they are.
        targets: int64 ``(n,)``.
        class_names: K names.
        name: what to call these predictions in tables and figures.
        total: rows that these are a random sample of; None if they are all there are.
        row_numbers: int64 ``(n,)``, which of these rows they are, counted from 0; None if they are all there are.
        groups: which group each row is in, where a column was named; None if none was.

    Examples:
        >>> import torch
        >>> said = Predictions.from_probs(torch.tensor([[0.9, 0.1], [0.4, 0.6]]), torch.tensor([0, 0]))
        >>> said.num_classes, said.class_names
        (2, ('0', '1'))
    """

    scores: Tensor
    is_logits: bool
    targets: Tensor
    class_names: tuple[str, ...]
    name: str = "predictions"
    total: int | None = None
    row_numbers: Tensor | None = None
    groups: GroupLabels | None = None

    @classmethod
    def from_logits(
        cls, logits: Tensor, targets: Tensor, class_names: Sequence[str] | None = None, name: str = "predictions"
    ) -> "Predictions":
        """Predictions from raw scores; arrays and lists are taken too, as in `from_probs`."""
        return cls._checked(to_tensor("logits", logits), targets, class_names, name, is_logits=True)

    @classmethod
    def from_probs(
        cls, probs: Tensor, targets: Tensor, class_names: Sequence[str] | None = None, name: str = "predictions"
    ) -> "Predictions":
        """Predictions from probabilities ``(n, K)``; ``(n,)`` is a binary model's probability of class 1."""
        probs = to_tensor("probs", probs)
        if probs.ndim == 1:
            probs = torch.stack((1.0 - probs, probs), dim=1)
        return cls._checked(probs, targets, class_names, name, is_logits=False)

    @classmethod
    def _checked(
        cls, scores: Tensor, targets: Tensor, class_names: Sequence[str] | None, name: str, *, is_logits: bool
    ) -> "Predictions":
        logits, probs = (scores, None) if is_logits else (None, scores)
        inputs = read_inputs(logits=logits, probs=probs, targets=to_tensor("targets", targets), classes_only=True)
        for _ in inputs.chunks():  # checks values as it goes
            pass
        names = tuple(str(number) for number in range(inputs.num_classes)) if class_names is None else class_names
        if len(names) != inputs.num_classes:
            raise InvalidValueError(f"`class_names` must hold {inputs.num_classes} names, got {len(names)}.")
        return cls(inputs.scores, is_logits, inputs.targets, tuple(names), name)

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def num_classes(self) -> int:
        """K."""
        return self.scores.shape[1]

    @property
    def inputs(self) -> Inputs:
        """The predictions as `Inputs`; values were checked on construction."""
        return Inputs(self.scores, self.targets, self.is_logits, keep=None, validate=False)

    @property
    def predicted(self) -> Tensor:
        """int64 ``(n,)``: the first class with the highest score."""
        return self.scores.argmax(dim=1)

    @property
    def probs(self) -> Tensor:
        """Probabilities ``(n, K)`` in float32 or wider."""
        wide = at_least_float32(self.scores)
        return torch.softmax(wide, dim=1) if self.is_logits else wide

    @property
    def logits(self) -> Tensor:
        """Logits ``(n, K)`` in float32 or wider; see `log_probs` for those of probabilities."""
        return at_least_float32(self.scores) if self.is_logits else log_probs(self.scores)


class Reservoir:
    """Keeps a uniform random sample of at most ``capacity`` rows, in order; all of them if they fit.

    Every row gets a random number, and those with the lowest stay: the same seed and rows give the same sample, however
    the rows are batched. With ``places``, int64 ``(n,)``, where each row stands in another file, a row gets the number
    that it has there, and rows are put in that order: both files give the same sample.

    Examples:
        >>> import torch
        >>> reservoir = Reservoir(2, seed=0)
        >>> for first in (0, 3):
        ...     reservoir.add(torch.arange(first, first + 3.0).unsqueeze(1), torch.arange(first, first + 3))
        >>> reservoir.seen, len(reservoir.rows()[1])
        (6, 2)
    """

    def __init__(self, capacity: int, seed: int = 0, places: NDArray[np.int64] | None = None) -> None:
        self.capacity, self.seen = capacity, 0
        self._generator, self._places = np.random.default_rng(seed), places
        self._placed = None if places is None else self._generator.random(len(places))[places]
        self._by_class: list[Tensor] = []  # (K, m): scores of the rows held
        self._targets: list[Tensor] = []
        self._rows: list[NDArray[np.int64]] = []
        self._numbers: list[NDArray[np.float64]] = []
        self._bar = 1.0  # a row whose number is not below it is not among the lowest

    @property
    def row_numbers(self) -> Tensor:
        """int64 ``(m,)``: the row numbers, from 0, of `rows`."""
        self._shrink()
        return torch.from_numpy(self._rows[0])

    @property
    def is_complete(self) -> bool:
        """Whether all rows seen so far are kept."""
        return self.seen <= self.capacity

    def add(self, scores: Tensor, targets: Tensor) -> None:
        """Offer a batch of rows."""
        if self._placed is None:
            numbers = self._generator.random(len(targets))
        else:
            numbers = self._placed[self.seen : self.seen + len(targets)]
        below = np.flatnonzero(numbers < self._bar)
        chosen = torch.from_numpy(below)
        self._by_class.append(scores.t().index_select(1, chosen))  # columns mostly lie together in memory
        self._targets.append(targets[chosen])
        self._rows.append(below + self.seen)
        self._numbers.append(numbers[below])
        self.seen += len(targets)
        if sum(map(len, self._numbers)) >= 2 * self.capacity:
            self._shrink()

    def rows(self) -> tuple[Tensor, Tensor]:
        """Scores ``(m, K)`` and targets ``(m,)`` of the kept rows."""
        self._shrink()
        return self._by_class[0].t().contiguous(), self._targets[0]

    def _shrink(self) -> None:
        rows, numbers = np.concatenate(self._rows), np.concatenate(self._numbers)
        kept = np.arange(len(rows))
        if len(numbers) > self.capacity:
            self._bar = float(np.partition(numbers, self.capacity)[self.capacity])
            kept = np.flatnonzero(numbers < self._bar)
        if self._places is not None:
            kept = kept[np.argsort(self._places[rows[kept]], kind="stable")]
        chosen = torch.from_numpy(kept)
        self._by_class = [torch.cat(self._by_class, dim=1).index_select(1, chosen)]
        self._targets = [torch.cat(self._targets)[chosen]]
        self._rows, self._numbers = [rows[kept]], [numbers[kept]]


def read_predictions(
    path: str | Path,
    *,
    probs: str | None = None,
    logits: str | None = None,
    target: str | None = None,
    class_names: Sequence[str] | None = None,
    percent: bool = False,
) -> Predictions:
    r"""Read a file of predictions: CSV, Parquet, Arrow, NPZ, NPY, JSON (lines), tensors, or a language model's log.

    Args:
        path: the file.
        probs: columns or key of the probabilities: a name, several with commas, or a pattern (``"p_*"``).
        logits: the same for logits. With neither, columns are found by their names: ``prob_*``, ``p_*``,
            ``logit_*``, or one column ``probs`` or ``logits`` that holds lists; keys ``probs``, ``predictions``
            or ``logits`` of an NPZ.
        target: column or key of the target (or the file, of an NPY); by default ``target``, ``label``, ``y``,
            ``ground_truth``, ...
        class_names: the classes in the order of the scores, where the columns' names do not say.
        percent: whether the probabilities are percentages; rows of several classes that sum to 100 say so themselves.

    Raises:
        InvalidFileError: the file cannot be read as predictions; the message names the row or column and the fix.

    Examples:
        >>> import pathlib, tempfile
        >>> file = pathlib.Path(tempfile.mkdtemp(), "said.csv")
        >>> _ = file.write_text("p_cat,p_dog,label\n0.9,0.1,cat\n0.3,0.7,cat\n")
        >>> said = read_predictions(file)
        >>> said.class_names, said.targets.tolist(), said.name
        (('cat', 'dog'), [0, 0], 'said')
    """
    file = PredictionFile(path, probs=probs, logits=logits, target=target, class_names=class_names, percent=percent)
    return gather(file)


def sample_predictions(
    file: PredictionFile,
    sample: int = SAMPLE,
    seed: int = 0,
    *,
    places: NDArray[np.int64] | None = None,
    on_batch: Callable[[Batch, "Reservoir"], None] | None = None,
) -> Predictions:
    """Return a random sample of at most ``sample`` rows of an opened file; all if there are no more.

    Args:
        file: without targets, they are 0.
        sample: rows to keep; of very many classes, as many as fit in memory.
        seed: of the draw.
        places: int64 ``(n,)``: where each row stands in another file, whose order the rows are put in, see `Reservoir`.
        on_batch: called with each batch before it is added to the rows kept.
    """
    reservoir = Reservoir(max(1, min(sample, SAMPLE_ELEMENTS // file.num_classes)), seed, places)
    groups: list[Column] = []
    for batch in file.batches():
        if on_batch is not None:
            on_batch(batch, reservoir)
        targets = torch.zeros(len(batch.scores), dtype=torch.int64) if batch.targets is None else batch.targets
        reservoir.add(batch.scores, targets)
        groups += [] if batch.groups is None else [batch.groups]
    kept = _of_file(file, *reservoir.rows())
    if not reservoir.is_complete or places is not None:
        total = None if reservoir.is_complete else reservoir.seen
        kept = replace(kept, total=total, row_numbers=reservoir.row_numbers)
    if file.by is None:
        return kept
    return replace(kept, groups=label_groups(file.by, join_columns(groups)[reservoir.row_numbers.numpy()]))


def gather(file: PredictionFile) -> Predictions:
    """Read all rows of an opened file with targets."""
    batches = list(file.batches())
    scores = torch.cat([batch.scores for batch in batches]).contiguous()
    return _of_file(file, scores, torch.cat([batch.targets for batch in batches if batch.targets is not None]))


def _of_file(file: PredictionFile, scores: Tensor, targets: Tensor) -> Predictions:
    """Build predictions from rows that the file has checked."""
    return Predictions(scores, file.is_logits, targets, file.class_names, file.name)


def example_predictions() -> tuple[Tensor, Tensor]:
    """Test-set probabilities ``(10000, 10)`` of a WideResNet-16-4 on CIFAR-10, and the targets ``(10000,)``.

    Examples:
        >>> from metacal.functional import expected_calibration_error
        >>> probs, targets = example_predictions()
        >>> round(expected_calibration_error(probs=probs, targets=targets).item(), 4)
        0.0537
    """
    resource = files("metacal") / "assets" / EXAMPLE
    with resource.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return torch.from_numpy(arrays["predictions"]), torch.from_numpy(arrays["ground_truth"])
