"""How near differentiable stand-ins come to ECE over training: correlations over minibatches, and mean values."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from metacal.functional import dece, expected_calibration_error, soft_binned_ece
from metacal.lab.paper.figures.panels import Band, Panel, band_of, draw_bands
from metacal.lab.training.run_folder import RunFolder
from metacal.reporting.learning import correlation
from metacal.reporting.style import in_percent, new_figure

BATCH = 128
BATCHES = 100
MOST_EPOCHS = 40
"""Epochs looked at, evenly over training."""


@dataclass(frozen=True)
class AgreementPanel:
    """Bands over the epochs looked at.

    Attributes:
        name: of the panel.
        epochs: looked at.
        correlations: with ECE, over minibatches.
        means: over minibatches, ECE itself first.
    """

    name: str
    epochs: list[int]
    correlations: list[Band]
    means: list[Band]


def prepare_agreement_over_training(panels: Sequence[Panel], options: Mapping[str, Any]) -> list[AgreementPanel]:
    """Correlations and means of minibatches of 128 validation samples (or half of them), by epoch, over seeds.

    Options:
        ``sbece_temperature`` adds SB-ECE at that temperature; ``spearman`` adds the correlation of ranks.
    """
    stand_ins: dict[str, Callable[..., Tensor]] = {"DECE": dece}
    if "sbece_temperature" in options:
        stand_ins["SB-ECE"] = partial(soft_binned_ece, temperature=options["sbece_temperature"], power=1.0)
    prepared = []
    for panel in panels:
        last = min(len(run.read_history()) for run in panel.runs)
        epochs = sorted({round(1 + step * (last - 1) / (MOST_EPOCHS - 1)) for step in range(MOST_EPOCHS)})
        tables = [torch.stack([figures_of_epoch(run, epoch, stand_ins) for epoch in epochs]) for run in panel.runs]
        prepared.append(_panel(panel, epochs, list(stand_ins), torch.stack(tables), bool(options.get("spearman"))))
    return prepared


def figures_of_epoch(run: RunFolder, epoch: int, stand_ins: Mapping[str, Callable[..., Tensor]]) -> Tensor:
    """ECE and each stand-in of minibatches of the validation set after an epoch: ``(1 + stand-ins, minibatches)``.

    The minibatches are random, the same in every epoch and for every run.
    """
    logits, targets = run.read_epoch(epoch)["val_logits"].float(), run.read_predictions("val").targets
    order = torch.Generator().manual_seed(0)
    size = min(BATCH, len(targets) // 2)
    rows = [torch.randperm(len(targets), generator=order)[:size] for _ in range(BATCHES)]
    measures: list[Callable[..., Tensor]] = [partial(expected_calibration_error, validate=False), *stand_ins.values()]
    return torch.tensor(
        [[float(measure(logits=logits[some], targets=targets[some])) for some in rows] for measure in measures],
        dtype=torch.float64,
    )


def _panel(panel: Panel, epochs: list[int], names: list[str], values: Tensor, spearman: bool) -> AgreementPanel:
    ece = values[:, :, 0]
    correlations = []
    for place, name in enumerate(names, start=1):
        correlations.append(band_of(f"{name}, Pearson", correlation(ece, values[:, :, place])))
        if spearman:
            ranked = correlation(ranks(ece), ranks(values[:, :, place]))
            correlations.append(band_of(f"{name}, Spearman", ranked))
    means = [band_of(name, values[:, :, place].mean(dim=-1)) for place, name in enumerate(("ECE", *names))]
    return AgreementPanel(panel.name, epochs, correlations, means)


def ranks(values: Tensor) -> Tensor:
    """Ranks over the last dimension, ties sharing their mean rank.

    Examples:
        >>> ranks(torch.tensor([0.3, 0.1, 0.3])).tolist()
        [1.5, 0.0, 1.5]
    """
    wide = values.unsqueeze(-1)
    below = (values.unsqueeze(-2) < wide).sum(dim=-1)
    equal = (values.unsqueeze(-2) == wide).sum(dim=-1)
    return below + (equal - 1) / 2


def plot_agreement_over_training(panels: Sequence[AgreementPanel]) -> Figure:
    """A row of axes for each panel: correlations, then means."""
    figure = new_figure(8.4, 3.2 * len(panels))
    for axes, panel in zip(figure.subplots(len(panels), 2, squeeze=False), panels, strict=True):
        lowest = min(min(band.mean) for band in panel.correlations)
        for axis, title, bands in zip(
            axes, ("Correlation with ECE", "Mean of minibatches"), (panel.correlations, panel.means), strict=True
        ):
            draw_bands(axis, bands, panel.epochs)
            axis.set(title=f"{title}: {panel.name}", xlabel="Epoch")
            axis.legend()
        axes[0].set_ylim(min(0.5, lowest - 0.05), 1.02)
        axes[1].set_ylim(0.0, None)
        in_percent(axes[1])
    return figure
