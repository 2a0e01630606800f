"""The base of all metrics: how scores are read, and three kinds of state: bins, samples and means."""

import hashlib
import re
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from metacal.errors import InvalidTypeError, InvalidValueError, warn
from metacal.functional.arguments import check_choice, check_ignore_index, check_integer
from metacal.functional.binning import MOST_SAMPLES, BinStatistics, confidence_and_correctness, equal_width_edges
from metacal.functional.boundary import CallSignature, explain_methods, to_tensor
from metacal.functional.inputs import Inputs, read_inputs


class ScoreMetric(Metric):
    """A torchmetrics metric over ``update(scores, targets)``.

    Args:
        num_classes: K, for scores ``(N, K, ...)`` with targets ``(N, ...)``.
        num_labels: for binary (1) and multilabel models instead: scores and targets of one shape.
        inputs: what the scores are, ``"probs"`` or ``"logits"``; never guessed.
        ignore_index: targets with this value are left out.
        validate: check values at every update.
        kwargs: torchmetrics' own, such as ``dist_sync_on_step``.
    """

    is_differentiable = False
    higher_is_better = False
    full_state_update = False
    plot_lower_bound = 0.0

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        explain_methods(cls, "__init__", "update")

    def __init__(
        self,
        num_classes: int | None = None,
        *,
        num_labels: int | None = None,
        inputs: str = "probs",
        ignore_index: int | None = None,
        validate: bool = True,
        **kwargs: Any,
    ) -> None:
        try:
            super().__init__(**kwargs)
        except ValueError as error:
            names = re.findall(r"`(\w+)`", str(error)) if str(error).startswith("Unexpected keyword") else []
            if not names:
                raise
            own = CallSignature(type(self).__init__, type(self).__name__)
            raise InvalidTypeError(f"`{own.name}` {own.unknown(names)}; call it as {own.right_call()}.") from None
        if (num_classes is None) == (num_labels is None):
            given = "neither" if num_classes is None else "both"
            raise InvalidValueError(f"Exactly one of `num_classes` and `num_labels` must be given, got {given}.")
        for name, value, least in (("num_classes", num_classes, 2), ("num_labels", num_labels, 1)):
            if value is not None:
                check_integer(name, value, least)
        check_ignore_index(ignore_index)
        check_choice("inputs", inputs, ("probs", "logits"))
        # Plain integers, whatever came: what the metric is identified by is written out.
        self.num_classes, self.num_labels, self.ignore_index = (
            None if value is None else int(value) for value in (num_classes, num_labels, ignore_index)
        )
        self.inputs, self.validate = inputs, validate

    def read(self, scores: Tensor, targets: Tensor) -> Inputs:
        """Check the inputs of one batch, which may be empty or arrays; these move to the metric's device."""
        if not isinstance(scores, Tensor):
            scores = to_tensor(self.inputs, scores).to(self.device)
        if not isinstance(targets, Tensor):
            targets = to_tensor("targets", targets).to(self.device)
        batch = read_inputs(
            logits=scores if self.inputs == "logits" else None,
            probs=scores if self.inputs == "probs" else None,
            targets=targets,
            multilabel=self.num_classes is None,
            ignore_index=self.ignore_index,
            validate=self.validate,
            allow_empty=True,
        )
        expected = self.num_labels if self.num_classes is None else self.num_classes
        if batch.is_events != (self.num_classes is None) or batch.num_classes != expected:
            wanted = "(N, K, ...) with targets (N, ...)" if self.num_classes else "(N, L, ...), that of the targets,"
            name = "num_classes" if self.num_classes else "num_labels"
            raise InvalidValueError(
                f"`{self.inputs}` must have shape {wanted} for {name}={expected}, "
                f"got {tuple(scores.shape)} with targets {tuple(targets.shape)}."
            )
        return batch

    def add_identity(self, *what: object) -> None:
        """Add state that distinguishes metrics: a MetricCollection shares state between metrics that look alike.

        ``what`` is all that decides, besides the arguments known here, what an update adds to the state.
        """
        known = (*what, self.num_classes, self.num_labels, self.inputs, self.ignore_index)
        digest = hashlib.sha256(repr(known).encode()).digest()
        self.add_state("identity", torch.tensor(list(digest[:16])), dist_reduce_fx="max")

    def warn_if_none(self, samples: int) -> None:
        """Warn if a value is computed over no samples (it is then NaN)."""
        if not samples:
            warn(f"{type(self).__name__} was computed over no samples: its value is NaN.")


class BinMetric(ScoreMetric):
    """A `ScoreMetric` whose state is the integers of `BinStatistics`: they add up exactly over batches and ranks."""

    counts: Tensor
    correct_sums: Tensor
    confidence_units: Tensor

    def add_bin_state(self, *shape: int, of: str) -> None:
        """Add state ``(..., M)``; ``of`` names what is counted."""
        self.add_identity(of, tuple(map(int, shape)))
        for name in ("counts", "correct_sums", "confidence_units"):
            self.add_state(name, torch.zeros(shape, dtype=torch.int64), dist_reduce_fx="sum")

    def add_bins(self, statistics: BinStatistics) -> None:
        """Add a batch's statistics."""
        self.counts = self.counts + statistics.counts
        self.correct_sums = self.correct_sums + statistics.correct_sums
        self.confidence_units = self.confidence_units + statistics.confidence_units

    def bins(self) -> BinStatistics:
        """Statistics of all batches."""
        self.warn_if_none(int(self.counts.sum()))
        if int(self.counts.max()) > MOST_SAMPLES:
            raise InvalidValueError(
                f"A bin must hold at most {MOST_SAMPLES} samples for its sum to be exact, got {int(self.counts.max())}."
            )
        edges = equal_width_edges(self.counts.shape[-1], self.counts.device)
        return BinStatistics(self.counts, self.correct_sums, self.confidence_units, edges)


class SampleMetric(ScoreMetric):
    """A `ScoreMetric` whose state keeps every sample's confidence and correctness (5 bytes for float32 scores)."""

    confidences: list[Tensor]
    correct: list[Tensor]

    def add_sample_state(self) -> None:
        """Add lists of confidences and correctness."""
        self.add_identity("samples")
        self.add_state("confidences", [], dist_reduce_fx="cat")
        self.add_state("correct", [], dist_reduce_fx="cat")

    def update(self, scores: Tensor, targets: Tensor) -> None:
        """Add a batch."""
        confidences, correct = confidence_and_correctness(self.read(scores, targets))
        self.confidences.append(confidences)
        self.correct.append(correct)

    def samples(self) -> tuple[Tensor, Tensor]:
        """Confidences and correctness of all samples so far."""
        confidences, correct = (_joined(state, self.device) for state in (self.confidences, self.correct))
        self.warn_if_none(len(confidences))
        return confidences, correct.bool()

    def _sync_dist(self, *args: Any, **kwargs: Any) -> None:
        """Gather over ranks with the same dtypes, also from a rank without samples."""
        if "confidences" in self._reductions:
            self.confidences = [_joined(self.confidences, self.device).double()]
            self.correct = [_joined(self.correct, self.device).to(torch.uint8)]
        super()._sync_dist(*args, **kwargs)


class MeanMetric(ScoreMetric):
    """A `ScoreMetric` whose state is a float64 sum and a count."""

    total: Tensor
    count: Tensor

    def add_mean_state(self, of: str) -> None:
        """Add sum and count of what ``of`` names."""
        self.add_identity(of)
        self.add_state("total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def add_to_mean(self, total: Tensor, count: Tensor) -> None:
        """Add a batch."""
        self.total, self.count = self.total + total, self.count + count

    def compute(self) -> Tensor:
        """The mean over all samples so far, float64."""
        self.warn_if_none(int(self.count))
        return self.total / self.count


def _joined(state: list[Tensor] | Tensor, device: torch.device) -> Tensor:
    """Return a list state as one tensor; it already is one after a reduction over ranks."""
    if isinstance(state, Tensor):
        return state
    return torch.cat(state) if state else torch.zeros(0, device=device)
