"""Figures of some of the rows: class by class, and group by group by the values of a column.

Whether groups differ beyond chance is tested at the same confidence, see `compare_groups`.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from metacal.evaluation.group_labels import GroupLabels
from metacal.evaluation.rejection import risk_coverage
from metacal.evaluation.scores import RESAMPLES, Binned, TopLabel, confidence_verdict, data_frame, finite
from metacal.functional.binning import BinStatistics, calibration_error, equal_width_statistics
from metacal.functional.intervals import error_interval

if TYPE_CHECKING:
    from pandas import DataFrame

STRATA = 20
"""Levels of confidence within which groups are compared."""

CONFUSED = 10
"""Pairs of classes to list."""

CHANCE = 0.05


class GroupFigures(NamedTuple):
    """One group: its rows, mean confidence, all figures with the ends of their intervals, and a verdict in words."""

    name: str
    rows: int
    confidence: float
    figures: dict[str, float]
    verdict: str


@dataclass(frozen=True)
class Groups:
    """What was found group by group.

    Attributes:
        column: what the groups are values of.
        groups: the worst first: by the lower end of the ECE's interval, which few rows do not push up, then by ECE.
        of: what the test and the multicalibration error are of: ``"confidence"``, or of a binary model ``"P(name)"``.
        statistic: of `compare_groups`, chi-square distributed with ``degrees`` degrees of freedom if groups are alike.
        degrees: 0 if no two groups have confidences in common; there is no test then.
        p_value: chance of a statistic as large if groups are alike; NaN without a test.
        multicalibration_error: gaps between confidence and accuracy in every bin of every group, averaged over rows.
        multicalibration_error_low: lower end of its 95 % interval.
        multicalibration_error_high: upper end.
        notes: how the groups were made, and which rows are in none.
    """

    column: str
    groups: list[GroupFigures]
    of: str
    statistic: float
    degrees: int
    p_value: float
    multicalibration_error: float
    multicalibration_error_low: float
    multicalibration_error_high: float
    notes: tuple[str, ...] = ()

    @property
    def differ(self) -> bool:
        """Whether the groups differ beyond chance, at 5 %."""
        return self.p_value < CHANCE

    @property
    def verdict(self) -> str:
        """In one sentence."""
        if not self.degrees:
            return f"Groups of {self.column} have no confidences in common: no test whether they differ."
        said = "p < 0.0001" if self.p_value < 1e-4 else f"p = {self.p_value:.4f}"
        if not self.differ:
            return f"Groups of {self.column} do not differ beyond chance at the same {self.of} ({said})."
        return (
            f"Groups of {self.column} differ beyond chance: at the same {self.of}, some are right more often ({said})."
        )

    @property
    def figures(self) -> dict[str, float]:
        """Those of all groups together, by name; the worst group's ECE is that of the first."""
        worst = {f"worst_group_ece{end}": self.groups[0].figures[f"ece{end}"] for end in ("", "_low", "_high")}
        return {
            "multicalibration_error": self.multicalibration_error,
            "multicalibration_error_low": self.multicalibration_error_low,
            "multicalibration_error_high": self.multicalibration_error_high,
            **worst,
            "groups_p_value": self.p_value,
        }

    def to_dict(self) -> dict[str, Any]:
        """For JSON, but for `figures`: what is not a finite number as null."""
        return {
            "column": self.column,
            "of": self.of,
            "test": {"statistic": self.statistic, "degrees": self.degrees, "p_value": finite(self.p_value)},
            "differ": self.differ,
            "verdict": self.verdict,
            "groups": [
                {"name": group.name, "rows": group.rows, "confidence": group.confidence}
                | {name: finite(value) for name, value in group.figures.items()}
                | {"verdict": group.verdict}
                for group in self.groups
            ],
            "notes": list(self.notes),
        }

    def frame(self) -> "DataFrame":
        """A row for each group, the worst first, with all figures and the ends of their intervals.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        columns = ["rows", "confidence", *self.groups[0].figures]
        rows = [[group.rows, group.confidence, *group.figures.values()] for group in self.groups]
        return data_frame(rows, [group.name for group in self.groups], columns)


def evaluate_groups(labels: GroupLabels, binned: TopLabel, num_resamples: int = RESAMPLES, seed: int = 0) -> Groups:
    """Every figure of each group, the test of `compare_groups`, and the multicalibration error.

    The two last are of the confidence in the predicted class; of a binary model they are of the probability of class 1.
    """
    codes = labels.codes.to(binned.confidences.device)
    scores, outcomes = binned.confidences, binned.correct
    of = "confidence"
    if isinstance(binned, Binned) and binned.inputs.num_classes == 2:
        scores, outcomes, of = binned.positive, binned.inputs.targets == 1, "P(class 1)"
    found, cells = [], []
    for place, name in enumerate(labels.names):
        rows = codes == place
        if not bool(rows.any()):
            continue
        part = binned.take(rows)
        figures = part.with_intervals(num_resamples, seed)
        figures["aurc"] = risk_coverage(part.confidences, part.correct).area
        confidence = part.confidences.double().mean().item()
        count = len(part.correct)
        found.append(GroupFigures(name, count, confidence, figures, confidence_verdict(part.equal_width)))
        cells.append(equal_width_statistics(scores[rows], outcomes[rows], binned.equal_width.num_bins))
    counts, right = (torch.cat([getattr(each, key) for each in cells]) for key in ("counts", "correct_sums"))
    units, held = torch.cat([each.confidence_units for each in cells]), counts > 0
    error = error_interval(
        BinStatistics(counts[held], right[held], units[held], cells[0].edges), num_resamples=num_resamples, seed=seed
    )
    statistic, degrees, p_value = compare_groups(scores, outcomes, codes)
    found.sort(key=lambda group: (-group.figures["ece_low"], -group.figures["ece"]))
    ends = (error.estimate.item(), error.low.item(), error.high.item())
    return Groups(labels.column, found, of, statistic, degrees, p_value, *ends, labels.notes)


def compare_groups(
    confidences: Tensor, correct: Tensor, codes: Tensor, strata: int = STRATA
) -> tuple[float, int, float]:
    r"""Test whether groups are right equally often at the same confidence: statistic, degrees of freedom, p-value.

    The generalised Cochran-Mantel-Haenszel test of mean scores (Landis, Heyman and Koch 1978). Rows are cut into strata
    by their confidence. Within a stratum, how much right minus confidence differs from its mean is added up for each
    group. If groups are alike, any row could be in any group: the sums have expectation 0 and covariances
    :math:`\sum_s v_s (\delta_{gh} n_{sg} - n_{sg} n_{sh} / n_s)`, with :math:`v_s` the variance within stratum s, and
    their quadratic form has a chi-square distribution. A model that is as over-confident in each group is not flagged.

    Args:
        confidences: ``(n,)``.
        correct: bool ``(n,)``.
        codes: int64 ``(n,)``: the group of each row.
        strata: levels of confidence.

    Examples:
        >>> confidences, codes = torch.full((400,), 0.8), torch.arange(400) % 2
        >>> compare_groups(confidences, (torch.arange(400) % 10 < 8), codes)[2] > 0.9
        True
        >>> compare_groups(confidences, (torch.arange(400) % 5 < 4) | (codes == 1), codes)[2] < 0.001
        True
    """
    wide = confidences.double().contiguous()
    residuals = correct.double() - wide
    shares = torch.arange(1, strata, dtype=torch.float64, device=wide.device) / strata
    places = (shares * (len(wide) - 1)).long()
    stratum = torch.bucketize(wide, wide.sort().values[places].contiguous())
    groups = int(codes.max()) + 1
    counts = torch.bincount(stratum * groups + codes, minlength=strata * groups).view(strata, groups).double()
    sizes = counts.sum(dim=1)
    means = torch.zeros(strata, dtype=torch.float64, device=wide.device).index_add_(0, stratum, residuals)
    residuals = residuals - (means / sizes.clamp(min=1.0))[stratum]
    squares = torch.zeros_like(means).index_add_(0, stratum, residuals.square())
    variances = squares / (sizes - 1.0).clamp(min=1.0)
    sums = torch.zeros(groups, dtype=torch.float64, device=wide.device).index_add_(0, codes, residuals)
    scaled = counts * variances.unsqueeze(1)
    covariance = scaled.sum(dim=0).diag() - scaled.t() @ (counts / sizes.clamp(min=1.0).unsqueeze(1))
    values, vectors = torch.linalg.eigh(covariance)
    is_real = values > 1e-9 * max(values[-1].item(), 1e-12)
    degrees = int(is_real.sum())
    if not degrees:
        return 0.0, 0, math.nan
    statistic = ((vectors.t() @ sums)[is_real].square() / values[is_real]).sum()
    p_value = torch.special.gammaincc(torch.tensor(0.5 * degrees, dtype=torch.float64), 0.5 * statistic.cpu())
    return statistic.item(), degrees, p_value.item()


class ClassFigures(NamedTuple):
    """One class."""

    name: str
    samples: int  # whose target it is
    recall: float | None  # None without samples
    precision: float | None  # None if it was never predicted
    mean_prob: float
    frequency: float  # its share of all targets
    ece: float  # of its probability, against the rest


class ConfusedPair(NamedTuple):
    """Samples of class ``target`` that were taken for ``predicted``: how many, and which share of the class."""

    target: str
    predicted: str
    samples: int
    share: float


def confusion_counts(predicted: Tensor, targets: Tensor, num_classes: int) -> Tensor:
    """int64 ``(K, K)``: row is the target, column the prediction.

    Examples:
        >>> import torch
        >>> confusion_counts(torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]), 2).tolist()
        [[1, 1], [0, 1]]
    """
    return torch.bincount(targets * num_classes + predicted, minlength=num_classes**2).view(num_classes, num_classes)


def class_figures(
    counts: Tensor, mean_probs: Tensor, statistics: BinStatistics, class_names: tuple[str, ...]
) -> list[ClassFigures]:
    """Figures of every class from `confusion_counts`, mean probabilities ``(K,)`` and bins ``(K, M)``."""
    total = max(int(counts.sum()), 1)
    of_class, named, right = counts.sum(1).tolist(), counts.sum(0).tolist(), counts.diagonal().tolist()
    errors, probs = calibration_error(statistics).tolist(), mean_probs.tolist()
    return [
        ClassFigures(
            name,
            of_class[k],
            right[k] / of_class[k] if of_class[k] else None,
            right[k] / named[k] if named[k] else None,
            probs[k],
            of_class[k] / total,
            errors[k],
        )
        for k, name in enumerate(class_names)
    ]


def confused_pairs(counts: Tensor, class_names: tuple[str, ...], most: int = CONFUSED) -> list[ConfusedPair]:
    """The pairs that are confused most often, most often first.

    Examples:
        >>> import torch
        >>> confused_pairs(torch.tensor([[8, 2], [1, 9]]), ("cat", "dog"))[0]
        ConfusedPair(target='cat', predicted='dog', samples=2, share=0.2)
    """
    off = counts.clone().fill_diagonal_(0)
    values, places = off.flatten().sort(descending=True, stable=True)
    pairs = []
    for count, place in zip(values[:most].tolist(), places[:most].tolist(), strict=True):
        if count:
            row, column = divmod(place, len(class_names))
            pairs.append(ConfusedPair(class_names[row], class_names[column], count, count / int(counts[row].sum())))
    return pairs
