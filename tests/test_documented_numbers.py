"""Every measured number in the README and the documentation comes from a file in ``results/``."""

import json
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
CODE = re.compile(r"```.*?```|`[^`\n]*`|\]\([^)]*\)", re.S)
DECIMAL = re.compile(r"(?<![\w.,])(\d+\.\d+)(?![\w.]*\d)")

MAIN = ("ece", "error", "ece-temperature", "classwise-ece")

OUTER_STEPS = (
    "cifar10-outer-step",
    "cifar10-outer-step-seed0",
    "cifar100-outer-step",
    "newsgroups-outer-step",
    "svhn-outer-step",
)

# page -> the files its numbers come from (under results/), and decimals that are settings, versions or names
PAGES: dict[str, tuple[list[str], set[str]]] = {
    "docs/design/default.md": (["default/develop.md", "default/confirm.md"], {"1.00", "1.03", "1.3", "1.5"}),
    "README.md": (
        [
            "study/methods.md",
            "study/steady.md",
            "study/budget.md",
            "benchmarks/meta_step.json",
            "benchmarks/calibration.json",
            *(f"paper/{data}/outer-step.csv" for data in OUTER_STEPS),
            *(f"paper/{data}/main-{table}.csv" for data in ("images-cpu", "newsgroups-cpu") for table in MAIN),
        ],
        {"3.10", "0.05", "2.0"},
    ),
    "docs/study.md": (
        [
            "study/methods.md",
            "study/regime.md",
            "study/budget.md",
            "study/conditions.md",
            "study/steady.md",
            *(f"paper/{data}-methods/image-methods.csv" for data in ("cifar10", "cifar100", "svhn")),
            "paper/cifar10-equal-data-seed0/equal-data.csv",
            "paper/cifar10-ablation-seed0/ablation.csv",
            *(f"paper/{data}/outer-step.csv" for data in OUTER_STEPS),
            "paper/simulated/synthetic.csv",
            *(f"paper/{data}/main-{table}.csv" for data in ("images-cpu", "newsgroups-cpu") for table in MAIN),
        ],
        {"0.05"},
    ),
    "docs/design/meta-step.md": (["benchmarks/meta_step.json", "benchmarks/meta_step_size.json"], set()),
    "docs/speed.md": (
        [
            f"benchmarks/{n}.json"
            for n in ("meta_step", "meta_step_size", "calibration", "data_pipeline", "published_code")
        ],
        set(),
    ),
    "docs/design/outer-step.md": (
        [f"study/{n}.md" for n in ("robustness", "methods", "every", "term_weights", "gradient_noise")],
        set(),
    ),
    "docs/scaling.md": (["benchmarks/cluster_simulation.json"], set()),
    "docs/design/scales.md": (["scales/regimes.csv"], set()),
    "docs/which-method.md": (
        [
            "study/methods.md",
            "study/conditions.md",
            "study/steady.md",
            *(f"paper/{data}/outer-step.csv" for data in OUTER_STEPS),
            *(f"paper/{data}-methods/image-methods.csv" for data in ("cifar10", "cifar100", "svhn")),
            "paper/cross-domain-cpu/cross-domain-ece.csv",
            "shift/cifar10-ce-seed100.json",
            *(f"paper/{data}/main-{table}.csv" for data in ("images-cpu", "newsgroups-cpu") for table in MAIN),
        ],
        set(),
    ),
    "docs/limitations.md": (["study/methods.md"], {"0.05"}),
    "docs/shift.md": (
        [
            "paper/cross-domain-cpu/cross-domain-ece.csv",
            "paper/cross-domain-cpu/cross-domain-error.csv",
            "shift/cifar10-ce-seed100.json",
        ],
        {"2.9"},
    ),
}

# page -> the files whose tables it holds as they are
QUOTED = {
    "docs/design/default.md": ["default/confirm.md"],
    "docs/design/intervals.md": [f"coverage/{n}.md" for n in ("interval_coverage", "other_intervals")],
    "docs/design/outer-step.md": [f"study/{n}.md" for n in ("robustness", "every", "gradient_noise")],
    "docs/design/reporting.md": ["coverage/share_coverage.md"],
    "docs/study.md": [f"study/{n}.md" for n in ("regime", "methods", "budget", "steady")],
}

# pages whose decimals are held to results elsewhere, or are not measured
OTHERS = {
    "docs/conformance.md": "written as a whole by `make conformance`: tests/test_documented_tables.py",
    **dict.fromkeys(
        [f"docs/integrations/{n}.md" for n in ("fine-tuning", "lightning", "loops", "scikit-learn", "transformers")],
        "filled from results/ by `python -m benchmarks.integration_pages`: tests/integrations/test_docs.py",
    ),
    **dict.fromkeys(
        [
            f"docs/{n}.md"
            for n in (
                "evaluate",
                "method",
                "posthoc",
                "quickstart",
                "report",
                "train",
                "design/inputs",
                "design/fidelity",
            )
        ],
        "settings and definitions",
    ),
    "docs/design/exact-sums.md": "arithmetic of the number format",
    "docs/troubleshooting.md": "settings and definitions",
}


def numbers_of_page(name: str) -> list[str]:
    text = CODE.sub(" ", (ROOT / name).read_text(encoding="utf-8"))
    return DECIMAL.findall(text)


@cache
def measured(name: str) -> tuple[float, ...]:
    text = (RESULTS / name).read_text(encoding="utf-8")
    if not name.endswith(".json"):
        return tuple(float(number) for number in re.findall(r"\d+\.\d+", text))
    found: list[float] = []

    def walk(value):
        if isinstance(value, dict):
            walk(list(value.values()))
        elif isinstance(value, list):
            for item in value:
                walk(item)
        elif isinstance(value, float):
            found.append(value)

    walk(json.loads(text))
    return tuple(found)


def is_measured(number: str, sources: list[str]) -> bool:
    digits = len(number.partition(".")[2])
    wanted = float(number)
    return any(
        abs(round(scale * value, digits) - wanted) < 10.0 ** -(digits + 3)
        for source in sources
        for value in measured(source)
        for scale in (1.0, 100.0)
    )


@pytest.mark.parametrize("page", PAGES)
def test_every_decimal_is_measured(page):
    sources, settings = PAGES[page]
    strangers = [n for n in numbers_of_page(page) if n not in settings and not is_measured(n, sources)]
    assert not strangers, f"{page} has numbers that none of {sources} holds: {strangers}"


@pytest.mark.parametrize(("page", "name"), [(page, name) for page, names in QUOTED.items() for name in names])
def test_tables_are_quoted_as_they_were_made(page, name):
    tables = re.findall(r"(?:^\|.*\n)+", (RESULTS / name).read_text(encoding="utf-8"), re.M)
    text = (ROOT / page).read_text(encoding="utf-8")
    assert tables and all(table in text for table in tables)


def test_every_page_with_decimals_is_held_to_something():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    names = {page.relative_to(ROOT).as_posix() for page in pages}
    with_decimals = {name for name in names if numbers_of_page(name)}
    assert with_decimals - PAGES.keys() - QUOTED.keys() - OTHERS.keys() == set()
    assert (PAGES.keys() | QUOTED.keys() | OTHERS.keys()) <= names


def test_the_check_can_fail():
    assert is_measured("6.82", ["study/methods.md"]) and not is_measured("6.83", ["study/methods.md"])
