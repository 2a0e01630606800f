"""`write_figures`: writes the figures of a report as PNG and SVG, for papers and slides."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from metacal.reporting import prediction_plots, run_plots
from metacal.reporting.report import Report, Subject, unused_name
from metacal.reporting.style import FORMATS, house_style, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LONGEST_NAME = 80


def write_figures(report: Report, folder: Path) -> list[Path]:
    """Write figures as ``<subject>-<figure>.png`` and ``.svg``, creating the folder.

    Returns:
        The files written, in order.

    Raises:
        StorageError: one could not be written.
    """
    written = []
    with house_style():
        for name, figure in draw_report(report):
            for suffix in FORMATS:
                written.append(folder / f"{name}.{suffix}")
                save_figure(figure, written[-1])
    return written


def draw_report(report: Report) -> Iterator[tuple[str, Figure]]:
    """Yield ``(file stem, figure)`` one at a time, to limit memory."""
    taken: set[str] = set()
    if report.comparison is not None:
        taken.add("comparison")
        named = [(subject.name, subject.predictions) for subject in report.subjects if subject.predictions is not None]
        yield "comparison-ece", prediction_plots.plot_errors(report.comparison)
        reliabilities = [(name, part.reliability) for name, part in named]
        yield "comparison-reliability", prediction_plots.plot_compared_reliability(reliabilities)
        curves = [(name, part.risk_coverage) for name, part in named]
        yield "comparison-risk-coverage", prediction_plots.plot_risk_coverage(curves)
    for subject in report.subjects:
        stem = file_stem(subject.name, taken)
        taken.add(stem)
        for kind, figure in draw_subject(subject):
            yield f"{stem}-{kind}", figure


def draw_subject(subject: Subject) -> Iterator[tuple[str, Figure]]:
    """Yield ``(kind, figure)`` of one subject."""
    if (run := subject.run) is not None:
        if run.smoothing is not None:
            yield "smoothing", run_plots.plot_smoothing(run.smoothing)
        if run.superclasses is not None:
            yield "superclasses", run_plots.plot_superclasses(run.superclasses)
        if run.l2:
            yield "l2", run_plots.plot_l2(run.l2)
        for shift in run.shifts:
            yield f"shift-{shift.name}", run_plots.plot_shift(shift)
    if (part := subject.predictions) is not None:
        yield "reliability", prediction_plots.plot_reliability(part.reliability)
        if part.groups is not None:
            yield "groups", prediction_plots.plot_errors(part.groups)
        if part.positive is not None:
            yield "positive", prediction_plots.plot_positive(part.positive)
        yield "risk-coverage", prediction_plots.plot_risk_coverage([(subject.name, part.risk_coverage)])


def file_stem(name: str, taken: set[str]) -> str:
    """Return an unused file name for a subject: letters, digits, dots, dashes and underscores."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-")[:LONGEST_NAME] or "subject"
    return unused_name(stem, taken, "{}-{}")
