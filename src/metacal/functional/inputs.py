"""Converts logits or probs, and targets, into one checked, flat form that every measure reads in chunks.

The rule for shapes, the same everywhere:

* scores ``(N, K, ...)`` with targets ``(N, ...)``: one label out of K classes ("multiclass");
* scores and targets both ``(N,)`` or ``(N, 1, ...)``: yes/no events, that is a binary model. A score is then the
  probability (or the one logit) of "yes";
* with ``multilabel=True``, scores and targets both ``(N, L, ...)``: L kinds of such events.

Nothing is guessed from values: ``logits=`` or ``probs=`` says what the scores are, and ``multilabel=True`` that columns
of integers are labels of their own rather than classes, one of which is 1.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from typing_extensions import Required, TypedDict

from metacal.errors import InvalidValueError, warn
from metacal.functional.arguments import check_flag, check_float_tensor, check_ignore_index, check_labels

CHUNK_ELEMENTS = 2**21
"""Scores handled at once: 8 MB of float32, small enough to stay in cache between two passes over them."""

WIDE = 64
"""Classes from which on a CPU sums rows faster by a reduction than by a product with a vector of ones."""


class ScoreArguments(TypedDict, total=False):
    """The arguments of every measure; `metacal.functional.expected_calibration_error` explains each."""

    logits: Tensor | None
    probs: Tensor | None
    targets: Required[Tensor]
    multilabel: bool
    ignore_index: int | None
    validate: bool


@dataclass(frozen=True)
class Inputs:
    """Checked scores and targets, flattened to rows.

    Attributes:
        scores: ``(n, K)`` for multiclass, ``(n, L)`` for events (``L = 1`` for a binary model).
        targets: int64, ``(n,)`` for multiclass, ``(n, L)`` for events.
        is_logits: whether the scores are logits.
        keep: ``(n, L)`` mask of the events that count, or None when all do.
        validate: whether values are checked as the chunks are read.
        kept: mask of the caller's multiclass rows that are not ignored, or None when all count; for messages.
    """

    scores: Tensor
    targets: Tensor
    is_logits: bool
    keep: Tensor | None
    validate: bool
    kept: Tensor | None = None

    @property
    def is_events(self) -> bool:
        """Whether the rows are independent yes/no events rather than one label out of K."""
        return self.targets.ndim == 2

    @property
    def num_classes(self) -> int:
        """K, or the number of labels L of a multilabel model; taken from the array, never from the targets."""
        return self.scores.shape[1]

    @property
    def name(self) -> str:
        """The keyword of the scores, for messages."""
        return "logits" if self.is_logits else "probs"

    def chunks(self, temporaries: int = 1) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield ``(scores, targets)`` in blocks of rows, in float32 or wider, with values checked if requested.

        ``temporaries`` is how many times the size of a block the caller needs beside it; blocks are so much smaller.
        """
        rows = max(1, CHUNK_ELEMENTS // temporaries // self.num_classes)
        tolerance = row_sum_tolerance(self.scores.dtype)
        # One row may look like anything; two that do are no accident.
        look_like_probs = self.validate and self.is_logits and not self.is_events and len(self.scores) > 1
        for first_row in range(0, len(self.scores), rows):
            scores = at_least_float32(self.scores[first_row : first_row + rows])
            targets = self.targets[first_row : first_row + rows]
            if self.validate:
                self._check_targets(targets)
                low, high = self._check_scores(scores, tolerance, first_row)
                # Numbers that the check has waited for; rows are added up only if all of them lie in [0, 1].
                look_like_probs = look_like_probs and low >= 0.0 and high <= 1.0 and _sum_to_one(scores, tolerance)
            yield scores, targets
        if look_like_probs:
            warn(
                f"`logits` look like probabilities: all {len(self.scores)} rows lie in [0, 1] and sum to 1. If that is "
                'what they are, pass them as `probs` (a metric: inputs="probs").'
            )

    def check_values(self) -> None:
        """Check all chunks by reading them."""
        for _ in self.chunks():
            pass

    def check_targets(self) -> None:
        """Raise if values are to be checked and a target is out of range."""
        if self.validate:
            self._check_targets(self.targets)

    def _check_targets(self, targets: Tensor) -> None:
        if not targets.numel():
            return
        highest = 1 if self.is_events else self.num_classes - 1
        low, high = torch.stack(torch.aminmax(targets)).tolist()
        if low < 0 or high > highest:
            got = low if low < 0 else high
            raise InvalidValueError(f"`targets` must lie in 0..{highest}, got {got}; `ignore_index` leaves labels out.")

    def _check_scores(self, scores: Tensor, tolerance: float, first_row: int) -> tuple[float, float]:
        """Return the `score_range` of a chunk; raise if there is none."""
        ends = score_range(scores, tolerance, is_logits=self.is_logits, is_events=self.is_events)
        if ends is not None:
            return ends
        bad = first_bad_score(scores, tolerance, is_logits=self.is_logits, is_events=self.is_events)
        row = first_row + bad.row if self.kept is None else int(self.kept.nonzero()[first_row + bad.row])
        if self.is_logits:
            raise InvalidValueError(f"`logits` must be finite, got {bad.value} in row {row}, column {bad.column}.")
        fix = 'if these are raw scores, pass them as `logits` (a metric: inputs="logits")'
        if bad.column is None:
            rule = f"have rows that sum to 1 (within {tolerance:g})"
            raise InvalidValueError(f"`probs` must {rule}, got {bad.value:.6g} in row {row}; {fix}.")
        raise InvalidValueError(
            f"`probs` must lie in [0, 1], got {bad.value:.7g} in row {row}, column {bad.column}; {fix}."
        )

    def to_probs(self, scores: Tensor) -> Tensor:
        """Convert a chunk of scores to probabilities."""
        if not self.is_logits:
            return scores
        # Not torch.sigmoid: its vector and its scalar code differ by a rounding, so values would depend on the batches.
        return 1.0 / (1.0 + torch.exp(-scores)) if self.is_events else torch.softmax(scores, dim=1)

    def events(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield flat ``(scores, outcomes, labels)`` of the events that count; a label is a column number."""
        columns = torch.arange(self.num_classes, device=self.targets.device)
        first_row = 0
        for scores, targets in self.chunks():
            chunk = (scores, targets, columns.expand_as(targets))
            keep = None if self.keep is None else self.keep[first_row : first_row + len(targets)]
            first_row += len(targets)
            scores, targets, labels = (each.reshape(-1) if keep is None else each[keep] for each in chunk)
            yield scores, targets, labels


def read_inputs(
    *,
    logits: Tensor | None = None,
    probs: Tensor | None = None,
    targets: Tensor,
    multilabel: bool = False,
    classes_only: bool = False,
    ignore_index: int | None = None,
    validate: bool = True,
    allow_empty: bool = False,
) -> Inputs:
    """Check types and shapes now and values later (when chunks are read), and flatten to rows.

    `metacal.functional.expected_calibration_error` explains the arguments. ``classes_only`` refuses yes/no events, of
    one label too; ``allow_empty`` accepts zero samples (a streaming metric may see an empty batch).
    """
    if (logits is None) == (probs is None):
        given = "neither" if logits is None else "both"
        raise InvalidValueError(f"Exactly one of `logits` and `probs` must be given, got {given}.")
    scores, name = (probs, "probs") if logits is None else (logits, "logits")
    assert scores is not None
    check_float_tensor(name, scores)
    check_labels("targets", targets)
    if scores.device != targets.device:
        raise InvalidValueError(
            f"`{name}` and `targets` must be on one device, got {scores.device} and {targets.device}."
        )
    check_flag("multilabel", multilabel)
    check_ignore_index(ignore_index)
    complaint = _shape_complaint(scores, name, targets, multilabel, classes_only)
    if complaint:
        raise InvalidValueError(complaint)
    is_events = scores.shape == targets.shape
    scores, targets = _as_columns(scores.detach()), targets.detach().to(torch.int64)
    targets = _as_columns(targets) if is_events else targets.reshape(-1)
    counts = None if ignore_index is None else targets != ignore_index
    keep = kept = None
    if counts is not None and is_events:
        keep = counts  # what is ignored is never read: any valid label and score will do
        scores, targets = scores.masked_fill(~keep, 0.5), targets.masked_fill(~keep, 0)
    elif counts is not None:
        kept = counts
        scores, targets = scores[kept], targets[kept]
    if not allow_empty and (not len(scores) or (keep is not None and not bool(keep.any()))):
        raise InvalidValueError("`targets` must hold at least one sample that is not ignored, got none.")
    return Inputs(scores, targets, is_logits=name == "logits", keep=keep, validate=validate, kept=kept)


def _shape_complaint(scores: Tensor, name: str, targets: Tensor, multilabel: bool, classes_only: bool) -> str | None:
    """Explain why two shapes fit neither classes nor yes/no events."""
    got = f"got {tuple(scores.shape)} with targets {tuple(targets.shape)}"
    columns = scores.shape[1] if scores.ndim > 1 else 1
    if scores.shape == targets.shape and scores.ndim > 0:
        if not classes_only and (columns == 1 or (multilabel and columns > 1)):
            return None
        if columns == 0:
            return f"`{name}` must have at least one label in dimension 1, {got}."
        if columns > 1:
            other = ", or `multilabel=True` (a metric: `num_labels`) if each column is yes or no"
            return (
                f"`targets` must be class numbers (N, ...) for `{name}` (N, K, ...), {got}; pass `targets.argmax(1)` "
                f"if the rows are one-hot{'' if classes_only else other}."
            )
    has_classes = scores.ndim > 1 and scores.shape[:1] + scores.shape[2:] == targets.shape
    if has_classes and columns > 1 and not multilabel:
        return None
    if multilabel:
        return f"`{name}` must have the shape (N, L, ...) of `targets` for a multilabel model, {got}."
    if has_classes:
        return (
            f"`{name}` must have at least 2 classes in dimension 1, got {columns}; "
            "for a binary model with one score pass it with the shape of `targets`."
        )
    binary = "" if classes_only else ", or that of `targets` for a binary model"
    return f"`{name}` must have shape (N, K, ...) for targets (N, ...){binary}, {got}."


def _as_columns(values: Tensor) -> Tensor:
    """``(N,)`` -> ``(N, 1)``; ``(N, K, d1, ...)`` -> ``(N * d1 * ..., K)``, contiguous."""
    rows = values.reshape(-1, 1) if values.ndim == 1 else values.movedim(1, -1).reshape(-1, values.shape[1])
    return rows.contiguous()


def row_sum_tolerance(dtype: torch.dtype) -> float:
    """Allowed deviation of a row sum from 1, by dtype: rounding, or digits of a printed file."""
    return 1e-2 if dtype in (torch.float16, torch.bfloat16) else 1e-3


def as_rows(tensor: Tensor) -> Tensor:
    """Flatten all dimensions before the last: ``(n, T, K)`` becomes n T rows of K."""
    return tensor.flatten(0, -2) if tensor.ndim > 2 else tensor


def class_logits(logits: Tensor) -> Tensor:
    """Logits ``(n, K)`` in float32 or wider; one logit per sample, ``(n,)`` or ``(n, 1)``, becomes the pair (0, z).

    The differentiable measures are written for classes; a binary model with one logit is the two-class
    model whose first logit is 0. Only shape and dtype are checked, so nothing waits for the device.
    """
    check_float_tensor("logits", logits)
    if logits.ndim not in (1, 2) or (logits.ndim == 2 and logits.shape[1] == 0):
        raise InvalidValueError(f"`logits` must have shape (n, K), (n, 1) or (n,), got {tuple(logits.shape)}.")
    wide = at_least_float32(logits)
    if wide.ndim == 1 or wide.shape[1] == 1:
        positive = wide.reshape(-1)
        return torch.stack((torch.zeros_like(positive), positive), dim=1)
    return wide


def class_logits_and_targets(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """`class_logits` together with int64 targets ``(n,)`` that fit them; shapes and dtypes are checked, values not."""
    wide = class_logits(logits)
    check_labels("targets", targets)
    flat = targets.reshape(-1) if targets.ndim == 2 and targets.shape[1] == 1 else targets
    if flat.shape != wide.shape[:1]:
        fitting = f"({wide.shape[0]},) to fit logits {tuple(logits.shape)}"
        raise InvalidValueError(f"`targets` must have shape {fitting}, got {tuple(targets.shape)}.")
    if not len(flat):
        raise InvalidValueError("`targets` must hold at least one sample, got none.")
    return wide, flat.to(torch.int64)


def at_least_float32(values: Tensor) -> Tensor:
    """Values in float32 or float64: narrower dtypes are widened."""
    return values if values.dtype in (torch.float32, torch.float64) else values.float()


def log_probs(probs: Tensor) -> Tensor:
    """Logarithms of probabilities in float32 or wider; 0 counts as the smallest float32 in every dtype."""
    return at_least_float32(probs).clamp(min=torch.finfo(torch.float32).tiny).log_()


def logits_against(logits: Tensor, outcomes: Tensor) -> Tensor:
    """Logits of the outcome that did not occur: negated where the outcome is "yes" (1)."""
    return outcomes.to(logits.dtype).mul_(-2.0).add_(1.0).mul_(logits)  # several times as fast as `torch.where`


class BadScore(NamedTuple):
    """The first row that breaks a rule: the column and value, or the sum of the row."""

    row: int
    column: int | None
    value: float


def score_range(
    scores: Tensor, tolerance: float, *, is_logits: bool, is_events: bool = False
) -> tuple[float, float] | None:
    """Smallest and largest score of ``(n, K)``; None if a rule is broken, see `first_bad_score`.

    Logits must be finite, probabilities lie in [0, 1] and, unless they are of independent events, sum to 1.
    """
    if not scores.numel():
        return 0.0, 0.0
    if is_logits or is_events:
        low, high = _least_and_largest(scores)
        fits = low > -torch.inf and high < torch.inf if is_logits else low >= 0.0 and high <= 1.0 + tolerance
        return (low, high) if fits else None
    # With no negative entry and a sum of 1, no entry can be above 1 or infinite; a NaN makes the sum NaN.
    has_sign = int(float_bits(scores).min()) < 0  # below 0, or the zero with a minus
    fits = not (has_sign and float(scores.min()) < 0.0) and _sum_to_one(scores, tolerance)
    return (0.0, 1.0) if fits else None


def first_bad_score(scores: Tensor, tolerance: float, *, is_logits: bool, is_events: bool = False) -> BadScore:
    """Find the first row of scores ``(n, K)`` that breaks a rule."""
    fits = torch.isfinite(scores) if is_logits else (scores >= 0.0) & (scores <= 1.0 + tolerance)
    sums = scores.new_ones(len(scores)) if is_logits or is_events else _row_sums(scores)
    row = int((~fits.all(dim=1) | ~((sums - 1.0).abs() <= tolerance)).nonzero()[0])
    if bool(fits[row].all()):
        return BadScore(row, None, float(sums[row]))
    column = int((~fits[row]).nonzero()[0])
    return BadScore(row, column, float(scores[row, column]))


def float_bits(values: Tensor) -> Tensor:
    """View floats as integers of the same bits: non-negative ones keep their order and compare faster."""
    return values.view(torch.int64 if values.dtype == torch.float64 else torch.int32)


def _least_and_largest(values: Tensor) -> tuple[float, float]:
    low, high = torch.stack(torch.aminmax(values)).tolist()  # one wait for the device
    return low, high


def _sum_to_one(scores: Tensor, tolerance: float) -> bool:
    low, high = _least_and_largest(_row_sums(scores))
    return abs(low - 1.0) <= tolerance and abs(high - 1.0) <= tolerance


def _row_sums(scores: Tensor) -> Tensor:
    if scores.shape[1] >= WIDE:
        return scores.sum(dim=1)
    with torch.autocast(scores.device.type, enabled=False):  # a product in bfloat16 would be off by 0.4 %
        return scores @ scores.new_ones(scores.shape[1])
