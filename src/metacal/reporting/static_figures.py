"""`write_figures`: every figure of a report as PNG and SVG, for papers and slides."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metacal.reporting import prediction_plots, run_plots
from metacal.reporting.report import Report, Subject, unused_name
from metacal.reporting.shift_plots import plot_shift
from metacal.reporting.style import FORMATS, house_style, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LONGEST_NAME = 80
RUN_FIGURES: dict[str, tuple[str, Callable[[Any], Figure]]] = {
    "curves": ("curves", run_plots.plot_curves),
    "agreement": ("dece-against-ece", run_plots.plot_agreement),
    "strengths": ("strengths", run_plots.plot_strengths),
    "smoothing": ("smoothing", run_plots.plot_smoothing),
    "superclasses": ("superclasses", run_plots.plot_superclasses),
    "l2": ("l2", run_plots.plot_l2),
}
"""By part of a run's report: the name of its figure, and what draws it."""


def write_figures(report: Report, folder: Path) -> list[Path]:
    """Write every figure as ``<subject>-<figure>.png`` and ``.svg``; the folder is made if need be.

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
    """Yield ``(file stem, figure)``, one at a time so that few are held in memory."""
    if report.comparison is not None:
        named = [(subject.name, subject.predictions) for subject in report.subjects if subject.predictions is not None]
        yield "comparison-ece", prediction_plots.plot_errors(report.comparison)
        reliabilities = [(name, part.reliability) for name, part in named]
        yield "comparison-reliability", prediction_plots.plot_compared_reliability(reliabilities)
        curves = [(name, part.risk_coverage) for name, part in named]
        yield "comparison-risk-coverage", prediction_plots.plot_risk_coverage(curves)
    taken: set[str] = {"comparison"} if report.comparison is not None else set()
    for subject in report.subjects:
        stem = file_stem(subject.name, taken)
        taken.add(stem)
        for kind, figure in draw_subject(subject):
            yield f"{stem}-{kind}", figure


def draw_subject(subject: Subject) -> Iterator[tuple[str, Figure]]:
    """Yield ``(kind, figure)`` of one subject."""
    if (run := subject.run) is not None:
        for name, (kind, plot) in RUN_FIGURES.items():
            if numbers := getattr(run, name):
                yield kind, plot(numbers)
        for shift in run.shifts:
            yield f"shift-{shift.name}", plot_shift(shift)
    if (part := subject.predictions) is not None:
        yield "reliability", prediction_plots.plot_reliability(part.reliability)
        yield "temperature", prediction_plots.plot_temperatures(part.reliability)
        if part.groups is not None:
            yield "groups", prediction_plots.plot_errors(part.groups)
        if part.positive is not None:
            yield "positive", prediction_plots.plot_positive(part.positive)
        yield "classes", prediction_plots.plot_classes(part.classes)
        yield "risk-coverage", prediction_plots.plot_risk_coverage([(subject.name, part.risk_coverage)])


def file_stem(name: str, taken: set[str]) -> str:
    """A file name for a subject: letters, digits, dots, dashes and underscores only, and none that is taken.

    Examples:
        >>> file_stem("../a b<c>.npz", set()), file_stem("x", {"x"})
        ('a-b-c-.npz', 'x-2')
    """
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-")[:LONGEST_NAME] or "subject"
    return unused_name(stem, taken, "{}-{}")
