"""``python -m benchmarks.pages`` writes every page that has a template; ``--check`` only says which one is out of date.

A template ``docs/templates/PAGE.md.j2`` becomes ``docs/PAGE.md``, and ``README.md.j2`` the README. It takes its figures
from ``results`` through the functions of `functions`; one that is not there is an error that names it. The picture of
the rooms of ``src/metacal`` is drawn from their imports.
"""

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError

from benchmarks.pages import sections
from benchmarks.pages.reproduction import Reproduction
from benchmarks.pages.results import MissingFigureError, Results
from benchmarks.pages.rooms import picture

ROOT = Path(__file__).parents[2]
PICTURE = Path("docs/figures/architecture.svg")
NOTE = "<!-- Made by `python -m benchmarks.pages` from docs/templates/{}: edit that. -->\n"


def main() -> int:
    """Write or check; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pages", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page differs from its template")
    arguments = parser.parse_args()
    try:
        pages = render(ROOT)
    except (MissingFigureError, TemplateError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    if arguments.check:
        stale = [said for path, text in pages.items() if (said := difference(path, text)) is not None]
        print(*(stale or [f"{len(pages)} pages are what their templates say."]), sep="\n")
        return 1 if stale else 0
    for path, text in pages.items():
        path.write_text(text, encoding="utf-8")
    print(f"Wrote {len(pages)} pages.")
    return 0


def render(root: Path) -> dict[Path, str]:
    """Every page with a template below a folder, and the picture of the rooms; with their text."""
    templates = root / "docs" / "templates"
    environment = Environment(
        loader=FileSystemLoader(templates), undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    environment.globals |= functions(root)
    pages = {}
    for template in sorted(templates.rglob("*.md.j2")):
        name = template.relative_to(templates).as_posix()
        page = root / ("" if name == "README.md.j2" else "docs") / name.removesuffix(".j2")
        try:
            pages[page] = NOTE.format(name) + environment.get_template(name).render()
        except (MissingFigureError, TemplateError) as problem:
            raise MissingFigureError(f"docs/templates/{name}: {problem}") from problem
    package = root / "src" / "metacal"
    return pages | ({root / PICTURE: picture(package)} if package.exists() else {})


def functions(root: Path) -> dict[str, Callable[..., Any]]:
    """What a template can call."""
    results = Results(root / "results")
    named = ("value", "values", "number", "figure", "span", "beyond_noise", "items", "table")
    found: dict[str, Callable[..., Any]] = {name: getattr(results, name) for name in named}
    named_sections = ("benchmarks", "cost", "example", "conformance", "simulation", "walk")
    found |= {name: partial(getattr(sections, name), results) for name in named_sections}
    return found | {"reproduction": lambda: reproduction(root).page(), "claim": claim, "datasets": sections.datasets}


def reproduction(root: Path) -> Reproduction:
    """What was measured of the paper in a clone."""
    verdicts = json.loads((root / "docs" / "templates" / "verdicts.json").read_text(encoding="utf-8"))
    return Reproduction(root / "results" / "paper", root / "docs" / "figures", verdicts)


def claim(holds: bool, sentence: str) -> str:
    """A sentence, if the comparison of figures that it rests on holds; an error if it no longer does."""
    if not holds:
        raise MissingFigureError(f"the figures no longer say that {sentence!r}.")
    return sentence


def difference(path: Path, text: str) -> str | None:
    """The first line in which a page is not what its template makes, with its number; None if there is none."""
    if not path.exists():
        return f"{path}: not there; run `python -m benchmarks.pages`."
    found = path.read_text(encoding="utf-8")
    if found == text:
        return None
    pairs = zip_longest(found.splitlines(), text.splitlines(), fillvalue="(no line)")
    line, (has, wants) = next((number, pair) for number, pair in enumerate(pairs, 1) if pair[0] != pair[1])
    return f"{path}:{line}: run `python -m benchmarks.pages`.\n  has    {has}\n  should {wants}"


if __name__ == "__main__":
    sys.exit(main())
