"""Reports: ``prepare_*`` works out the numbers, ``plot_*`` and the page draw exactly those."""

from metacal.reporting.page import render_page
from metacal.reporting.report import Report, prepare_report
from metacal.reporting.runs import RunView

__all__ = ["Report", "RunView", "prepare_report", "render_page"]
