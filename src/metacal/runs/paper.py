"""`PaperTable` and `PaperFigure`: what the paper shows, as values: rows x columns x seeds -> specs."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

from metacal.runs.presets import reduced
from metacal.runs.recipes import build_spec
from metacal.runs.spec import RunSpec

SEEDS = (0, 1, 2)


class Published(NamedTuple):
    """A published figure: mean and standard deviation over seeds, and the temperature beside it where there is one."""

    mean: float
    std: float | None
    temperature: float | None


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
        dataset: as the paper calls it.
        model: as the paper calls it.
        settings: of its runs.
        over: how a figure comes from the test domains of a run: their ``average``, or the ``worst`` of them; None where
            there are no domains.
    """

    dataset: str
    model: str
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    over: str | None = None

    @property
    def name(self) -> str:
        """For commands: ``cifar-10/resnet18``."""
        return f"{self.dataset}/{self.model}".lower().replace(" ", "-")


@dataclass(frozen=True)
class Column:
    """A column of a table: a method.

    Attributes:
        label: as the paper calls it.
        settings: of its runs, ``method`` among them; None for figures quoted from the literature, which are never run.
        calibrated: how its temperature is chosen, where that is part of the column.
    """

    label: str
    settings: Mapping[str, Any] | None = field(default_factory=dict, hash=False)
    calibrated: str | None = None


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper.

    Attributes:
        name: for commands.
        number: in the paper.
        label: in the paper's source, and in the published figures.
        title: what it shows.
        claim: what the paper concludes from it.
        rows: its rows.
        columns: its columns.
        metrics: what is shown of a run; keys of the published figures.
        ranked: whether the paper closes it with average ranks.
        seeds: of each cell.
    """

    name: str
    number: str
    label: str
    title: str
    claim: str
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    metrics: tuple[str, ...]
    ranked: bool = False
    seeds: tuple[int, ...] = SEEDS

    def spec(
        self, row: Row, column: Column, seed: int, preset: str = "full", overrides: Mapping[str, Any] | None = None
    ) -> RunSpec | None:
        """The run behind one seed of one cell; None if it is only quoted."""
        if column.settings is None:
            return None
        settings = reduced({**row.settings, **column.settings, "seed": seed}, preset)
        return build_spec({**settings, **(overrides or {})})

    def specs(self, preset: str = "full", overrides: Mapping[str, Any] | None = None) -> list[RunSpec]:
        """All of its runs, each once."""
        found = (
            self.spec(row, column, seed, preset, overrides)
            for row in self.rows
            for column in self.columns
            for seed in self.seeds
        )
        return list({spec.hash: spec for spec in found if spec is not None}.values())

    def published(self, row: Row, column: Column, metric: str) -> Published | None:
        """What the paper says."""
        return published_figures().get((self.label, row.dataset, row.model, column.label, metric))


@dataclass(frozen=True)
class PaperFigure:
    """A figure of the paper, drawn from what runs have kept.

    Attributes:
        name: for commands.
        label: in the paper's source.
        title: what it shows.
        claim: what the paper concludes from it.
        drawing: which of the drawings of `metacal.reporting` it is.
        rows: data sets and models it is drawn for.
        columns: methods it is drawn for.
        seeds: of each run.
        options: of the drawing.
    """

    name: str
    label: str
    title: str
    claim: str
    drawing: str
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    seeds: tuple[int, ...] = SEEDS
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)


@lru_cache(maxsize=1)
def published_figures() -> dict[tuple[str, str, str, str, str], Published]:
    """Every published figure, by table, dataset, model, method and metric.

    Examples:
        >>> published_figures()["main_ece", "CIFAR-10", "ResNet18", "MC", "ece_percent"].mean
        1.17
    """
    with (files("metacal") / "assets" / "published.csv").open(encoding="utf-8") as file:
        return {
            (line["table"], line["dataset"], line["model"], line["method"], line["metric"]): Published(
                float(line["mean"]), _number(line["std"]), _number(line["temperature"])
            )
            for line in csv.DictReader(file)
        }


def _number(text: str) -> float | None:
    return float(text) if text else None


def average_ranks(values: list[list[float]]) -> list[float]:
    """Mean rank of each column over rows; the lowest value ranks first, and ties share the lowest rank.

    Examples:
        >>> average_ranks([[1.0, 2.0, 2.0], [3.0, 1.0, 2.0]])
        [2.0, 1.5, 2.0]
    """
    ranks = [[1 + sum(other < value for other in row) for value in row] for row in values]
    return [sum(column) / len(values) for column in zip(*ranks, strict=True)]
