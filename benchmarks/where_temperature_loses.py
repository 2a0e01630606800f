"""``python -m benchmarks.where_temperature_loses confirm`` (or ``develop``): when classes differ in over-confidence.

The design, and what counts as a win, are in docs/design/where-temperature-loses.md. Runs are kept as JSON lines, one
for each, so that the command can be stopped and started again. Networks are trained as in `benchmarks.default`.
"""

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from benchmarks.default.__main__ import key, load
from benchmarks.default.data import Samples, Split, features_and_labels
from benchmarks.default.methods import CANDIDATES
from benchmarks.default.regimes import Regime
from benchmarks.default.tables import Rows, grouped, is_above, paired
from benchmarks.default.train import Run, build, figures, predict, train
from benchmarks.report import save_table
from metacal.functional import temperature_with_prior
from metacal.lab.training.environment import commit
from metacal.posthoc import Calibrator, StructuredVectorScaling, VectorScaling

SEEDS = {"develop": range(700, 703), "confirm": range(300, 310)}
STORE = Path("results/where-temperature-loses")
METHODS = ("ce", "ls", "default")
OURS = ("default", "finish")
RIVALS = {"CE + T": ("ce", "T"), "CE + VS": ("ce", "VS"), "CE + SVS": ("ce", "SVS"), "LS + T": ("ls", "T")}
SHOWN = {
    "CE": ("ce", "as it is"),
    **RIVALS,
    "default, no finish": ("default", "as it is"),
    "default": OURS,
    "LS + SVS": ("ls", "SVS"),
    "default + SVS": ("default", "SVS"),
}
JUDGED = ("nll", "classwise")
PREMISE = 0.02
"""A case counts if vector scaling of CE, fitted on the test samples, has an NLL lower by this share than T has."""

CLASSES, DIMENSIONS, FRESH = 6, 10, 10_000
NOISY = 0.4
NOISE_OF_INPUTS = 1.5


@dataclass(frozen=True)
class Gaussians:
    """A mixture of unit Gaussians with labels that may be flipped among the classes of its second half.

    Attributes:
        apart: distance from the middle of the classes of the first half, and of the second half's own middle.
        within: distance from that middle of the classes of the second half.
        imbalance: how much more frequent the first class is than the last.
        noise: share of labels of the second half that are replaced by another one of that half.
    """

    apart: float
    within: float
    imbalance: float = 1.0
    noise: float = 0.0

    @property
    def means(self) -> Tensor:
        """``(K, d)``."""
        half, basis = CLASSES // 2, torch.eye(DIMENSIONS)
        first = self.apart * basis[:half]
        return torch.cat((first, self.apart * basis[half] + self.within * basis[half + 1 : 2 * half + 1]))

    @property
    def shares(self) -> Tensor:
        """``(K,)``: how frequent each class is."""
        shares: Tensor = self.imbalance ** -(torch.arange(CLASSES) / (CLASSES - 1))
        return shares / shares.sum()

    @property
    def flips(self) -> Tensor:
        """``(K, K)``: the probability of each label, by class."""
        half = CLASSES // 2
        among = torch.zeros(CLASSES, CLASSES)
        among[half:, half:] = (1.0 - torch.eye(CLASSES - half)) / (CLASSES - half - 1)
        noise = torch.zeros(CLASSES, 1)
        noise[half:] = self.noise
        return (1.0 - noise) * torch.eye(CLASSES) + noise * among

    def draw(self, count: int, generator: torch.Generator) -> Samples:
        """Inputs and labels."""
        classes = torch.multinomial(self.shares, count, replacement=True, generator=generator)
        inputs = self.means[classes] + torch.randn(count, DIMENSIONS, generator=generator)
        return inputs, torch.multinomial(self.flips[classes], 1, generator=generator).squeeze(1)

    def log_posterior(self, inputs: Tensor) -> Tensor:
        """The logits of a model that knows everything."""
        densities = -0.5 * torch.cdist(inputs.double(), self.means.double()).square() + self.shares.double().log()
        return (torch.softmax(densities, dim=1) @ self.flips.double()).log()


@dataclass(frozen=True)
class Case:
    """Data and how a network is trained on it."""

    regime: Regime
    draw: Callable[[torch.Generator], Samples]
    population: Gaussians | None = None  # where it is known

    def split(self, seed: int) -> Split:
        """One seeded draw; noise and imbalance are those of the population, test samples included."""
        inputs, labels = self.draw(torch.Generator().manual_seed(seed))
        sizes = (self.regime.train, self.regime.held_out)
        parts = [
            torch.split(values, [*sizes, len(labels) - sum(sizes)]) for values in (inputs, labels)
        ]  # samples come in random order
        train_part, held_out, test = zip(*parts, strict=True)
        return Split(train_part, held_out, test, int(labels.max()) + 1)


def digits_with_noisy_labels(generator: torch.Generator) -> Samples:
    """Digits, four times as many zeros as nines; labels of odd digits are flipped among odd digits."""
    inputs, labels = features_and_labels("digits")
    rows = torch.randperm(len(labels), generator=generator)
    rows = rows[torch.rand(len(rows), generator=generator) < (4.0 ** -(torch.arange(10) / 9))[labels[rows]]]
    inputs, labels = inputs[rows], labels[rows]
    others = (labels + 2 * torch.randint(1, 5, labels.shape, generator=generator)) % 10
    flipped = (labels % 2 == 1) & (torch.rand(len(labels), generator=generator) < NOISY)
    return inputs, torch.where(flipped, others, labels)


def digits_behind_noise(generator: torch.Generator) -> Samples:
    """Digits; the odd ones are seen through noise, so that they overlap."""
    inputs, labels = features_and_labels("digits")
    rows = torch.randperm(len(labels), generator=generator)
    inputs, labels = inputs[rows], labels[rows]
    noise = NOISE_OF_INPUTS * torch.randn(inputs.shape, generator=generator)
    return torch.where((labels % 2 == 1).unsqueeze(1), inputs + noise, inputs), labels


def simulated(population: Gaussians) -> Case:
    """A case with 300 samples to train on and 200 held out."""
    regime = Regime("simulated", 300, 200, FRESH, "mlp", 100)
    return Case(regime, lambda generator: population.draw(500 + FRESH, generator), population)


CASES = {
    "overlap": simulated(Gaussians(apart=4.0, within=1.0)),
    "imbalanced noise": simulated(Gaussians(apart=3.0, within=3.0, imbalance=5.0, noise=NOISY)),
    "digits, noisy labels": Case(Regime("digits", 350, 200, 500, "mlp", 100), digits_with_noisy_labels),
    "digits, noisy inputs": Case(Regime("digits", 400, 200, 1200, "mlp", 100), digits_behind_noise),
}


def execute(run: Run) -> dict[str, Any]:
    """Train one network and score what each calibrator makes of it."""
    case = CASES[run.regime]
    samples = case.split(run.seed)
    torch.manual_seed(run.seed)
    model = build(case.regime, samples)
    meta, _ = train(model, case.regime, samples, run, CANDIDATES.get(run.method))
    held_out, test = ((predict(model, x), y) for x, y in (samples.held_out, samples.test))
    temperature = temperature_with_prior(logits=held_out[0], targets=held_out[1], iterations=60)
    row: dict[str, Any] = {
        **asdict(run),
        "as it is": figures(*test),
        "T": figures(test[0] / temperature, test[1]),
        "VS": figures(scaled(VectorScaling(), held_out, test[0]), test[1]),
        "SVS": figures(scaled(StructuredVectorScaling(), held_out, test[0]), test[1]),
    }
    if meta is not None:
        found = meta.finish()
        row["finish"] = figures(predict(model, samples.test[0]), test[1])
        row["temperature"] = found.temperature if found.is_folded else 1.0
    if run.method == "ce":
        best = temperature_with_prior(logits=test[0], targets=test[1], prior_std=100.0, iterations=60)
        row["T of the test set"] = figures(test[0] / best, test[1])
        row["VS of the test set"] = figures(scaled(VectorScaling(), test, test[0]), test[1])
        if case.population is not None:
            row["oracle"] = figures(case.population.log_posterior(samples.test[0]), test[1])
    return row | {"torch": torch.__version__, "commit": commit(Path(__file__).parent)}


def scaled(calibrator: Calibrator, fitted_on: Samples, logits: Tensor) -> Tensor:
    """Logits of what a calibrator says."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few samples are what this is about
        probs = calibrator.fit(logits=fitted_on[0], targets=fitted_on[1]).predict_proba(logits=logits)
    return torch.as_tensor(probs).clamp(min=torch.finfo(torch.float64).tiny).log()


def by_seed(runs: Rows, case: str, what: tuple[str, str], figure: str) -> dict[int, float]:
    """A test figure of a method after a calibrator."""
    method, calibrator = what
    return {seed: row[calibrator][figure] for seed, row in runs[case, method].items()}


def premise(runs: Rows, case: str) -> float:
    """By how much, on the test samples themselves, vector scaling is better than temperature; share of NLL."""
    vector, temperature = (
        fmean(by_seed(runs, case, ("ce", f"{name} of the test set"), "nll").values()) for name in ("VS", "T")
    )
    return 1.0 - vector / temperature


def compared(runs: Rows, case: str, rival: tuple[str, str], figure: str) -> str:
    """The default minus a rival with a 95 % interval, and what that is: won, lost or level."""
    ours, theirs = by_seed(runs, case, OURS, figure), by_seed(runs, case, rival, figure)
    mean, half = paired(ours, theirs)
    word = "lost" if is_above(ours, theirs) else "won" if is_above(theirs, ours) else "level"
    unit, digits = (1.0, 3) if figure == "nll" else (100.0, 2)
    return f"{unit * mean:+.{digits}f} ± {unit * half:.{digits}f} {word}"


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Means, differences from the default, and what the rule makes of them."""
    runs = grouped(rows)
    cases = [case for case in CASES if all((case, method) in runs for method in METHODS)]
    lines = ["Test error %, classwise ECE %, NLL: means over seeds.\n", f"| case | {' | '.join(SHOWN)} | oracle |"]
    lines.append("|---" * (len(SHOWN) + 2) + "|")
    for case in cases:
        cells = [shown(runs, case, what) for what in SHOWN.values()]
        has_oracle = CASES[case].population is not None
        lines.append(f"| {case} | {' | '.join([*cells, shown(runs, case, ('ce', 'oracle')) if has_oracle else ''])} |")
    names = [f"{figure} - {name}" for name in RIVALS for figure in JUDGED]
    lines += ["\nThe default minus a rival, paired over seeds, with 95 % intervals (classwise ECE in points).\n"]
    lines += [f"| case | premise | {' | '.join(names)} |", "|---" * (len(names) + 2) + "|"]
    for case in cases:
        cells = [compared(runs, case, rival, figure) for rival in RIVALS.values() for figure in JUDGED]
        lines.append(f"| {case} | {100 * premise(runs, case):.1f} % | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *verdict(runs, cases)])


def shown(runs: Rows, case: str, what: tuple[str, str]) -> str:
    """Error, classwise ECE and NLL."""
    error, classwise, nll = (fmean(by_seed(runs, case, what, name).values()) for name in ("error", "classwise", "nll"))
    return f"{100 * error:.1f}, {100 * classwise:.2f}, {nll:.3f}"


def verdict(runs: Rows, cases: Sequence[str]) -> list[str]:
    """One line for each claim of the rule."""
    counted = [case for case in cases if premise(runs, case) > PREMISE]
    lines = [f"- a temperature is not enough in {len(counted)} of {len(cases)} cases: {', '.join(counted) or 'none'}"]
    if len(counted) < 2:
        return [*lines, "- fewer than two: the study says nothing"]

    def cases_of(rival: str, figure: str, *, won: bool) -> list[str]:
        pairs = {c: (by_seed(runs, c, OURS, figure), by_seed(runs, c, RIVALS[rival], figure)) for c in counted}
        return [
            case
            for case, (ours, theirs) in pairs.items()
            if (is_above(theirs, ours) if won else is_above(ours, theirs))
        ]

    for figure, name in (("nll", "NLL"), ("classwise", "classwise ECE")):
        won = cases_of("CE + T", figure, won=True)
        word = "met" if 4 * len(won) >= 3 * len(counted) else "MISSED"
        lines.append(f"- {word}: {name} below CE + T's in three quarters of the cases: {', '.join(won) or 'in none'}")
    harmed = {figure: cases_of("CE + T", figure, won=False) for figure in ("error", *JUDGED)}
    told = "; ".join(f"{figure}: {', '.join(where)}" for figure, where in harmed.items() if where)
    lines.append(f"- {'MISSED' if told else 'met'}: nothing above CE + T's beyond noise{': ' + told if told else ''}")
    for rival in list(RIVALS)[1:]:
        behind = cases_of(rival, "nll", won=False)
        word = "MISSED" if len(behind) > 1 else "met"
        lines.append(f"- {word}: NLL above that of {rival} in at most one case: {', '.join(behind) or 'in none'}")
    return lines


def main() -> None:
    """Run what is missing, then print and save the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.where_temperature_loses", description=__doc__)
    parser.add_argument("plan", choices=SEEDS)
    parser.add_argument("--store", type=Path, default=STORE)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    store = arguments.store / f"{arguments.plan}.jsonl"
    store.parent.mkdir(parents=True, exist_ok=True)
    runs = [Run(case, method, seed) for seed in SEEDS[arguments.plan] for case in CASES for method in METHODS]
    done = load(store)
    missing = [run for run in runs if key(asdict(run)) not in done]
    with store.open("a", encoding="utf-8") as file:
        for count, run in enumerate(missing, 1):
            row = done[key(asdict(run))] = execute(run)
            print(json.dumps(row), file=file, flush=True)
            print(f"{count} of {len(missing)}: {run.regime}, {run.method}, {run.seed}", file=sys.stderr)
    found = table([done[key(asdict(run))] for run in runs])
    print(found)
    command = f"python -m benchmarks.where_temperature_loses {arguments.plan}"
    save_table(store.with_suffix(".md"), command, found, seeds=list(SEEDS[arguments.plan]), runs=len(runs))


if __name__ == "__main__":
    main()
