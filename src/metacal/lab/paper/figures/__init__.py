"""Figures of the paper, from what runs have kept: each drawing is a ``prepare_*`` (numbers) and a ``plot_*``."""

from metacal.lab.paper.figures.figure import DRAWINGS, FigureData, plot_figure, prepare_figure

__all__ = ["DRAWINGS", "FigureData", "plot_figure", "prepare_figure"]
