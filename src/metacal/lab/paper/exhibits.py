"""Exhibits of the paper as values: `PaperTable`, `PaperFigure`, `SimulatedStudy`; rows x columns x seeds -> specs."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

from metacal.lab.paper.scales import check_scale, scale_settings
from metacal.lab.training.recipes import build_spec
from metacal.lab.training.spec import RunSpec

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


class Draw(NamedTuple):
    """One draw of simulated data: n points to train on and n to look at, so many fresh ones to test on."""

    size: int
    seed: int
    test_points: int


@dataclass(frozen=True, kw_only=True)
class Exhibit:
    """Something the paper shows: rows x columns x seeds give its runs.

    Attributes:
        name: for commands.
        number: in the paper; empty for what is not in it.
        label: in the paper's source, and in the published figures.
        title: what it shows.
        claim: what the paper concludes from it.
        rows: data sets and models.
        columns: methods.
        seeds: of each cell.
    """

    name: str
    number: str
    label: str
    title: str
    claim: str
    rows: tuple[Row, ...] = ()
    columns: tuple[Column, ...] = ()
    seeds: tuple[int, ...] = SEEDS

    @property
    def kind(self) -> str:
        """``table`` or ``figure``."""
        return "table"

    @property
    def tag(self) -> str:
        """Its number for commands, such as ``table-1``; its name if it has none."""
        return f"{self.kind}-{self.number}" if self.number else self.name

    @property
    def heading(self) -> str:
        """Number and title."""
        return f"{self.kind.capitalize()} {self.number}: {self.title}" if self.number else self.title

    def spec(
        self, row: Row, column: Column, seed: int, scale: str = "full", overrides: Mapping[str, Any] | None = None
    ) -> RunSpec | None:
        """The run behind one seed of one cell; None if it is only quoted."""
        if column.settings is None:
            return None
        settings = scale_settings({**row.settings, **column.settings, "seed": seed}, scale)
        return build_spec({**settings, **(overrides or {})})

    def specs(self, scale: str = "full", overrides: Mapping[str, Any] | None = None) -> list[RunSpec]:
        """All of its runs, each once."""
        found = (
            self.spec(row, column, seed, scale, overrides)
            for row in self.rows
            for column in self.columns
            for seed in self.seeds
        )
        return list({spec.hash: spec for spec in found if spec is not None}.values())

    def is_as_published(self, row: Row, column: Column, scale: str, overrides: Mapping[str, Any] | None) -> bool:
        """Whether a cell is run in the published setting, neither reduced nor changed; what is quoted is."""
        ours, theirs = (self.spec(row, column, 0, *given) for given in ((scale, overrides), ()))
        return ours == theirs

    def setting(self, scale: str = "full", overrides: Mapping[str, Any] | None = None) -> str:
        """What sets this apart from the published setting, such as ``cpu scale, epochs=3``; empty if nothing does."""
        if all(self.is_as_published(row, column, scale, overrides) for row in self.rows for column in self.columns):
            return ""
        named = [] if scale == "full" else [f"{scale} scale"]
        return ", ".join([*named, *(f"{key}={value}" for key, value in (overrides or {}).items())])

    def draws(self, scale: str = "full") -> list[Draw]:
        """The draws of simulated data it needs, beside its runs."""
        return []


@dataclass(frozen=True, kw_only=True)
class PaperTable(Exhibit):
    """A table of the paper.

    Attributes:
        metrics: what is shown of a run; keys of the published figures.
        ranked: whether the paper closes it with average ranks.
    """

    metrics: tuple[str, ...]
    ranked: bool = False

    def published(self, row: Row, column: Column, metric: str) -> Published | None:
        """What the paper says."""
        return published_figures().get((self.label, row.dataset, row.model, column.label, metric))

    def has_published(self, row: Row, column: Column) -> bool:
        """Whether any table of the paper has this method on this data with this model."""
        return (row.dataset, row.model, column.label) in published_cells()

    def published_rank(self, column: Column) -> float | None:
        """The average rank that the paper gives a method."""
        found = published_figures().get((self.label, "average rank", "", column.label, "average_rank"))
        return None if found is None else found.mean


@dataclass(frozen=True, kw_only=True)
class PaperFigure(Exhibit):
    """A figure of the paper, drawn from what runs have kept.

    Attributes:
        drawing: which of the drawings of `metacal.lab.paper.figures` it is.
        options: of the drawing.
    """

    drawing: str
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def kind(self) -> str:
        """``figure``."""
        return "figure"


@dataclass(frozen=True, kw_only=True)
class SimulatedStudy(Exhibit):
    """A table or figure of the study on simulated data, whose models are fitted in seconds and have no spec.

    Attributes:
        shows: ``table``, ``sweep`` or ``boundary``.
        sizes: n, for each of its draws.
        test_points: fresh points that accuracy and ECE are measured on.
    """

    shows: str
    sizes: tuple[int, ...]
    test_points: int = 100_000

    @property
    def kind(self) -> str:
        """``table``, or ``figure`` for a sweep or boundaries."""
        return "table" if self.shows == "table" else "figure"

    def setting(self, scale: str = "full", overrides: Mapping[str, Any] | None = None) -> str:
        """``smoke scale``, the only one that reduces it, or nothing; there are no runs that overrides could change."""
        return "smoke scale" if scale == "smoke" else ""

    def draws(self, scale: str = "full") -> list[Draw]:
        """Every size and seed; under ``smoke`` the first of each, with few test points."""
        check_scale(scale)
        if scale == "smoke":
            return [Draw(self.sizes[0], self.seeds[0], 2000)]
        return [Draw(size, seed, self.test_points) for size in self.sizes for seed in self.seeds]


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


@lru_cache(maxsize=1)
def published_cells() -> frozenset[tuple[str, str, str]]:
    """Dataset, model and method of every published figure.

    Examples:
        >>> ("20 Newsgroups", "Global Pooling CNN", "MC") in published_cells()
        True
    """
    return frozenset((dataset, model, method) for _, dataset, model, method, _ in published_figures())


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
