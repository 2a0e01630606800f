"""Figures by group: assigns rows to groups by a column, and tests whether groups differ beyond chance.

Groups are tested at the same confidence, see `compare_groups`.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metacal.errors import InvalidValueError
from metacal.evaluation.decisions import risk_coverage
from metacal.evaluation.scores import RESAMPLES, Binned, TopLabel, confidence_verdict, data_frame, finite
from metacal.evaluation.tables import Column, Strings, as_text
from metacal.functional.binning import BinStatistics, equal_width_statistics
from metacal.functional.intervals import error_interval

if TYPE_CHECKING:
    from pandas import DataFrame

FEWEST = 10
"""Rows below which a group is counted with the others of its kind."""

MOST = 50
"""Groups; smaller ones are counted together."""

MOST_NUMBERS = 20
"""Different numbers in a column that are groups of their own; more are cut into `PARTS` of equal size."""

PARTS = 5
MISSING, OTHER = "(missing)", "(other)"
STRATA = 20
"""Levels of confidence within which groups are compared."""

CHANCE = 0.05


@dataclass(frozen=True)
class GroupLabels:
    """The group of each row.

    Attributes:
        column: what the groups are values of.
        codes: int64 ``(n,)``: places in ``names``.
        names: of the groups.
        notes: how the groups were made, where they are not the values themselves.
    """

    column: str
    codes: Tensor
    names: tuple[str, ...]
    notes: tuple[str, ...] = ()


def as_column(values: Any) -> Column:
    """Return the values of an array, list or pandas object; None and NaN are missing."""
    array = np.asarray(values)
    if array.dtype.kind in "biuf" and array.ndim == 1:
        return array
    array = array.astype(str) if array.dtype.kind == "M" else array
    if array.ndim != 1:
        raise InvalidValueError(f"`by` must have one value a row, got shape {array.shape}.")
    texts = [None if value is None or value != value else str(value) for value in array.tolist()]
    places = {text: place for place, text in enumerate(dict.fromkeys(text for text in texts if text is not None))}
    codes = np.array([-1 if text is None else places[text] for text in texts], dtype=np.int64)
    return Strings(codes, tuple(places))


def label_groups(name: str, column: Column) -> GroupLabels:
    """Turn the values of a column into groups.

    Text, true and false, and up to `MOST_NUMBERS` different numbers are groups of their own; more numbers are cut into
    `PARTS` of equal size. Rows without a value are a group. Groups of fewer than `FEWEST` rows are counted together, as
    are the smallest of more than `MOST`.

    Raises:
        InvalidValueError: there are no two groups of at least `FEWEST` rows.

    Examples:
        >>> label_groups("age", np.repeat([30.0, 40.0, np.nan], 10)).names
        ('30', '40', '(missing)')
        >>> label_groups("age", np.arange(100.0)).names[0]
        '0 to 19'
    """
    if not isinstance(column, Strings) and column.ndim != 1:
        raise InvalidValueError(f"`by` must name a column with one value a row, got {name} with a list in each.")
    notes = []
    text = column if isinstance(column, Strings) else as_text(column)
    if not isinstance(column, Strings) and column.dtype.kind in "iuf" and len(text.values) > MOST_NUMBERS:
        notes.append(f"{len(text.values):,} different numbers, cut into parts of equal size")
        text = _cut(column)
    codes = np.where(text.codes < 0, len(text.values), text.codes)
    names = np.array([*text.values, MISSING])
    counts = np.bincount(codes, minlength=len(names))
    order = np.argsort(-counts, kind="stable")  # the largest first
    kept = [place for place in order[: MOST - 1] if counts[place] >= FEWEST]
    left = [place for place in order[len(kept) :] if counts[place]]
    if len(left) == 1 and counts[left[0]] >= FEWEST:
        kept, left = [*kept, *left], []
    if len(kept) < 2:
        found = f"{int((counts > 0).sum()):,} different values in {len(codes):,} rows"
        rule = f"at least two groups of {FEWEST} rows or more"
        raise InvalidValueError(f"`by` (--by) must name a column with {rule}, got {name} with {found}.")
    kept = sorted(kept)
    places = np.full(len(names), len(kept), dtype=np.int64)
    places[kept] = np.arange(len(kept))
    shown = (*names[kept].tolist(), *([OTHER] if left else []))
    if left:
        smaller = f"of fewer than {FEWEST} rows" if counts[left].max() < FEWEST else "with the fewest rows"
        notes.append(f"{len(left):,} groups {smaller} are counted as {OTHER}")
    return GroupLabels(name, torch.from_numpy(places[codes]), shown, tuple(notes))


def _cut(numbers: NDArray[Any]) -> Strings:
    """Split numbers into groups of equal size, named by their range; equal numbers stay together."""
    values = numbers.astype(np.float64)
    known = np.isfinite(values)
    edges = np.unique(np.quantile(values[known], np.arange(1, PARTS) / PARTS, method="lower"))
    part = np.where(known, np.searchsorted(edges, values), -1)
    inside = [values[part == place] for place in range(len(edges) + 1)]
    names = [f"{each.min():.6g} to {each.max():.6g}" if len(each) else "" for each in inside]
    return Strings(part.astype(np.int64), tuple(names))


class GroupFigures(NamedTuple):
    """One group: its size, mean confidence, figures with intervals, and a verdict."""

    name: str
    rows: int
    confidence: float
    figures: dict[str, float]
    verdict: str


@dataclass(frozen=True)
class Groups:
    """The figures of all groups.

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
        """The result in one sentence."""
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
        """The joint figures of all groups by name, including the ECE of the worst group."""
        names = [f"multicalibration_error{end}" for end in ("", "_low", "_high")]
        worst = {f"worst_group_ece{end}": self.groups[0].figures[f"ece{end}"] for end in ("", "_low", "_high")}
        return {name: getattr(self, name) for name in names} | worst | {"groups_p_value": self.p_value}

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON without `figures`; values that are not finite become null."""
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
        """Return a DataFrame with a row for each group, worst first, with all figures and intervals.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        columns = ["rows", "confidence", *self.groups[0].figures]
        rows = [[group.rows, group.confidence, *group.figures.values()] for group in self.groups]
        return data_frame(rows, [group.name for group in self.groups], columns)


def evaluate_groups(labels: GroupLabels, binned: TopLabel, num_resamples: int = RESAMPLES, seed: int = 0) -> Groups:
    """Compute every figure of each group, the test of `compare_groups`, and the multicalibration error.

    The two last are of the confidence in the predicted class; of a binary model they are of the probability of class 1.
    """
    codes = labels.codes.to(binned.confidences.device)
    scores, outcomes, of = binned.confidences, binned.correct, "confidence"
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
        found.append(GroupFigures(name, len(part.correct), confidence, figures, confidence_verdict(part.equal_width)))
        cells.append(equal_width_statistics(scores[rows], outcomes[rows], binned.equal_width.num_bins))
    names = ("counts", "correct_sums", "confidence_units")
    counts, right, units = (torch.cat([getattr(each, name) for each in cells]) for name in names)
    held = counts > 0
    together = BinStatistics(counts[held], right[held], units[held], cells[0].edges)
    error = error_interval(together, num_resamples=num_resamples, seed=seed)
    found.sort(key=lambda group: (-group.figures["ece_low"], -group.figures["ece"]))
    statistic, degrees, p_value = compare_groups(scores, outcomes, codes)
    value, low, high = (each.item() for each in error)
    return Groups(labels.column, found, of, statistic, degrees, p_value, value, low, high, labels.notes)


def compare_groups(
    confidences: Tensor, correct: Tensor, codes: Tensor, strata: int = STRATA
) -> tuple[float, int, float]:
    r"""Test whether accuracy at equal confidence differs by group: statistic, degrees of freedom, p-value.

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
