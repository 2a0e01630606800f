"""A table of the paper, ours beside the published: the numbers; `table_formats` writes them."""

import statistics
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from metacal.errors import MetacalWarning
from metacal.functional import classwise_calibration_error, expected_calibration_error
from metacal.posthoc import TemperatureScaling
from metacal.runs.paper import Column, PaperTable, Published, Row, average_ranks
from metacal.runs.run_store import RunStore
from metacal.runs.store import RunFolder

CALIBRATIONS = {
    "grid": TemperatureScaling(method="grid"),
    "lbfgs-10": TemperatureScaling(method="lbfgs", max_iterations=10),
    "lbfgs-50": TemperatureScaling(method="lbfgs", max_iterations=50),
}
DIGITS = {"training_hours": 2}
HIGHER_IS_BETTER = ("accuracy_percent",)


@dataclass(frozen=True)
class Cell:
    """One cell: ours over the seeds that are done, and the published figure.

    Attributes:
        row: name of the row.
        column: label of the column.
        metric: what is shown.
        values: one a seed.
        wanted: how many seeds there should be.
        temperature: mean over seeds, where a temperature was fitted.
        published: what the paper says.
        is_quoted: figures from the literature, never run.
    """

    row: str
    column: str
    metric: str
    values: tuple[float, ...]
    wanted: int
    temperature: float | None
    published: Published | None
    is_quoted: bool = False

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
        """Ours minus published."""
        return None if self.mean is None or self.published is None else self.mean - self.published.mean

    def text(self) -> str:
        """Ours as it is printed."""
        if self.mean is None:
            return "quoted" if self.is_quoted else "-"
        digits = DIGITS.get(self.metric, 2)
        spread = "" if self.std is None else f" ± {self.std:.{digits}f}"
        missing = "" if len(self.values) == self.wanted else f" ({len(self.values)} of {self.wanted})"
        heat = "" if self.temperature is None else f" (T {self.temperature:.1f})"
        return f"{self.mean:.{digits}f}{spread}{heat}{missing}"

    def published_text(self) -> str:
        """The published figure as it is printed."""
        if self.published is None:
            return "-"
        spread = "" if self.published.std is None else f" ± {self.published.std:.2f}"
        return f"{self.published.mean:.2f}{spread}"


@dataclass(frozen=True)
class TableData:
    """The numbers of a table.

    Attributes:
        name: of the table.
        title: with the preset in it, if it is a reduced one.
        claim: what the paper concludes from it.
        note: what a reader must know before comparing.
        columns: labels.
        cells: row by row, metric by metric.
        ranks: average rank of each column, ours; None where cells are missing.
        is_reduced: made with a reduced preset.
    """

    name: str
    title: str
    claim: str
    note: str
    columns: tuple[str, ...]
    cells: tuple[tuple[Cell, ...], ...]
    ranks: tuple[float, ...] | None
    is_reduced: bool = False

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def measure(folder: RunFolder, calibrated: str | None = None) -> dict[str, float]:
    """Every figure that tables show of a run, from its predictions; nothing is trained or run again."""
    scores, val, test = folder.read_scores(), folder.read_predictions("val"), folder.read_predictions("test")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MetacalWarning)  # the table shows the temperature itself
        scaling = CALIBRATIONS[calibrated or "grid"].fit(logits=val.logits, targets=val.targets)
    scaled = test.logits / scaling.temperature
    ece = 100 * float(expected_calibration_error(logits=test.logits, targets=test.targets))
    return {
        "ece_percent": ece,
        "ece_after_temperature_percent": 100 * float(expected_calibration_error(logits=scaled, targets=test.targets)),
        "error_percent": 100 * (1 - scores["test"]["accuracy"]),
        "accuracy_percent": 100 * scores["test"]["accuracy"],
        "classwise_ece_percent": 100 * float(classwise_calibration_error(logits=test.logits, targets=test.targets)),
        "training_hours": scores["train_seconds"] / 3600,
        "temperature": scaling.temperature,
    }


def preset_title(heading: str, preset: str) -> str:
    """A heading that says so where a reduced preset was used."""
    reduced = "" if preset == "full" else f" [{preset} preset: reduced, not comparable with the published figures]"
    return f"{heading}{reduced}"


def preset_note(preset: str) -> str:
    """What a reader must know before comparing."""
    if preset == "full":
        return "Ours: mean ± standard deviation over seeds."
    return (
        f"Ours was made with the {preset} preset (smaller models, data and epochs): at most the order of methods can "
        "be read off it, and it does not stand against the published figures."
    )


def prepare_table(
    table: PaperTable, store: RunStore, preset: str = "full", overrides: Mapping[str, Any] | None = None
) -> TableData:
    """Gather what the store has of a table."""
    lines = []
    for row in table.rows:
        found = {column.label: _measured(table, row, column, store, preset, overrides) for column in table.columns}
        for metric in table.metrics:
            lines.append(tuple(_cell(table, row, column, metric, found[column.label]) for column in table.columns))
    return TableData(
        table.name,
        preset_title(table.heading, preset),
        table.claim,
        preset_note(preset),
        tuple(column.label for column in table.columns),
        tuple(lines),
        _ranks(table, lines),
        is_reduced=preset != "full",
    )


def _measured(
    table: PaperTable,
    row: Row,
    column: Column,
    store: RunStore,
    preset: str,
    overrides: Mapping[str, Any] | None,
) -> list[dict[str, float]]:
    specs = (table.spec(row, column, seed, preset, overrides) for seed in table.seeds)
    folders = (store.folder(spec) for spec in specs if spec is not None)
    return [measure(folder, column.calibrated) for folder in folders if folder.is_complete]


def _cell(table: PaperTable, row: Row, column: Column, metric: str, runs: list[dict[str, float]]) -> Cell:
    heat = None
    if metric == "ece_after_temperature_percent" and runs:
        heat = statistics.fmean(run["temperature"] for run in runs)
    return Cell(
        f"{row.dataset} {row.model}",
        column.label,
        metric,
        tuple(run[metric] for run in runs),
        len(table.seeds),
        heat,
        table.published(row, column, metric),
        column.settings is None,
    )


def _ranks(table: PaperTable, lines: list[tuple[Cell, ...]]) -> tuple[float, ...] | None:
    means = [[cell.mean for cell in line] for line in lines]
    if not table.ranked or any(mean is None for line in means for mean in line):
        return None
    return tuple(average_ranks([[mean for mean in line if mean is not None] for line in means]))


def metric_name(metric: str) -> str:
    """A metric for people.

    Examples:
        >>> metric_name("ece_after_temperature_percent")
        'ECE after temperature, %'
    """
    words = metric.removesuffix("_percent").replace("_", " ").replace("ece", "ECE")
    return f"{words}, %" if metric.endswith("_percent") else words


def best_of(line: tuple[Cell, ...]) -> Cell | None:
    """The best of a line's cells by mean; None where fewer than two are there."""
    there = [cell for cell in line if cell.mean is not None]
    if len(there) < 2:
        return None
    pick = max if there[0].metric in HIGHER_IS_BETTER else min
    return pick(there, key=lambda cell: cell.mean or 0.0)
