"""Tables of the paper: `prepare_table` computes our figures next to the published ones; Markdown and CSV."""

import operator
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from scipy import stats
from torch import Tensor

from metacal.errors import InvalidValueError
from metacal.evaluation import risk_coverage
from metacal.files import csv_text
from metacal.functional import (
    classwise_calibration_error,
    expected_calibration_error,
    fit_temperature,
    fit_temperature_by_grid,
    fit_temperature_by_lbfgs,
    negative_log_likelihood,
    smooth_calibration_error,
)
from metacal.functional.binning import confidence_and_correctness
from metacal.functional.inputs import read_inputs
from metacal.lab.paper.exhibits import Plan, PlannedCell, Published, published_cells, published_figures
from metacal.lab.training.domain_scores import score_domains, summarise
from metacal.lab.training.run_folder import RunFolder, RunStore

AFTER = "_after_temperature"


def _top_label(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    return confidence_and_correctness(read_inputs(logits=logits, targets=targets, classes_only=True))


FIGURES: dict[str, Callable[..., Tensor | float]] = {
    "accuracy": lambda **test: _top_label(**test)[1].double().mean(),
    "error": lambda **test: 1 - _top_label(**test)[1].double().mean(),
    "confidence_minus_accuracy": lambda **test: operator.sub(*(each.double().mean() for each in _top_label(**test))),
    "nll": negative_log_likelihood,
    "ece": expected_calibration_error,
    "classwise_ece": classwise_calibration_error,
    "smooth_ece": smooth_calibration_error,
    "aurc": lambda **test: risk_coverage(*_top_label(**test)).area,
    "coverage_at_1_risk": lambda **test: risk_coverage(*_top_label(**test)).coverage_at_risk(0.01),
}
"""Functions of logits and targets; tables show their values before and after temperature scaling."""
TEMPERATURES: dict[str, Callable[..., float]] = {
    "grid": fit_temperature_by_grid,
    "lbfgs-10": lambda **val: fit_temperature_by_lbfgs(**val, max_iterations=10).temperature,
    "lbfgs-50": lambda **val: fit_temperature_by_lbfgs(**val, max_iterations=50).temperature,
    "likelihood": lambda **val: fit_temperature(**val).temperature,
}
"""Ways to fit a temperature."""
DIGITS = 2
PUBLISHED = "published figure, and ours minus published if the settings are the same."
PAIRED = "mean difference from {} over the common seeds, with its 95 % interval (Student's t)."
COMPARED = ("paired_difference", "paired_half_interval")
SHOWN = {"ece": "ECE", "nll": "NLL", "aurc": "AURC", "1 risk": "1 % risk"}
WORTH: dict[str, Callable[[float], float]] = {
    "accuracy_percent": float,
    "coverage_at_1_risk_percent": float,
    "coverage_at_1_risk_after_temperature_percent": float,
    "confidence_minus_accuracy_percent": lambda gap: -abs(gap),  # above 0 a model is over-confident
}
"""Functions that increase with quality; for all other figures, lower is better."""


@dataclass(frozen=True)
class Cell:
    """One cell: our figure over the finished seeds, and the published one."""

    row: str
    column: str
    metric: str
    values: tuple[float, ...]  # one per seed
    wanted: int  # planned number of seeds
    temperature: float | None  # mean over seeds, if a temperature was fitted
    published: Published | None
    is_quoted: bool = False  # a figure from the literature, never run
    is_reduced: bool = False  # our setting is not the published one, so the figures are not comparable
    is_in_paper: bool = False  # the paper has this method on this data, but perhaps not this metric
    paired: tuple[float, ...] = ()  # differences from the baseline, one per common seed

    @property
    def mean(self) -> float | None:
        """Mean over seeds; None if there are none."""
        return statistics.fmean(self.values) if self.values else None

    @property
    def std(self) -> float | None:
        """Population standard deviation over seeds, as in the paper; None with fewer than two."""
        return statistics.pstdev(self.values) if len(self.values) > 1 else None

    @property
    def difference(self) -> float | None:
        """Ours minus published; None if the two are not comparable."""
        if self.mean is None or self.published is None or self.is_reduced:
            return None
        return self.mean - self.published.mean

    @property
    def setting(self) -> str:
        """How our setting relates to the paper's: as published, reduced or changed, or not in the paper."""
        if self.is_reduced:
            return "reduced or changed"
        return "as published" if self.published is not None or self.is_in_paper else "not in the paper"

    @property
    def is_missing(self) -> bool:
        """Whether some seeds have not been run."""
        return len(self.values) < self.wanted and not self.is_quoted

    def text(self) -> str:
        """Our figure as text."""
        if self.mean is None:
            return "quoted" if self.is_quoted else "-"
        missing = "" if len(self.values) == self.wanted else f" ({len(self.values)} of {self.wanted})"
        return f"{_figure(self.metric, self.mean, self.std, self.temperature)}{missing}"

    def paired_interval(self) -> tuple[float, float | None] | None:
        """Mean difference from the baseline, and half the width of its 95 % interval if there are several seeds."""
        if not self.paired:
            return None
        return statistics.fmean(self.paired), half_interval(self.paired) if len(self.paired) > 1 else None

    def published_text(self) -> str:
        """The text next to our figure: the published figure and the difference, or the paired difference."""
        if (paired := self.paired_interval()) is not None:
            return _figure(self.metric, *paired, None, sign="+").replace("-", "−")
        if self.published is None:
            return "-"
        apart = "" if self.difference is None else f" ({self.difference:+.{DIGITS}f})".replace("-", "−")
        return f"{_figure(self.metric, *self.published)}{apart}"


def _figure(metric: str, mean: float, std: float | None, temperature: float | None, sign: str = "") -> str:
    digits = _digits(metric)
    spread = "" if std is None else f" ± {std:.{digits}f}"
    scaled = "" if temperature is None else f" (T {temperature:.1f})"
    return f"{mean:{sign}.{digits}f}{spread}{scaled}"


def _digits(metric: str) -> int:
    return DIGITS + metric.startswith("nll")


@dataclass(frozen=True)
class TableData:
    """The numbers of a table."""

    name: str
    title: str  # names the setting, if it is not the published one
    claim: str  # what the paper concludes from it
    note: str  # caveats
    columns: tuple[str, ...]  # labels
    cells: tuple[tuple[Cell, ...], ...]  # row by row, metric by metric
    ranks: tuple[float, ...] | None  # our average rank of each column; None if cells are missing
    published_ranks: tuple[float, ...] | None = None  # over the paper's whole table
    command: str = ""  # completes the missing runs
    baseline: str = ""  # the column that others are compared with, instead of the published figures

    @property
    def beside(self) -> str:
        """The heading of the text next to our figures."""
        return PAIRED.format(self.baseline) if self.baseline else PUBLISHED

    @property
    def missing(self) -> int:
        """The number of cells that lack seeds."""
        return sum(cell.is_missing for line in self.cells for cell in line)

    @property
    def rank_lines(self) -> list[tuple[str, list[str]]]:
        """Average ranks as text: ours and the published ones."""
        both = (("average rank, ours", self.ranks), ("average rank, published (whole table)", self.published_ranks))
        return [(name, [f"{rank:.1f}" for rank in ranks]) for name, ranks in both if ranks is not None]


def measure(
    folder: RunFolder,
    metrics: Sequence[str] = ("ece_percent", "error_percent"),
    calibrated: str | None = None,
    over: str | None = None,
) -> dict[str, float]:
    """Compute the figures of a run for tables, and its temperature, from its stored predictions.

    Args:
        folder: of the run.
        metrics: names; ``x_after_temperature`` is figure x after temperature scaling, ``x_percent`` is in percent.
        calibrated: how to fit the temperature on the validation set; a key of `TEMPERATURES`.
        over: ``average`` or ``worst`` value over the test domains of the run.
    """
    scores = folder.read_scores()  # raises if they are damaged
    val, test = folder.read_predictions("val"), folder.read_predictions("test")
    temperature = TEMPERATURES[calibrated or "grid"](logits=val.logits, targets=val.targets)
    domains: dict[str, float] = {}
    if over is not None:
        found = folder.read_domains("test")
        if found is None:
            raise InvalidValueError(f"{folder.path} must be a run with test domains, got one without.")
        domains = summarise(score_domains(test.logits, test.targets, *found, temperature))[over]

    def figure(name: str) -> float:
        if name == "training_hours":
            return float(scores["train_seconds"]) / 3600
        if domains:
            return domains[name]
        logits = test.logits / temperature if name.endswith(AFTER) else test.logits
        return float(FIGURES[name.removesuffix(AFTER)](logits=logits, targets=test.targets))

    shares = [(metric, metric.removesuffix("_percent")) for metric in metrics]
    figures = {metric: figure(name) * (100 if name != metric else 1) for metric, name in shares}
    return {**figures, "temperature": temperature}


def prepare_table(plan: Plan, store: RunStore) -> TableData:
    """Prepare a table from the runs in the store."""
    table = plan.exhibit
    lines = []
    for row in table.rows:
        measured = {cell.column.label: _measured(plan, cell, store) for cell in plan.cells if cell.row is row}
        cells = [cell for cell in plan.cells if cell.row is row]
        lines += [tuple(_cell(plan, cell, metric, measured) for cell in cells) for metric in table.metrics]
    notes = ("Ours: mean ± population standard deviation over seeds.", plan.note, _source_note(plan, store))
    means = [[cell.mean for cell in line if cell.mean is not None] for line in lines]
    is_full = all(len(known) == len(table.columns) for known in means)
    keys = [(table.label, "average rank", "", column.label, "average_rank") for column in table.columns]
    published = tuple(published_figures()[key].mean for key in keys if key in published_figures())
    return TableData(
        table.name,
        plan.title,
        table.claim,
        " ".join(note for note in notes if note),
        tuple(column.label for column in table.columns),
        tuple(lines),
        tuple(average_ranks(means)) if table.ranked and is_full else None,
        published or None,
        baseline=table.baseline,
    )


def _source_note(plan: Plan, store: RunStore) -> str:
    """Name the data files of the runs, and the source of corrupted test images."""
    folders = [folder for spec in plan.specs if (folder := store.folder(spec)).is_complete]
    files = sorted({PurePath(path).name for folder in folders for path in folder.read_environment().get("data", ())})
    notes = [f"Data: {', '.join(files)}."] if files else []
    if folders and any(row.over is not None for row in plan.exhibit.rows):
        sources = sorted({folder.read_scores()["domains"]["source"] for folder in folders})
        notes.append(f"Test images of the domains: {' and '.join(sources)}.")
    return " ".join(notes)


def _measured(plan: Plan, cell: PlannedCell, store: RunStore) -> dict[int, dict[str, float]]:
    """Return the figures of the complete runs of a cell, by position of the seed."""
    how = (plan.exhibit.metrics, cell.column.calibrated or plan.exhibit.calibrated, cell.row.over)
    folders = enumerate(map(store.folder, cell.specs))
    return {number: measure(folder, *how) for number, folder in folders if folder.is_complete}


def _cell(plan: Plan, planned: PlannedCell, metric: str, measured: dict[str, dict[int, dict[str, float]]]) -> Cell:
    row, column, temperature = planned.row, planned.column, None
    runs, others = measured[column.label], measured.get(plan.exhibit.baseline, {})
    if metric == "ece_after_temperature_percent" and runs:
        temperature = statistics.fmean(run["temperature"] for run in runs.values())
    shared = runs.keys() & others.keys() if column.label != plan.exhibit.baseline else ()
    return Cell(
        row.title,
        column.label,
        metric,
        tuple(run[metric] for run in runs.values()),
        len(plan.exhibit.seeds),
        temperature,
        plan.exhibit.published(row, column, metric),
        column.settings is None,
        not planned.is_as_published,
        (row.dataset, row.model, column.label) in published_cells(),
        tuple(runs[number][metric] - others[number][metric] for number in sorted(shared)),
    )


def average_ranks(values: Sequence[Sequence[float]]) -> list[float]:
    """Mean rank of each column over rows; the lowest value has rank 1, and ties share the lowest rank.

    Examples:
        >>> average_ranks([[1.0, 2.0, 2.0], [3.0, 1.0, 2.0]])
        [2.0, 1.5, 2.0]
    """
    ranks: list[float] = stats.rankdata(values, method="min", axis=1).mean(axis=0).tolist()
    return ranks


def half_interval(values: Sequence[float]) -> float:
    """Half the width of Student's 95 % interval of a mean; 0 for a single value.

    Examples:
        >>> round(half_interval([1.0, 2.0, 3.0]), 3)
        2.484
    """
    return float(stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)) if len(values) > 1 else 0.0


def metric_name(metric: str) -> str:
    """Return a metric's display name.

    Examples:
        >>> metric_name("ece_after_temperature_percent")
        'ECE after temperature, %'
    """
    words = metric.removesuffix("_percent").replace("_", " ")
    for word, shown in SHOWN.items():
        words = words.replace(word, shown)
    return f"{words}, %" if metric.endswith("_percent") else words


def best_of(line: tuple[Cell, ...]) -> set[str]:
    """Return the columns with the best rounded mean, including ties; none if only one has a mean."""
    worth, digits = WORTH.get(line[0].metric, operator.neg), _digits(line[0].metric)
    worths = {cell.column: worth(round(cell.mean, digits)) for cell in line if cell.mean is not None}
    return {column for column in worths if worths[column] == max(worths.values())} if len(worths) > 1 else set()


def markdown_table(data: TableData) -> str:
    """Return a Markdown table with the published figures in brackets and the best in bold."""
    head = ["", "metric", *data.columns]
    lines = [f"**{data.title}**", "", data.note, "", _pipes(head), _pipes(["---"] * len(head))]
    for line in data.cells:
        best = best_of(line)
        shown = [f"**{cell.text()}**" if cell.column in best else cell.text() for cell in line]
        both = [f"{ours} [{cell.published_text()}]" for ours, cell in zip(shown, line, strict=True)]
        lines.append(_pipes([line[0].row, metric_name(line[0].metric), *both]))
    lines += [_pipes([name, "", *ranks]) for name, ranks in data.rank_lines]
    lines += ["", f"In brackets: {data.beside}"]
    if data.missing:
        lines += ["", f"{data.missing} cells lack seeds: `{data.command}` completes them."]
    return "\n".join(lines) + "\n"


def _pipes(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def csv_table(data: TableData) -> str:
    """Return a CSV line per cell; the difference is empty unless our setting is the published one."""
    lines = [
        {
            "row": cell.row,
            "method": cell.column,
            "metric": cell.metric,
            "mean": cell.mean,
            "std": cell.std,
            "seeds": len(cell.values),
            "temperature": cell.temperature,
            **{f"published_{name}": getattr(cell.published, name, None) for name in Published._fields},
            "difference": cell.difference,
            "setting": cell.setting,
            **(dict(zip(COMPARED, cell.paired_interval() or (None, None), strict=True)) if data.baseline else {}),
        }
        for cells in data.cells
        for cell in cells
    ]
    return csv_text(lines)
