"""`render_page`: a prepared report as one self-contained, offline HTML page."""

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from functools import lru_cache
from importlib.metadata import version as installed_version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metacal.errors import InvalidTypeError, needs
from metacal.evaluation.evaluation import Evaluation
from metacal.evaluation.predictions import Predictions
from metacal.files import write_text
from metacal.reporting.report import Origin, Report, prepare_report

if TYPE_CHECKING:
    from jinja2 import Environment

SCRIPTS = ("chart.js", "predictions.js", "runs.js", "page.js")
DIGITS = 7


def render_page(report: Report, version: str = "") -> str:
    """Return the page's HTML.

    Text from data is escaped in markup by the template engine and in the embedded JSON by `embedded_json`; the page's
    own policy (CSP) allows no script or style but the two that ship with it, and no request at all.

    Args:
        report: the numbers.
        version: of metacal, for the page's foot.
    """
    if not isinstance(report, Report):
        raise InvalidTypeError(f"`report` must be what prepare_report returns, got {type(report).__name__}.")
    data, script = embedded_json(report.as_dict()), page_assets()[1]
    found = {"script": script, "script_hash": policy_hash(script), "version": version}
    return render("report.html.j2", report=report, data=data, **found)


def write_report(subjects: Sequence[Predictions | Evaluation], path: str | Path) -> Path:
    """Prepare predictions, side by side if there are several, write their page and return its path."""
    report = replace(prepare_report(subjects), origin=Origin(datetime.now(timezone.utc).date().isoformat()))
    write_text(Path(path), render_page(report, installed_version("metacal")))
    return Path(path)


def render(template: str, **values: Any) -> str:
    """Render a template of this package with the style sheet and these values."""
    style, _ = page_assets()
    found = template_environment().get_template(template)
    return found.render(style=style, style_hash=policy_hash(style), **values)


def embedded_json(value: Any) -> str:
    r"""Return JSON for a ``<script>`` element that cannot close the element or open a comment.

    Floats keep seven significant digits: what a page shows, at half the size.

    Examples:
        >>> embedded_json({"name": "</script><b>", "value": 0.1 + 0.2})
        '{"name":"\\u003c/script\\u003e\\u003cb\\u003e","value":0.3}'
    """
    text = json.dumps(_shortened(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _shortened(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: _shortened(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_shortened(item) for item in value]
    return value


@lru_cache(maxsize=1)
def page_assets() -> tuple[str, str]:
    """Return the style sheet and the scripts, joined in one scope."""
    folder = files("metacal.reporting") / "templates"
    scripts = "".join((folder / name).read_text(encoding="utf-8") for name in SCRIPTS)
    return (folder / "report.css").read_text(encoding="utf-8"), f'(() => {{\n"use strict";\n{scripts}}})();\n'


def policy_hash(text: str) -> str:
    """Return the hash of a style or script for the page's security policy."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@lru_cache(maxsize=1)
def template_environment() -> "Environment":
    """Return the templates of this package, which escape text from data."""
    with needs("cli"):
        from jinja2 import Environment, PackageLoader, StrictUndefined
    rules: dict[str, Any] = {"autoescape": True, "undefined": StrictUndefined, "trim_blocks": True}
    environment = Environment(loader=PackageLoader("metacal.reporting"), lstrip_blocks=True, **rules)
    environment.filters |= {
        "number": _number,
        "percent": _percent,
        "figure": lambda value, is_share, digits=2: _percent(value, digits) if is_share else _number(value),
        "difference": _difference,
        "near_end": _near_end,
        "points": lambda value: _difference(value, True, digits=1),
        "thousands": lambda value: f"{value:,}",
    }
    return environment


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.4f}" if abs(value) < 1e5 else f"{value:.4g}"


def _difference(value: float | None, is_share: bool, unit: str = "\u00a0points", digits: int = 2) -> str:
    if value is None:
        return "–"
    shown = f"{value * 100:+.{digits}f}{unit}" if is_share else f"{value:+.4f}"
    return shown.replace("-", "−")


def _near_end(value: float) -> str:
    if value > 0.9999:
        return ">\u00a099.99\u00a0%"
    return "<\u00a00.01\u00a0%" if value < 0.0001 else _percent(value, 2)


def _percent(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{value * 100:.{digits}f}\u00a0%"
