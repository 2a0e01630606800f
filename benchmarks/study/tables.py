"""The study's tables, made from finished runs: means over seeds, and paired differences with intervals."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from statistics import mean, stdev
from typing import Any

from scipy import stats

Row = dict[str, Any]


def interval(values: list[float]) -> float:
    """Half-width of the 95 % interval of a mean."""
    if len(values) < 2:
        return math.nan
    return float(stats.t.ppf(0.975, len(values) - 1)) * stdev(values) / math.sqrt(len(values))


def grouped(rows: Iterable[Row], *names: str) -> dict[tuple[Any, ...], list[Row]]:
    """Rows by the values of some fields, in order of first appearance."""
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        groups[tuple(row[name] for name in names)].append(row)
    return groups


def percent(rows: list[Row], name: str) -> str:
    """Mean of a fraction over rows, in percent, with its interval."""
    values = [100.0 * row[name] for row in rows]
    return f"{mean(values):.2f} ± {interval(values):.2f}"


def regime_table(rows: list[Row]) -> str:
    """Does cross-entropy over-fit and is it over-confident?"""
    lines = ["| regime | training accuracy % | validation ECE % | regime holds |", "|---|---|---|---|"]
    for (name,), group in grouped(rows, "regime").items():
        holds = mean(r["train_accuracy"] for r in group) > 0.99 and mean(r["val_ece"] for r in group) > 0.05
        accuracy, ece = percent(group, "train_accuracy"), percent(group, "val_ece")
        lines.append(f"| {name} | {accuracy} | {ece} | {'yes' if holds else 'NO'} |")
    return "\n".join(lines)


def difference(group: list[Row], base: list[Row], name: str) -> str:
    """Mean paired difference, seed by seed, in percentage points, with its interval and a verdict."""
    by_seed = {row["seed"]: row[name] for row in base}
    values = [100.0 * (row[name] - by_seed[row["seed"]]) for row in group]
    half = interval(values)
    verdict = "same" if abs(mean(values)) <= half else ("better" if mean(values) < 0 else "WORSE")
    return f"{mean(values):+.2f} ± {half:.2f} {verdict}"


def methods_table(rows: list[Row]) -> str:
    """Test ECE and error of every method, and paired differences to cross-entropy and label smoothing."""
    lines = []
    for (name,), group in grouped(rows, "regime").items():
        by_method = {method: part for (method,), part in grouped(group, "method").items()}
        lines += [f"\n{name}: {len(by_method['ce'])} seeds, 95 % intervals, test set, percent\n"]
        lines += ["| method | ECE | error | ECE after temperature | ECE - CE | ECE - LS | error - CE |"]
        lines += ["|---|---|---|---|---|---|---|"]
        for method, part in by_method.items():
            cells = [percent(part, f) for f in ("test_ece", "test_error", "test_ece_after_temperature")]
            cells += [difference(part, by_method["ce"], "test_ece") if method != "ce" else ""]
            cells += [difference(part, by_method["ls"], "test_ece") if method not in ("ce", "ls") else ""]
            cells += [difference(part, by_method["ce"], "test_error") if method != "ce" else ""]
            lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def robustness_table(rows: list[Row]) -> str:
    """Mean test ECE over meta learning rates, and the worst over the best."""
    rates = sorted({row["meta_lr"] for row in rows})
    lines = ["| regime | inner loss | outer step | " + " | ".join(f"{lr:g}" for lr in rates) + " | worst / best |"]
    lines += ["|---" * (len(rates) + 4) + "|"]
    for (name, reduction, outer), group in grouped(rows, "regime", "reduction", "outer").items():
        means = {lr: 100 * mean(r["test_ece"] for r in part) for (lr,), part in grouped(group, "meta_lr").items()}
        cells = " | ".join(f"{means[lr]:.2f}" for lr in rates)
        ratio = max(means.values()) / min(means.values())
        lines.append(f"| {name} | {reduction} | {outer} | {cells} | {ratio:.2f} |")
    return "\n".join(lines)


def every_table(rows: list[Row]) -> str:
    """Test ECE by how often the meta step is taken, against every iteration."""
    lines = ["| regime | every | ECE % | ECE - every 1 | error % |", "|---|---|---|---|---|"]
    for (name,), group in grouped(rows, "regime").items():
        parts = {every: part for (every,), part in grouped(group, "every").items()}
        for every, part in parts.items():
            to_first = difference(part, parts[1], "test_ece") if every != 1 else ""
            ece, error = percent(part, "test_ece"), percent(part, "test_error")
            lines.append(f"| {name} | {every or 'default'} | {ece} | {to_first} | {error} |")
    return "\n".join(lines)


def conditions_table(rows: list[Row]) -> str:
    """Test ECE of four methods as one thing changes, with what meta-calibration gains, costs and has learned."""
    lines = ["| regime | changed | ce | ls | mc | mc-s | mc - ce | mc - ls | error: mc - ce | strength of mc |"]
    lines += ["|---" * 10 + "|"]
    for changed in ("meta", "meta_batch", "memory", "epochs", "lr"):
        for (name, value), group in grouped((row for row in rows if row.get(changed)), "regime", changed).items():
            by_method = {method: part for (method,), part in grouped(group, "method").items()}
            cells = [percent(part, "test_ece") for part in by_method.values()]
            ce, ls, mc, _ = by_method.values()
            cells += [difference(mc, base, "test_ece") for base in (ce, ls)] + [difference(mc, ce, "test_error")]
            strength = mean(float(row["summary"].split(",")[0].removeprefix("strength ")) for row in mc)
            lines.append(f"| {name} | {changed.replace('_', ' ')} = {value:g} | {' | '.join(cells)} | {strength:.3f} |")
    return "\n".join(lines)


def steady_table(rows: list[Row]) -> str:
    """Test ECE of the steady outer step against the default one, and what it costs in error."""
    lines = ["| regime | method | ce | default | steady | ECE: steady - default | error: steady - default |"]
    lines += ["|---" * 7 + "|"]
    for (name,), group in grouped(rows, "regime").items():
        ce = percent([row for row in group if row["method"] == "ce"], "test_ece")
        for (method,), part in grouped((row for row in group if row["method"] != "ce"), "method").items():
            default, steady = (by_outer for by_outer in grouped(part, "outer").values())
            cells = [ce, *(percent(each, "test_ece") for each in (default, steady))]
            cells += [difference(steady, default, figure) for figure in ("test_ece", "test_error")]
            lines.append(f"| {name} | {method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def budget_table(rows: list[Row]) -> str:
    """Test ECE and error by what the labels of the meta set are spent on; temperature against meta-calibration."""
    lines = ["| regime | figure | training (ce) | training (ls) | mc | a temperature (ce) | temperature - mc |"]
    lines += ["|---" * 7 + "|"]
    for (name,), group in grouped(rows, "regime").items():
        ce, ls, mc, held_out = grouped(group, "method", "equal_data").values()
        scaled = [{**row, "test_ece": row["test_ece_after_meta_temperature"]} for row in held_out]
        for figure, label in (("test_ece", "ECE"), ("test_error", "error")):
            cells = [percent(part, figure) for part in (ce, ls, mc, scaled)]
            lines.append(f"| {name} | {label} | {' | '.join(cells)} | {difference(scaled, mc, figure)} |")
    return "\n".join(lines)


TABLES: dict[str, Callable[[list[Row]], str]] = {
    "regime": regime_table,
    "methods": methods_table,
    "robustness": robustness_table,
    "every": every_table,
    "conditions": conditions_table,
    "steady": steady_table,
    "budget": budget_table,
}
