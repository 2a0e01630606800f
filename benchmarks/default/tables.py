"""What the runs say: scores of candidates, and the goals of the confirmation, by paired differences over seeds."""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import fmean, stdev
from typing import Any

from scipy import stats

Row = dict[str, Any]
Rows = dict[tuple[str, str], dict[int, Row]]

AFTER = {"ce": "prior", "ls": "prior", "fl3": "prior"}
"""The fold that a method is judged with; `finish` for all others."""
FOLDS = ("plain", "likelihood", "likelihood, if significant", "prior", "prior, if significant")


def grouped(rows: Sequence[Row]) -> Rows:
    """Rows by regime and method, then by seed."""
    groups: Rows = defaultdict(dict)
    for row in rows:
        groups[row["regime"], row["method"]][row["seed"]] = row
    return groups


def values(runs: Rows, regime: str, method: str, figure: str, fold: str | None = None) -> dict[int, float]:
    """A test figure by seed."""
    fold = fold or AFTER.get(method, "finish")
    return {seed: row[fold][figure] for seed, row in runs[regime, method].items()}


def paired(first: dict[int, float], second: dict[int, float]) -> tuple[float, float]:
    """Mean of the differences over the seeds that both have, and half of its 95 % interval."""
    differences = [first[seed] - second[seed] for seed in first if seed in second]
    if len(differences) < 2:
        return fmean(differences), math.inf
    half = float(stats.t.ppf(0.975, len(differences) - 1)) * stdev(differences) / math.sqrt(len(differences))
    return fmean(differences), half


def is_above(first: dict[int, float], second: dict[int, float]) -> bool:
    """Whether the first is higher beyond noise."""
    mean, half = paired(first, second)
    return mean - half > 0.0


def geometric(ratios: Sequence[float]) -> float:
    """Geometric mean."""
    return math.exp(fmean(math.log(ratio) for ratio in ratios))


def ratios(runs: Rows, regimes: Sequence[str], method: str, figure: str, fold: str | None = None) -> dict[str, float]:
    """Mean figure over that of CE + temperature on the same seeds, by regime."""
    found = {}
    for regime in regimes:
        own, base = values(runs, regime, method, figure, fold), values(runs, regime, "ce", figure)
        found[regime] = fmean(own.values()) / fmean(base[seed] for seed in own)
    return found


def lost(runs: Rows, regimes: Sequence[str], method: str, figure: str, fold: str | None = None) -> list[str]:
    """Regimes in which a method is worse than CE + temperature beyond noise."""
    own: Callable[[str], dict[int, float]] = lambda regime: values(runs, regime, method, figure, fold)  # noqa: E731
    return [regime for regime in regimes if is_above(own(regime), values(runs, regime, "ce", figure))]


def score_row(runs: Rows, regimes: Sequence[str], method: str, name: str, fold: str | None = None) -> str:
    """One line of the development's table."""
    cells = [name]
    for figure in ("nll", "ece"):
        by_regime = ratios(runs, regimes, method, figure, fold)
        worst = max(by_regime, key=by_regime.__getitem__)
        cells.append(f"{geometric(list(by_regime.values())):.3f}")
        cells.append(f"{by_regime[worst]:.3f} {worst}")
        cells.append(", ".join(lost(runs, regimes, method, figure, fold)) or "none")
    errors = [
        fmean(own.values()) - fmean(base[seed] for seed in own)
        for own, base in (
            (values(runs, regime, method, "error", fold), values(runs, regime, "ce", "error")) for regime in regimes
        )
    ]
    cells.append(f"{100 * fmean(errors):+.2f} ({100 * max(errors):+.2f})")
    cells.append(", ".join(lost(runs, regimes, method, "error", fold)) or "none")
    return f"| {' | '.join(cells)} |"


HEADER = (
    "| {} | NLL | worst | lost | ECE | worst | lost | error (worst) | lost |\n|---|---|---|---|---|---|---|---|---|"
)


def development(rows: Sequence[Row]) -> str:
    """Candidates over the regimes that all of them ran in, the lowest NLL first."""
    runs = grouped(rows)
    blocks = []
    for title, methods in by_regimes(runs).items():
        regimes = title.split(", ")
        order = sorted(methods, key=lambda m: geometric(list(ratios(runs, regimes, m, "nll").values())))
        lines = [score_row(runs, regimes, method, method) for method in order if method != "ce"]
        blocks.append("\n".join([f"**{title}**\n", HEADER.format("method"), *lines]))
    everywhere = [regime for regime, method in runs if method == "centre"]
    folds = [score_row(runs, everywhere, "centre", fold, fold) for fold in FOLDS]
    blocks.append("\n".join(["**How the centre's temperature is fitted**\n", HEADER.format("fold"), *folds]))
    return "\n\n".join(blocks)


def by_regimes(runs: Rows) -> dict[str, list[str]]:
    """Methods over the regimes that all methods ran in, and those that ran in all regimes over all of them."""
    regimes = list(dict.fromkeys(regime for regime, _ in runs))
    methods = list(dict.fromkeys(method for _, method in runs))
    shared = [regime for regime in regimes if all((regime, method) in runs for method in methods)]
    widely = [method for method in methods if all((regime, method) in runs for regime in regimes)]
    found = {", ".join(shared): methods} if shared else {}
    return found | {", ".join(regimes): widely}


def shown(runs: Rows, regime: str, method: str, fold: str | None = None) -> str:
    """Error, ECE and NLL."""
    error, ece, nll = (fmean(values(runs, regime, method, figure, fold).values()) for figure in ("error", "ece", "nll"))
    return f"{100 * error:.2f}, {100 * ece:.2f}, {nll:.3f}"


def confirmation(rows: Sequence[Row]) -> str:
    """Every method in every regime, what the default brings, and which goals it meets."""
    runs = grouped(rows)
    needed = ("ce", "ls", "fl3", "default")
    known = dict.fromkeys(regime for regime, _ in runs)
    regimes = [r for r in known if len({tuple(sorted(runs.get((r, m), {}))) for m in needed}) == 1]
    lines = [
        "Test error %, ECE %, NLL: means over seeds.\n",
        "| regime | seeds | CE | CE + T | LS .05 + T | FL-3 + T | paper's + T | default |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for regime in regimes:
        cells = [shown(runs, regime, "ce", "plain")]
        cells += [
            shown(runs, regime, m) if (regime, m) in runs else "" for m in ("ce", "ls", "fl3", "paper", "default")
        ]
        lines.append(f"| {regime} | {len(runs[regime, 'default'])} | {' | '.join(cells)} |")
    lines += [
        "\nThe default minus another, paired over seeds, with 95 % intervals (percentage points; NLL as it is).\n"
    ]
    lines += [
        "| regime | " + " | ".join(f"{f} - {m}" for m in ("CE + T", "LS + T") for f in ("error", "ECE", "NLL")) + " |"
    ]
    lines += ["|---|---|---|---|---|---|---|"]
    for regime in regimes:
        cells = [difference(runs, regime, m, f) for m in ("ce", "ls") for f in ("error", "ece", "nll")]
        lines.append(f"| {regime} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *goals(runs, regimes)])


def difference(runs: Rows, regime: str, method: str, figure: str) -> str:
    """Mean paired difference with its interval; bold where it is worse beyond noise."""
    mean, half = paired(values(runs, regime, "default", figure), values(runs, regime, method, figure))
    unit, digits = (1.0, 3) if figure == "nll" else (100.0, 2)
    text = f"{unit * mean:+.{digits}f} ± {unit * half:.{digits}f}"
    return f"**{text}**" if mean - half > 0.0 else text


def goals(runs: Rows, regimes: Sequence[str]) -> list[str]:
    """One line for each goal: met, or where it was missed."""

    def worse(figure: str, method: str, fold: str | None = None) -> list[str]:
        own, base = "default", method
        return [r for r in regimes if is_above(values(runs, r, own, figure), values(runs, r, base, figure, fold))]

    below = [r for r in regimes if is_above(values(runs, r, "ce", "nll"), values(runs, r, "default", "nll"))]
    behind_smoothing = sorted({*worse("error", "ls"), *worse("nll", "ls")})
    calm = [r for r in regimes if is_calm(runs, r)]
    spoiled = [r for r in calm if ece_ratio(runs, r) > 1.5]
    accidents = [
        f"{r} {seed}"
        for r in regimes
        for seed, nll in values(runs, r, "default", "nll").items()
        if nll > 2.0 * values(runs, r, "ce", "nll")[seed]
    ]
    found = {
        "error not above CE's": worse("error", "ce"),
        "ECE not above CE + T's": worse("ece", "ce"),
        "NLL not above CE + T's": worse("nll", "ce"),
        f"NLL below CE + T's in at least half of {len(regimes)} (in {len(below)})": []
        if 2 * len(below) >= len(regimes)
        else [r for r in regimes if r not in below],
        f"ECE at most 1.5 times CE's where CE is calibrated by itself ({', '.join(calm) or 'nowhere'})": spoiled,
        "no run with an NLL above twice CE + T's": accidents,
        "behind LS + T in error or NLL in at most two regimes": behind_smoothing if len(behind_smoothing) > 2 else [],
    }
    lines = [
        f"- {'MISSED' if where else 'met'}: {goal}{': ' + ', '.join(where) if where else ''}"
        for goal, where in found.items()
    ]
    return [*lines, f"- behind LS + T beyond noise: {', '.join(behind_smoothing) or 'nowhere'}"]


def is_calm(runs: Rows, regime: str) -> bool:
    """Whether CE is calibrated by itself: a temperature does not lower its ECE beyond noise, and it is below 4 %."""
    plain, scaled = values(runs, regime, "ce", "ece", "plain"), values(runs, regime, "ce", "ece")
    return not is_above(plain, scaled) and fmean(plain.values()) < 0.04


def ece_ratio(runs: Rows, regime: str) -> float:
    """ECE of the default over that of CE as it is."""
    own, base = values(runs, regime, "default", "ece"), values(runs, regime, "ce", "ece", "plain")
    return fmean(own.values()) / fmean(base.values())
