"""Tables, figures and studies as data, the `Plan` of their runs, and its scales."""

import csv
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

from metacal.errors import InvalidValueError
from metacal.lab.training.recipes import build_spec
from metacal.lab.training.spec import METHODS, RunSpec

SCALES = ("full", "cpu", "smoke")

# Chosen with cross-entropy alone (validation ECE above 5 %), before any other run: docs/paper.md.
CPU_IMAGES: dict[str, dict[str, Any]] = {
    "cifar10": {"train_size": 9000, "meta_size": 1000, "epochs": 30, "milestones": [15, 23]},
    "cifar100": {"train_size": 9000, "meta_size": 1000, "epochs": 30, "milestones": [15, 23]},
    "svhn": {"train_size": 2500, "meta_size": 300, "epochs": 90, "milestones": [45, 68]},
}
CPU_SHARED: dict[str, Any] = {"val_size": 1000, "augment": False}
CPU_MODELS = {
    "resnet18": ("resnet8", {}),
    "resnet50": ("resnet8", {"width": 24}),
    "resnet110": ("resnet20", {}),
    "wideresnet-26-10": ("resnet8", {"width": 32}),
}
PUBLISHED: dict[str, Any] = {"meta": "split", "select": "accuracy", "finish": False}
"""The paper's settings, for datasets with our own recipe."""
SMOKE: dict[str, Any] = {
    **{"train_size": 64, "val_size": 64, "meta_size": 32},
    **{"batch_size": 32, "epochs": 2, "milestones": [1]},
}
KEPT_IN_SMOKE = (
    *("method", "seed", "nesterov", "weight_decay", "domains", "hold_out_meta"),
    *("outer", "meta", "through", "select", "finish", "published", "average"),
)
NOTES = {
    "full": "Made with {}, which is not the published setting: not comparable with the published figures.",
    "cpu": "Made at the {} (smaller models, fewer images and epochs; text as published): at most the order of methods "
    "is meaningful, and reduced runs are not comparable with the published figures.",
    "smoke": "Made at the smoke scale, on the digits, to check that everything runs: the figures are meaningless.",
}
"""Caveats for settings that are not the published ones."""


def scale_settings(settings: Mapping[str, Any], scale: str) -> dict[str, Any]:
    """Return the settings of a run at a scale.

    ``cpu`` keeps dataset, method and hyper-parameters, but uses fewer images, smaller models and fewer epochs; data
    other than images is run as published. ``smoke`` checks that everything runs, with the digits instead of images and
    text: its figures are meaningless.

    Examples:
        >>> scale_settings({"dataset": "cifar10", "model": "resnet18", "method": "mc"}, "cpu")["model"]
        'resnet8'
    """
    method, dataset = settings.get("method", "ce"), settings.get("dataset", "")
    meta = settings.get("meta", "val" if method == "meta" else "split")  # the paper's methods use a separate part
    if scale == "smoke":
        kept = {key: value for key, value in settings.items() if key in KEPT_IN_SMOKE}
        small = {"dataset": "digits", "model": "mlp", "model_options": {"hidden": [16]}, **kept, **SMOKE}
        if meta == "val":
            small.pop("meta_size")
        return small if method == "meta" else {**PUBLISHED, **small}
    if scale == "full" or dataset not in CPU_IMAGES:
        return dict(settings)
    model, options = CPU_MODELS[settings.get("model", "resnet18")]
    regime = dict(CPU_IMAGES[dataset])
    meta_size = regime.pop("meta_size")
    needs_part = METHODS[method].needs_meta and meta == "split"
    if needs_part or settings.get("hold_out_meta", False):  # as in the paper: 80 % of the data against 90 %
        regime |= {"train_size": regime["train_size"] - meta_size, "meta_size": meta_size}
    return {**settings, "model": model, "model_options": options, **CPU_SHARED, **regime}


class Published(NamedTuple):
    """A published figure: mean and standard deviation over seeds, and its temperature, if any."""

    mean: float
    std: float | None
    temperature: float | None


@dataclass(frozen=True)
class Row:
    """A row of a table: the paper's names of dataset and model, and the settings of its runs."""

    dataset: str
    model: str
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    over: str | None = None  # with test domains: the ``average`` or the ``worst`` figure

    @property
    def name(self) -> str:
        """The name for commands: ``cifar-10/resnet18``."""
        return f"{self.dataset}/{self.model}".lower().replace(" ", "-")

    @property
    def title(self) -> str:
        """The name for display."""
        return f"{self.dataset} {self.model}"


@dataclass(frozen=True)
class Column:
    """A column of a table: a method and the settings of its runs, None for figures quoted from the literature."""

    label: str
    settings: Mapping[str, Any] | None = field(default_factory=dict, hash=False)
    calibrated: str | None = None  # how to fit the temperature, if the column specifies it


class Draw(NamedTuple):
    """One draw of simulated data: n points to train on, n held-out points, and fresh ones for testing."""

    size: int
    seed: int
    test_points: int


@dataclass(frozen=True)
class PlannedCell:
    """The runs of one row and column, one per seed; none for quoted figures."""

    row: Row
    column: Column
    specs: tuple[RunSpec, ...]
    is_as_published: bool


@dataclass(frozen=True)
class Plan:
    """The runs of an exhibit at a scale, with the user's settings."""

    exhibit: "Exhibit"
    scale: str = "full"
    overrides: Mapping[str, Any] = field(default_factory=dict)  # settings for all runs
    cells: tuple[PlannedCell, ...] = ()
    draws: tuple[Draw, ...] = ()

    @property
    def specs(self) -> list[RunSpec]:
        """All specs, without duplicates."""
        return list({spec.hash: spec for cell in self.cells for spec in cell.specs}.values())

    @property
    def setting(self) -> str:
        """Difference from the published setting, such as ``cpu scale, epochs=3``; empty if none."""
        if all(cell.is_as_published for cell in self.cells) and not (self.draws and self.scale == "smoke"):
            return ""
        named = [] if self.scale == "full" else [f"{self.scale} scale"]
        return ", ".join([*named, *(f"{key}={value}" for key, value in self.overrides.items())])

    @property
    def title(self) -> str:
        """Number and title, with the setting if it is not the published one."""
        if not self.setting:
            return self.exhibit.heading
        what = "reduced" if self.setting.endswith("scale") else "reduced or changed"
        return f"{self.exhibit.heading} [{self.setting}: {what}, not comparable with the published figures]"

    @property
    def note(self) -> str:
        """A caveat for comparisons, if the setting is not the published one."""
        return NOTES[self.scale].format(self.setting) if self.setting else ""


@dataclass(frozen=True)
class Exhibit:
    """A table or figure, of the paper or our own; its title is in ``assets/exhibits.csv``.

    Its runs are rows x columns x seeds. The study on simulated data has draws instead, sizes x seeds, whose models are
    fitted in seconds and have no spec.
    """

    name: str  # for commands
    rows: tuple[Row, ...] = ()
    columns: tuple[Column, ...] = ()
    _: KW_ONLY
    seeds: tuple[int, ...] = (0, 1, 2)  # of each cell
    metrics: tuple[str, ...] = ()  # tables: the figures of a run; keys of the published figures
    ranked: bool = False  # whether the paper's table ends with average ranks
    baseline: str = ""  # our own tables: the column that others are compared with, seed by seed
    calibrated: str = "grid"  # how to fit temperatures, unless the column specifies it
    drawing: str = ""  # figures: a key of ``DRAWINGS`` in `figures`
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)  # of the drawing
    sizes: tuple[int, ...] = ()  # n, for each draw of simulated data
    test_points: int = 100_000  # fresh test points of a draw
    number: str = field(init=False)  # in the paper; empty if it is not in it
    label: str = field(init=False)  # in the paper's source, and in the published figures
    title: str = field(init=False)
    claim: str = field(init=False)  # what the paper concludes from it

    def __post_init__(self) -> None:
        for key, text in _words()[self.name].items():
            object.__setattr__(self, key, text)

    @property
    def kind(self) -> str:
        """``table`` or ``figure``."""
        return "figure" if self.drawing else "table"

    @property
    def tag(self) -> str:
        """The number for commands, such as ``table-1``, or the name if it has no number."""
        return f"{self.kind}-{self.number}" if self.number else self.name

    @property
    def heading(self) -> str:
        """Number and title."""
        return f"{self.kind.capitalize()} {self.number}: {self.title}" if self.number else self.title

    @property
    def cost(self) -> str:
        """The number of runs or draws at full scale, including those shared with other exhibits."""
        cells = {repr({**row.settings, **c.settings}) for row in self.rows for c in self.columns if c.settings}
        count = len(cells or self.sizes) * len(self.seeds)
        return f"{count} {'draw' if self.sizes else 'run'}{'s' if count > 1 else ''}"

    def plan(self, scale: str = "full", overrides: Mapping[str, Any] | None = None) -> Plan:
        """Plan every run and draw; at the smoke scale there is one draw, with few test points."""
        if scale not in SCALES:
            raise InvalidValueError(f"`scale` must be one of {', '.join(SCALES)}, got {scale!r}.")
        changes = dict(overrides or {})
        cells = tuple(self._cell(row, column, scale, changes) for row in self.rows for column in self.columns)
        draws = tuple(Draw(size, seed, self.test_points) for size in self.sizes for seed in self.seeds)
        if scale == "smoke":
            draws = tuple(draw._replace(test_points=2000) for draw in draws[:1])
        return Plan(self, scale, changes if cells else {}, cells, draws)

    def specs(self, scale: str = "full", overrides: Mapping[str, Any] | None = None) -> list[RunSpec]:
        """The specs of all runs, without duplicates."""
        return self.plan(scale, overrides).specs

    def _cell(self, row: Row, column: Column, scale: str, overrides: dict[str, Any]) -> PlannedCell:
        if column.settings is None:
            return PlannedCell(row, column, (), is_as_published=True)
        seeds = [{**row.settings, **column.settings, "seed": seed} for seed in self.seeds]
        scaled = [{**scale_settings(settings, scale), **overrides} for settings in seeds]
        specs = tuple(map(build_spec, scaled))
        same = scaled == seeds or (bool(overrides) and specs[0] == build_spec(seeds[0]))
        return PlannedCell(row, column, specs, same)

    def published(self, row: Row, column: Column, metric: str) -> Published | None:
        """The published figures of this table."""
        return published_figures().get((self.label, row.dataset, row.model, column.label, metric))


@lru_cache(maxsize=1)
def published_figures() -> dict[tuple[str, str, str, str, str], Published]:
    """Every published figure, by table, dataset, model, method and metric.

    Examples:
        >>> published_figures()["main_ece", "CIFAR-10", "ResNet18", "MC", "ece_percent"].mean
        1.17
    """
    return {
        (line["table"], line["dataset"], line["model"], line["method"], line["metric"]): Published(
            float(line["mean"]), *(float(line[key]) if line[key] else None for key in ("std", "temperature"))
        )
        for line in _read_asset("published.csv")
    }


@lru_cache(maxsize=1)
def published_cells() -> frozenset[tuple[str, str, str]]:
    """Dataset, model and method of every published figure."""
    return frozenset(key[1:4] for key in published_figures())


@lru_cache(maxsize=1)
def _words() -> dict[str, dict[str, str]]:
    return {line["name"]: line for line in _read_asset("exhibits.csv")}


def _read_asset(name: str) -> list[dict[str, str]]:
    with (files("metacal") / "assets" / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))
