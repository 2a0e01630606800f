"""Tables of the paper: `prepare_table` works out the numbers, ours beside the published; as Markdown and CSV."""

import csv
import io
import operator
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath

from metacal.errors import InvalidValueError
from metacal.evaluation.predictions import Predictions
from metacal.functional import (
    classwise_calibration_error,
    expected_calibration_error,
    fit_temperature_by_grid,
    fit_temperature_by_lbfgs,
)
from metacal.functional.binning import confidence_and_correctness
from metacal.lab.paper.exhibits import Plan, PlannedCell, Published, published_cells, published_figures
from metacal.lab.training.domain_scores import average, score_domains, worst
from metacal.lab.training.run_folder import RunFolder, RunStore

LBFGS_ITERATIONS = {"lbfgs-10": 10, "lbfgs-50": 50}
DIGITS = 2
PUBLISHED = "published, and by how much ours is above it where both are of the same setting."
OURS = ("row", "method", "metric", "mean", "std", "seeds", "temperature")
WORTH: dict[str, Callable[[float], float]] = {
    "accuracy_percent": float,
    "confidence_minus_accuracy_percent": lambda gap: -abs(gap),  # it has a sign: above 0 a model is over-confident
}
"""How good a figure is; of all others lower is better."""


@dataclass(frozen=True)
class Cell:
    """One cell: ours over the seeds that are done, and the published figure."""

    row: str  # name of the row
    column: str  # label of the column
    metric: str  # what is shown
    values: tuple[float, ...]  # one a seed
    wanted: int  # how many seeds there should be
    temperature: float | None  # mean over seeds, where a temperature was fitted
    published: Published | None  # what the paper says
    is_quoted: bool = False  # figures from the literature, never run
    is_reduced: bool = False  # ours is of another setting than the published one, and does not stand against it
    is_in_paper: bool = False  # the paper has this method on this data, if not this figure of it

    @property
    def mean(self) -> float | None:
        """Over seeds; None without any."""
        return statistics.fmean(self.values) if self.values else None

    @property
    def std(self) -> float | None:
        """Over seeds, of the population as in the paper; None with fewer than two."""
        return statistics.pstdev(self.values) if len(self.values) > 1 else None

    @property
    def difference(self) -> float | None:
        """Ours minus published; None where the two do not stand against each other."""
        if self.mean is None or self.published is None or self.is_reduced:
            return None
        return self.mean - self.published.mean

    @property
    def setting(self) -> str:
        """Whether ours is as published; what the paper does not have cannot be."""
        if self.is_reduced:
            return "reduced or changed"
        return "as published" if self.published is not None or self.is_in_paper else "not in the paper"

    @property
    def is_missing(self) -> bool:
        """Whether seeds of it are still to be run."""
        return len(self.values) < self.wanted and not self.is_quoted

    def text(self) -> str:
        """Ours as it is printed."""
        if self.mean is None:
            return "quoted" if self.is_quoted else "-"
        missing = "" if len(self.values) == self.wanted else f" ({len(self.values)} of {self.wanted})"
        return f"{_figure(self.mean, self.std, self.temperature)}{missing}"

    def published_text(self) -> str:
        """The published figure as it is printed, with how far ours is from it."""
        if self.published is None:
            return "-"
        apart = "" if self.difference is None else f" ({self.difference:+.{DIGITS}f})".replace("-", "−")
        return f"{_figure(*self.published)}{apart}"


def _figure(mean: float, std: float | None, temperature: float | None) -> str:
    spread = "" if std is None else f" ± {std:.{DIGITS}f}"
    scaled = "" if temperature is None else f" (T {temperature:.1f})"
    return f"{mean:.{DIGITS}f}{spread}{scaled}"


@dataclass(frozen=True)
class TableData:
    """The numbers of a table."""

    name: str  # of the table
    title: str  # with the setting in it, if it is not the published one
    claim: str  # what the paper concludes from it
    note: str  # what a reader must know before comparing
    columns: tuple[str, ...]  # labels
    cells: tuple[tuple[Cell, ...], ...]  # row by row, metric by metric
    ranks: tuple[float, ...] | None  # average rank of each column, ours; None where cells are missing
    # those of the paper, over all of its rows and columns; None where it has none
    published_ranks: tuple[float, ...] | None = None
    command: str = ""  # fills what is missing

    @property
    def missing(self) -> int:
        """How many cells lack seeds."""
        return sum(cell.is_missing for line in self.cells for cell in line)

    @property
    def rank_lines(self) -> list[tuple[str, list[str]]]:
        """Average ranks as they are printed: ours, and the published ones."""
        both = (("average rank, ours", self.ranks), ("average rank, published (whole table)", self.published_ranks))
        return [(name, [f"{rank:.1f}" for rank in ranks]) for name, ranks in both if ranks is not None]


def measure(folder: RunFolder, calibrated: str | None = None, over: str | None = None) -> dict[str, float]:
    """Every figure that tables show of a run, from its predictions; nothing is trained or run again.

    Args:
        folder: of the run.
        calibrated: how a temperature is chosen on the validation set.
        over: ``average`` or ``worst``: each figure over the test domains of the run.
    """
    scores, val, test = folder.read_scores(), folder.read_predictions("val"), folder.read_predictions("test")
    temperature = _fitted_temperature(val, calibrated or "grid")
    if over is None:
        figures = _over_samples(test, scores["test"]["accuracy"], temperature)
    else:
        figures = _over_domains(folder, test, temperature, over)
    return {
        **{f"{name}_percent": 100 * value for name, value in figures.items()},
        "training_hours": scores["train_seconds"] / 3600,
        "temperature": temperature,
    }


def _fitted_temperature(val: Predictions, how: str) -> float:
    if how == "grid":
        return fit_temperature_by_grid(logits=val.logits, targets=val.targets)
    iterations = LBFGS_ITERATIONS[how]
    return fit_temperature_by_lbfgs(logits=val.logits, targets=val.targets, max_iterations=iterations).temperature


def _over_samples(test: Predictions, accuracy: float, temperature: float) -> dict[str, float]:
    logits, targets = test.logits, test.targets
    confidence = float(confidence_and_correctness(test.inputs)[0].double().mean())
    return {
        "ece": float(expected_calibration_error(logits=logits, targets=targets)),
        "ece_after_temperature": float(expected_calibration_error(logits=logits / temperature, targets=targets)),
        "error": 1 - accuracy,
        "accuracy": accuracy,
        "confidence_minus_accuracy": confidence - accuracy,
        "classwise_ece": float(classwise_calibration_error(logits=logits, targets=targets)),
    }


def _over_domains(folder: RunFolder, test: Predictions, temperature: float, over: str) -> dict[str, float]:
    found = folder.read_domains("test")
    if found is None:
        raise InvalidValueError(f"{folder.path} must be a run with test domains, got one without.")
    each = score_domains(test.logits, test.targets, *found, temperature)
    figures = average(each) if over == "average" else worst(each)
    kept = {name: figures[name] for name in ("ece", "ece_after_temperature", "error")}
    return {**kept, "accuracy": 1 - figures["error"]}


def prepare_table(plan: Plan, store: RunStore) -> TableData:
    """Gather what the store has of a table."""
    table = plan.exhibit
    lines = []
    for row in table.rows:
        measured = [(cell, _measured(cell, store)) for cell in plan.cells if cell.row is row]
        lines += [tuple(_cell(plan, cell, metric, runs) for cell, runs in measured) for metric in table.metrics]
    notes = ("Ours: mean ± population standard deviation over seeds.", plan.note, _source_note(plan, store))
    keys = [(table.label, "average rank", "", column.label, "average_rank") for column in table.columns]
    published = tuple(published_figures()[key].mean for key in keys if key in published_figures())
    return TableData(
        table.name,
        plan.title,
        table.claim,
        " ".join(note for note in notes if note),
        tuple(column.label for column in table.columns),
        tuple(lines),
        _ranks(lines) if table.ranked else None,
        published or None,
    )


def _source_note(plan: Plan, store: RunStore) -> str:
    """Which files the runs read (an edition or a subset has its name), and where test images of domains come from."""
    folders = [folder for spec in plan.specs if (folder := store.folder(spec)).is_complete]
    files = sorted({PurePath(path).name for folder in folders for path in folder.read_environment().get("data", ())})
    notes = [f"Data: {', '.join(files)}."] if files else []
    if folders and any(row.over is not None for row in plan.exhibit.rows):
        sources = sorted({folder.read_scores()["domains"]["source"] for folder in folders})
        notes.append(f"Test images of the domains: {' and '.join(sources)}.")
    return " ".join(notes)


def _measured(cell: PlannedCell, store: RunStore) -> list[dict[str, float]]:
    folders = map(store.folder, cell.specs)
    return [measure(folder, cell.column.calibrated, cell.row.over) for folder in folders if folder.is_complete]


def _cell(plan: Plan, planned: PlannedCell, metric: str, runs: list[dict[str, float]]) -> Cell:
    row, column, temperature = planned.row, planned.column, None
    if metric == "ece_after_temperature_percent" and runs:
        temperature = statistics.fmean(run["temperature"] for run in runs)
    return Cell(
        f"{row.dataset} {row.model}",
        column.label,
        metric,
        tuple(run[metric] for run in runs),
        len(plan.exhibit.seeds),
        temperature,
        plan.exhibit.published(row, column, metric),
        column.settings is None,
        not planned.is_as_published,
        (row.dataset, row.model, column.label) in published_cells(),
    )


def _ranks(lines: list[tuple[Cell, ...]]) -> tuple[float, ...] | None:
    means = [[cell.mean for cell in line if cell.mean is not None] for line in lines]
    is_full = all(len(known) == len(line) for known, line in zip(means, lines, strict=True))
    return tuple(average_ranks(means)) if is_full else None


def average_ranks(values: list[list[float]]) -> list[float]:
    """Mean rank of each column over rows; the lowest value ranks first, and ties share the lowest rank.

    Examples:
        >>> average_ranks([[1.0, 2.0, 2.0], [3.0, 1.0, 2.0]])
        [2.0, 1.5, 2.0]
    """
    ranks = [[1 + sum(other < value for other in row) for value in row] for row in values]
    return [sum(column) / len(values) for column in zip(*ranks, strict=True)]


def metric_name(metric: str) -> str:
    """A metric for people.

    Examples:
        >>> metric_name("ece_after_temperature_percent")
        'ECE after temperature, %'
    """
    words = metric.removesuffix("_percent").replace("_", " ").replace("ece", "ECE")
    return f"{words}, %" if metric.endswith("_percent") else words


def best_of(line: tuple[Cell, ...]) -> set[str]:
    """The columns that are best by mean as it is printed, all of them where several tie; none if there is no choice."""
    means = {cell.column: round(cell.mean, DIGITS) for cell in line if cell.mean is not None}
    if len(means) < 2:
        return set()
    worth = WORTH.get(line[0].metric, operator.neg)
    best = max(worth(mean) for mean in means.values())
    return {column for column, mean in means.items() if worth(mean) == best}


def markdown_table(data: TableData) -> str:
    """GitHub's tables: ours with the published figure in brackets, the best in bold."""
    head = ["", "metric", *data.columns]
    lines = [f"**{data.title}**", "", data.note, "", _pipes(head), _pipes(["---"] * len(head))]
    for line in data.cells:
        best = best_of(line)
        shown = [f"**{cell.text()}**" if cell.column in best else cell.text() for cell in line]
        both = [f"{ours} [{cell.published_text()}]" for ours, cell in zip(shown, line, strict=True)]
        lines.append(_pipes([line[0].row, metric_name(line[0].metric), *both]))
    lines += [_pipes([name, "", *ranks]) for name, ranks in data.rank_lines]
    lines += ["", f"In brackets: {PUBLISHED}"]
    if data.missing:
        lines += ["", f"{data.missing} cells lack seeds: `{data.command}` fills them."]
    return "\n".join(lines) + "\n"


def _pipes(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def csv_table(data: TableData) -> str:
    """One line a cell; no difference where ours is not of the published setting."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*OURS, *(f"published_{name}" for name in Published._fields), "difference", "setting"])
    for cell in (cell for line in data.cells for cell in line):
        said = cell.published or Published(float("nan"), None, None)
        ours = (cell.mean, cell.std, len(cell.values), cell.temperature)
        figures = ("" if v is None or v != v else v for v in (*ours, *said, cell.difference))
        writer.writerow([cell.row, cell.column, cell.metric, *figures, cell.setting])
    return text.getvalue()
