"""What the metric shells share: how scores are read, and the two kinds of state, bins and samples."""

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

    counts: Tensor
    correct_sums: Tensor
    confidence_units: Tensor
    confidences: list[Tensor]
    correct: list[Tensor]
    total: Tensor
    count: Tensor

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
            own = CallSignature(type(self).__init__)
            own.name = type(self).__name__
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
        """Checked inputs of one batch; an empty batch is fine, and so are arrays, which go where the metric is."""
        if not isinstance(scores, Tensor):
            scores = to_tensor(self.inputs, scores).to(self.device)
        if not isinstance(targets, Tensor):
            targets = to_tensor("targets", targets).to(self.device)
        logits, probs = (scores, None) if self.inputs == "logits" else (None, scores)
        batch = read_inputs(
            logits=logits,
            probs=probs,
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
        """State that tells metrics apart: a MetricCollection shares one state among metrics whose states look alike.

        ``what`` is all that decides, besides the arguments known here, what an update adds to the state.
        """
        known = (*what, self.num_classes, self.num_labels, self.inputs, self.ignore_index)
        digest = hashlib.sha256(repr(known).encode()).digest()
        self.add_state("identity", torch.tensor(list(digest[:16])), dist_reduce_fx="max")

    def add_bin_state(self, *shape: int, of: str) -> None:
        """State of integers ``(..., M)`` that adds up exactly over batches and ranks; ``of`` says what they count."""
        self.add_identity(of, tuple(map(int, shape)))
        for name in ("counts", "correct_sums", "confidence_units"):
            self.add_state(name, torch.zeros(shape, dtype=torch.int64), dist_reduce_fx="sum")

    def add_bins(self, statistics: BinStatistics) -> None:
        """Add a batch's statistics to the bin state."""
        self.counts = self.counts + statistics.counts
        self.correct_sums = self.correct_sums + statistics.correct_sums
        self.confidence_units = self.confidence_units + statistics.confidence_units

    def bins(self) -> BinStatistics:
        """The bin state."""
        warn_if_none(self, int(self.counts.sum()))
        if int(self.counts.max()) > MOST_SAMPLES:
            raise InvalidValueError(
                f"A bin must hold at most {MOST_SAMPLES} samples for its sum to be exact, got {int(self.counts.max())}."
            )
        edges = equal_width_edges(self.counts.shape[-1], self.counts.device)
        return BinStatistics(self.counts, self.correct_sums, self.confidence_units, edges)

    def add_sample_state(self) -> None:
        """State that keeps every sample's confidence and correctness (5 bytes per sample for float32 scores)."""
        self.add_identity("samples")
        self.add_state("confidences", [], dist_reduce_fx="cat")
        self.add_state("correct", [], dist_reduce_fx="cat")

    def add_samples(self, batch: Inputs) -> None:
        """Add a batch to the sample state."""
        confidences, correct = confidence_and_correctness(batch)
        self.confidences.append(confidences)
        self.correct.append(correct)

    def samples(self) -> tuple[Tensor, Tensor]:
        """Confidences and correctness of all samples so far."""
        confidences, correct = (_joined(state, self.device) for state in (self.confidences, self.correct))
        warn_if_none(self, len(confidences))
        return confidences, correct.bool()

    def _sync_dist(self, *args: Any, **kwargs: Any) -> None:
        """Gather over ranks; all send the same dtypes, a rank that saw no samples too."""
        if "confidences" in self._reductions:
            self.confidences = [_joined(self.confidences, self.device).double()]
            self.correct = [_joined(self.correct, self.device).to(torch.uint8)]
        super()._sync_dist(*args, **kwargs)

    def add_mean_state(self, of: str) -> None:
        """State of a float64 sum and a count of what ``of`` names."""
        self.add_identity(of)
        self.add_state("total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def add_to_mean(self, total: Tensor, count: Tensor) -> None:
        """Add a batch to the mean state."""
        self.total, self.count = self.total + total, self.count + count

    def mean(self) -> Tensor:
        """The mean so far."""
        warn_if_none(self, int(self.count))
        return self.total / self.count


class SampleMetric(ScoreMetric):
    """A `ScoreMetric` whose state keeps every sample's confidence and correctness."""

    def update(self, scores: Tensor, targets: Tensor) -> None:
        """Add a batch."""
        self.add_samples(self.read(scores, targets))


def _joined(state: list[Tensor] | Tensor, device: torch.device) -> Tensor:
    """A list state as one tensor: it is a list before, and a tensor after, a reduction over ranks."""
    if isinstance(state, Tensor):
        return state
    return torch.cat(state) if state else torch.zeros(0, device=device)


def warn_if_none(metric: Metric, samples: int) -> None:
    """Say so when a value is computed over no samples at all (it is then NaN)."""
    if not samples:
        warn(f"{type(metric).__name__} was computed over no samples: its value is NaN.")
