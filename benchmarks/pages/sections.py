"""Parts of pages that are more than a figure or a table: benchmarks, examples, questions to other libraries."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.pages.results import MissingFigureError, Results, markdown
from metacal.lab.data import SOURCES

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
OUTCOMES = {"✓": "✓ right", "~": "~ another reading", "✗": "✗ wrong", "?": "? NaN"}


def benchmarks(results: Results) -> str:
    """A section for each benchmark; one without a title comes last, by its name."""
    names = sorted(path.stem for path in (results.root / "benchmarks").glob("*.json"))
    if not names:
        raise MissingFigureError(f"{results.root / 'benchmarks'} has no figures.")
    names.sort(key=lambda name: [*TITLES, name].index(name))
    return "\n\n".join(benchmark(results, name) for name in names)


def benchmark(results: Results, name: str) -> str:
    """The command, the machine, and every part of a benchmark."""
    file = f"benchmarks/{name}.json"
    lines = [f"## {TITLES.get(name, name)}", "", f"{_origin(results.value(file, 'about'))}, `results/{file}`.", ""]
    for part in results.value(file, "parts").values():
        lines += [f"**{part['title']}**", "", *_folded(markdown(part["rows"]).split("\n")), ""]
        lines += [*part["notes"], "", *(_verdict(target) for target in part["targets"]), ""]
        lines += [part["warning"], ""] if part["warning"] is not None else []
    return "\n".join(lines).rstrip()


def cost(results: Results, name: str) -> str:
    """What a trainer costs with meta-calibration: a part of the benchmark of integrations."""
    file = "benchmarks/integrations.json"
    part = results.value(file, "parts", name)
    notes = [*part["notes"], *([part["warning"]] if part["warning"] is not None else [])]
    said = " ".join([f"{part['title']} (`{results.value(file, 'about', 'command')}`).", *notes])
    return f"{said}\n\n{markdown(part['rows'], digits=3)}"


def example(results: Results, name: str) -> str:
    """Title, number of seeds, command and table of an example."""
    found = results.read(f"integrations/{name}.json")
    tasks = found.get("tasks") or {found["title"]: found["rows"]}
    command = f"`python examples/{name}.py --seeds {found['seeds']}`"
    heads = (f"{title}, {found['seeds']} seeds ({command}):" for title in tasks)
    return "\n\n".join(f"{head}\n\n{_example_table(rows)}" for head, rows in zip(heads, tasks.values(), strict=True))


def conformance(results: Results) -> str:
    """How often each library was right, then each group of questions: a table of answers and what to make of them."""
    file = "conformance/answers.json"
    questions, groups = results.value(file, "questions"), results.value(file, "groups")
    libraries = results.value(file, "libraries")
    return "\n\n".join([_score(libraries, questions), *(_group(group, questions) for group in groups)])


def simulation(results: Results) -> str:
    """The simulated cluster, both orders side by side."""
    rows = results.value("benchmarks/cluster_simulation.json", "parts", "simulation", "rows")
    lines = [
        "| MC cost | GPU-hours | GPUs | makespan, table order | longest first | lower bound | busy, table order "
        "| longest first | stragglers, table order | longest first |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for table, longest in zip(rows[::2], rows[1::2], strict=True):
        lines.append(
            f"| {table['MC cost']} | {table['GPU-hours']:,.0f} | {table['GPUs']} | {table['makespan h']:.1f} h "
            f"| {longest['makespan h']:.1f} h | {table['lower bound h']:.1f} h | {table['utilisation']:.0%} "
            f"| {longest['utilisation']:.0%} | {table['stragglers']} | {longest['stragglers']} |"
        )
    return "\n".join(lines)


def walk(results: Results, name: str, beyond: str = "") -> str:
    """The files that a command enters, in that order, each with what it does.

    Args:
        results: where the walks are.
        name: of the walk.
        beyond: another walk, whose files are left out.
    """
    rows = ["house/walks.json", "parts", "files", "rows"]
    known = results.values(rows, {"walk": beyond}, "file") if beyond else []
    visits = [row for row in results.values(rows, {"walk": name}) if row["file"] not in known]
    lines = ["| file | what it does |", "|---|---|"]
    return "\n".join([*lines, *(f"| `{row['file']}` | {row['does']} |" for row in visits)])


def _origin(about: Mapping[str, Any]) -> str:
    """The command and the machine; in words where no command of ours measured it."""
    if "setting" in about:
        return f"{about['setting']} ({about['source']})"
    return (
        f"`{about['command']}`, {about['date']}, {about['wall_seconds']:.0f} s, torch {about['torch']}, "
        f"{about['cores']} cores ({about['processor']})"
    )


def _folded(lines: list[str]) -> list[str]:
    """A long table behind a line that opens it."""
    return lines if len(lines) < LONG else [f'??? note "{len(lines) - 2} rows"', "", *(f"    {li}" for li in lines)]


def _verdict(target: Mapping[str, Any]) -> str:
    side = "at least" if target["at_least"] else "at most"
    word = "met" if target["is_met"] else "**missed**"
    return f"- {target['name']}: {target['value']:.3g}, target {side} {target['bound']:g}: {word}"


def _example_table(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = ["| | accuracy % | NLL | ECE % | change | s |", "|---|---|---|---|---|---|"]
    for row in rows:
        figures = f"{100 * row['accuracy']:.2f} | {row['nll']:.3f} | {100 * row['ece']:.2f}"
        lines.append(f"| {row['method'].strip()} | {figures} | {_change(row)} | {row['seconds']:.1f} |")
    return "\n".join(lines)


def _change(row: Mapping[str, Any]) -> str:
    if row["half_width"] is None:
        return ""
    change, width = 100 * row["ece_change"], 100 * row["half_width"]
    verdict = "same" if abs(change) <= width else "better" if change < 0 else "WORSE"
    return f"{change:+.2f} ± {width:.2f} {verdict}"


def _score(libraries: Sequence[str], questions: Sequence[Mapping[str, Any]]) -> str:
    lines = ["| library | " + " | ".join(OUTCOMES.values()) + " | asked |", "|---|" + "---|" * (len(OUTCOMES) + 1)]
    for name in libraries:
        marks = [question["answers"][name]["mark"] for question in questions if name in question["answers"]]
        counts = [marks.count(mark) for mark in OUTCOMES]
        lines.append(f"| {name} | " + " | ".join(map(str, [*counts, sum(counts)])) + " |")
    return "\n".join(lines)


def _group(group: Mapping[str, Any], questions: Sequence[Mapping[str, Any]]) -> str:
    asked = [question for question in questions if question["group"] == group["title"]]
    libraries = list(asked[0]["answers"])
    lines = [f"## {group['title']}", "", group["introduction"], ""]
    lines += ["| asked | right answer | " + " | ".join(libraries) + " |", "|---|---|" + "---|" * len(libraries)]
    for question in asked:
        cells = " | ".join(f"{answer['mark']} {answer['text']}" for answer in question["answers"].values())
        lines.append(f"| {question['asked']} | {question['right']} | {cells} |")
    return "\n".join([*lines, "", *(f"- {question['remark']}" for question in asked)])


def datasets() -> str:
    """The datasets that have names, in the order of the registry."""
    lines = ["| name | what | files | options | test set |", "|---|---|---|---|---|"]
    for source in SOURCES.values():
        files = "built in" if source.built_in else source.looked_for.replace("*", "\\*")
        options = ", ".join(f"`{option}`" for option in source.options)
        lines.append(f"| `{source.name}` | {source.title} | {files} | {options} | {source.test_set} |")
    return "\n".join(lines)
