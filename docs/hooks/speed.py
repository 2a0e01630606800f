"""Fills the page of benchmarks from what is in ``results/benchmarks``: every figure, its command, met or missed."""

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[2] / "results" / "benchmarks"
MARK = "<!-- benchmarks -->"
LONG = 30

TITLES = {
    "calibration": "Calibration errors and DECE",
    "meta_step": "A training step with meta-calibration",
    "meta_step_size": "Meta-calibration: arithmetic, growth",
    "temperature": "Temperature scaling",
    "evaluate_stream": "Files of predictions",
    "startup": "Short commands",
    "data_pipeline": "Batches",
    "training_loop": "The training loop",
    "channels_last": "Memory format",
    "integrations": "Other people's trainers",
    "corruptions": "Corruptions",
    "cluster_simulation": "A cluster",
    "kill_resume": "Kills",
    "published_code": "The published code",
}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by MkDocs for every page."""
    return markdown.replace(MARK, benchmarks()) if MARK in markdown else markdown


def benchmarks() -> str:
    """A section for each file; one without a title comes last, by its name."""
    names = sorted((path.stem for path in RESULTS.glob("*.json")), key=lambda name: [*TITLES, name].index(name))
    return "\n\n".join(section(name) for name in names)


def section(name: str) -> str:
    """The command, the machine, and every part of a benchmark."""
    measured = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    lines = [
        f"## {TITLES.get(name, name)}",
        "",
        f"{origin(measured['about'])}, `results/benchmarks/{name}.json`.",
        "",
    ]
    for part in measured["parts"].values():
        lines += [f"**{part['title']}**", "", *folded(table(part["rows"])), *part["notes"], ""]
        lines += [verdict(target) for target in part["targets"]] + [""]
        if part["warning"] is not None:
            lines += [part["warning"], ""]
    return "\n".join(lines)


def origin(about: dict[str, Any]) -> str:
    """The command and the machine; in words where no command of ours measured it."""
    if "setting" in about:
        return f"{about['setting']} ({about['source']})"
    return (
        f"`{about['command']}`, {about['date']}, {about['wall_seconds']:.0f} s, torch {about['torch']}, "
        f"{about['cores']} cores ({about['processor']})"
    )


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Markdown of rows that have the same keys."""
    head = list(rows[0])
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return [*lines, *("| " + " | ".join(map(text, row.values())) + " |" for row in rows), ""]


def folded(lines: list[str]) -> list[str]:
    """A long table behind a line that opens it."""
    if len(lines) <= LONG:
        return lines
    return [f'??? note "{len(lines) - 3} rows"', "", *(f"    {line}" for line in lines)]


def text(value: Any) -> str:
    """A cell: four figures are enough of what was timed."""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return "" if value is None else str(value)


def verdict(target: dict[str, Any]) -> str:
    """What was found, the target, and whether that is good enough."""
    side = "at least" if target["at_least"] else "at most"
    word = "met" if target["is_met"] else "**missed**"
    return f"- {target['name']}: {target['value']:.3g}, target {side} {target['bound']:g}: {word}"
