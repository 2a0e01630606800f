"""Reports: ``prepare_*`` computes the numbers, ``plot_*`` and the page draw exactly those."""

from metacal.reporting.page import render_page, write_report
from metacal.reporting.prediction_plots import reliability_curves, reliability_diagram
from metacal.reporting.report import Report, prepare_report
from metacal.reporting.runs import RunView

__all__ = [
    "Report",
    "RunView",
    "prepare_report",
    "reliability_curves",
    "reliability_diagram",
    "render_page",
    "write_report",
]
