"""Puts the figures of ``results/`` into the pages of ``docs/integrations/``, between their markers."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PAGES = Path("docs/integrations")
EXAMPLES = Path("results/integrations")
COSTS = Path("results/benchmarks/integrations.json")
LOOPS = ("pytorch_loop", "fabric_loop", "accelerate_loop")


def example_table(rows: list[dict[str, Any]]) -> str:
    """What an example printed, as Markdown."""
    lines = ["| | accuracy % | NLL | ECE % | change | s |", "|---|---|---|---|---|---|"]
    for row in rows:
        figures = f"{100 * row['accuracy']:.2f} | {row['nll']:.3f} | {100 * row['ece']:.2f}"
        lines.append(f"| {row['method'].strip()} | {figures} | {_change(row)} | {row['seconds']:.1f} |")
    return "\n".join(lines)


def example_section(name: str, found: Mapping[str, Any]) -> str:
    """Title, number of seeds, command and table of an example."""
    command = f"`python examples/{name}.py --seeds {found['seeds']}`"
    tasks = found.get("tasks") or {found["title"]: found["rows"]}
    return "\n\n".join(
        f"{title}, {found['seeds']} seeds ({command}):\n\n{example_table(rows)}" for title, rows in tasks.items()
    )


def cost_section(part: Mapping[str, Any], about: Mapping[str, Any]) -> str:
    """A part of the benchmark as Markdown."""
    rows = part["rows"]
    lines = [f"| {' | '.join(rows[0])} |", "|" + "---|" * len(rows[0])]
    lines += [f"| {' | '.join(_text(cell) for cell in row.values())} |" for row in rows]
    notes = "".join(f" {note}" for note in part["notes"])
    if part["warning"] is not None:
        notes += f" {part['warning']}"
    return f"{part['title']} (`{about['command']}`).{notes}\n\n" + "\n".join(lines)


def sections() -> dict[str, str]:
    """What belongs between which markers, as far as it has been measured."""
    found = {path.stem: json.loads(path.read_text()) for path in sorted(EXAMPLES.glob("*.json"))}
    filled = {name: example_section(name, value) for name, value in found.items()}
    filled["loops"] = "\n\n".join(filled[name] for name in LOOPS if name in filled)
    if COSTS.exists():
        costs = json.loads(COSTS.read_text())
        filled |= {f"cost-{name}": cost_section(part, costs["about"]) for name, part in costs["parts"].items()}
    return filled


def fill(text: str, filled: Mapping[str, str]) -> str:
    """A page with its sections put in."""
    for name, body in filled.items():
        pattern = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- /{re.escape(name)} -->)", re.S)
        text = pattern.sub(lambda marks, body=body: f"{marks[1]}\n{body}\n\n{marks[2]}", text)  # type: ignore[misc]
    return text


def main() -> None:
    """Rewrite the pages."""
    for page in sorted(PAGES.glob("*.md")):
        page.write_text(fill(page.read_text(encoding="utf-8"), sections()), encoding="utf-8")


def _change(row: Mapping[str, Any]) -> str:
    if row["half_width"] is None:
        return ""
    change, width = 100 * row["ece_change"], 100 * row["half_width"]
    verdict = "same" if abs(change) <= width else "better" if change < 0 else "WORSE"
    return f"{change:+.2f} ± {width:.2f} {verdict}"


def _text(cell: Any) -> str:
    return f"{cell:.3g}" if isinstance(cell, float) else str(cell)


if __name__ == "__main__":
    main()
