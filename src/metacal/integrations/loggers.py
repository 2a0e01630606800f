"""Figures for the loggers of Lightning and Fabric: TensorBoard, MLflow, Weights & Biases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from metacal.evaluation.predictions import Predictions
from metacal.metalearning import Hyperparameter, LabelSmoothingHyperparameter
from metacal.reporting.prediction_plots import plot_reliability
from metacal.reporting.reliability import prepare_reliability
from metacal.reporting.run_plots import plot_smoothing
from metacal.reporting.runs import prepare_smoothing
from metacal.reporting.style import house_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def log_reliability(logger: Any, predictions: Predictions, step: int, name: str = "reliability") -> bool:
    """Send a reliability diagram, as given and at the best temperature; False if the logger takes no images."""
    with house_style():
        return log_figure(logger, name, plot_reliability(prepare_reliability(predictions)), step)


def log_smoothing(
    logger: Any, hyperparameters: Hyperparameter, step: int, class_names: Sequence[str] | None = None
) -> bool:
    """Send the learned smoothing matrix; False if there is none, or the logger takes no images."""
    found = [part for part in hyperparameters.modules() if isinstance(part, LabelSmoothingHyperparameter)]
    if not found:
        return False
    matrix = torch.tensor(found[0].export()["soft_labels"])
    names = tuple(class_names or map(str, range(len(matrix))))
    with house_style():
        return log_figure(logger, "smoothing", plot_smoothing(prepare_smoothing(matrix, names)), step)


def log_figure(logger: Any, name: str, figure: Figure, step: int) -> bool:
    """Send a figure to a logger of Lightning or Fabric; False if it takes no images, such as a CSV logger."""
    experiment: Any = getattr(logger, "experiment", None)
    if hasattr(logger, "log_image"):  # Weights & Biases
        logger.log_image(key=name, images=[_pixels(figure)], step=step)
    elif hasattr(experiment, "add_image"):  # TensorBoard
        experiment.add_image(name, _pixels(figure), global_step=step, dataformats="HWC")
    elif hasattr(experiment, "log_figure") and hasattr(logger, "run_id"):  # MLflow
        experiment.log_figure(logger.run_id, figure, f"{name}/step-{step:08d}.png")
    else:
        return False
    return True


def _pixels(figure: Figure) -> NDArray[np.uint8]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    return np.ascontiguousarray(np.asarray(canvas.buffer_rgba())[..., :3])
