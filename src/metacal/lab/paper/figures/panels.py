"""What figures over several seeds share: the runs of a panel, and bands of mean and spread."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from matplotlib.axes import Axes
from torch import Tensor

from metacal.lab.training.read_run import read_run
from metacal.lab.training.run_folder import RunFolder
from metacal.reporting.run_view import RunView
from metacal.reporting.style import SERIES


@dataclass(frozen=True)
class Panel:
    """The complete runs of one data set, model and method.

    Attributes:
        row: data set and model.
        column: method.
        runs: one a seed.
    """

    row: str
    column: str
    runs: tuple[RunFolder, ...]

    @property
    def name(self) -> str:
        """Data set, model and method."""
        return f"{self.row}, {self.column}"

    def views(self) -> list[RunView]:
        """What a report shows of each run."""
        return [read_run(run.path) for run in self.runs]


@dataclass(frozen=True)
class Band:
    """A line with its spread: mean and population standard deviation over seeds (and whatever else is said)."""

    name: str
    mean: list[float]
    std: list[float]


def band_of(name: str, values: Sequence[Sequence[float]] | Tensor) -> Band:
    """A band over the first dimension; seeds that stopped early cut it to the shortest.

    Examples:
        >>> band_of("ECE", [[1.0, 2.0], [3.0, 2.0, 9.0]])
        Band(name='ECE', mean=[2.0, 2.0], std=[1.0, 0.0])
    """
    shortest = min(len(row) for row in values)
    rows = torch.stack([torch.as_tensor(row, dtype=torch.float64)[:shortest] for row in values])
    return Band(name, rows.mean(dim=0).tolist(), rows.std(dim=0, correction=0).tolist())


def draw_bands(axis: Axes, bands: Sequence[Band], epochs: Sequence[int] | None = None) -> None:
    """Lines over epochs (1, 2, ... unless given) with their spread as a shade."""
    for number, band in enumerate(bands):
        colour, style = SERIES[number % len(SERIES)]
        steps = epochs or range(1, len(band.mean) + 1)
        low = [mean - std for mean, std in zip(band.mean, band.std, strict=True)]
        high = [mean + std for mean, std in zip(band.mean, band.std, strict=True)]
        axis.plot(steps, band.mean, color=colour, linestyle=style, label=band.name)
        axis.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
