"""How often does the 95 % interval of a difference between two models on the same rows hold the true difference?

``python -m benchmarks.paired_coverage``; the table goes to results/coverage and docs/design/intervals.md.
"""

from pathlib import Path

import torch

from benchmarks.interval_coverage import NUM_CLASSES, WORLDS, confidences_at, draw, true_values
from benchmarks.report import save_table, typed
from metacal.evaluation import Predictions
from metacal.evaluation.paired import accuracy_difference, error_cells, error_difference, mean_difference
from metacal.evaluation.scores import Binned

TRIALS, SIZES, RESAMPLES, SEED = 200, (500, 2000), 500, 9_000
PAIRS = (
    ("calibrated", "calibrated"),
    ("calibrated", "2 points over-confident"),
    ("calibrated", "5 points over-confident"),
    ("calibrated", "10 points over-confident"),
    ("5 points over-confident", "5 points over-confident"),
    ("5 points over-confident", "10 points over-confident"),
    ("calibrated", "wiggle"),
)
FIGURES = ("accuracy", "nll", "brier", "ece", "adaptive_ece", "classwise_ece")
SHARED = 0.7
"""Chance that the second model answers a row as the first one does."""


def second_model(first: Predictions, world: str, generator: torch.Generator) -> Predictions:
    """Another model on the same rows: its confidences follow the first one's, its answers are often the same.

    Targets are fixed, so its confidences are drawn first and its top class is made right with the world's chance; the
    answers are shared by drawing from the same uniform number as the first model's on a share of the rows.
    """
    rows = len(first)
    top, targets = first.predicted, first.targets
    own = confidences_at(torch.rand(rows, generator=generator, dtype=torch.float64))
    is_shared = torch.rand(rows, generator=generator) < SHARED
    confidences = torch.where(is_shared, first.probs.amax(1).double(), own)
    chances = confidences + WORLDS[world](confidences)
    # On shared rows: right where the first is, but for as many as the two chances differ by.
    base = confidences + WORLDS[first.name](confidences)
    uniform = torch.rand(rows, generator=generator, dtype=torch.float64)
    was_right = top == targets
    stays = uniform < (chances / base).clamp(max=1.0)
    turns = uniform < ((chances - base) / (1.0 - base).clamp(min=1e-12)).clamp(min=0.0)
    is_right = torch.where(is_shared, torch.where(was_right, stays, turns), uniform < chances)
    other = (targets + torch.randint(1, NUM_CLASSES, (rows,), generator=generator)) % NUM_CLASSES
    answers = torch.where(is_right, targets, other)
    probs = ((1.0 - confidences) / (NUM_CLASSES - 1)).unsqueeze(1).repeat(1, NUM_CLASSES)
    return Predictions.from_probs(probs.scatter_(1, answers.unsqueeze(1), confidences.unsqueeze(1)), targets)


def coverage(worlds: tuple[str, str], rows: int, trials: int = TRIALS, seed: int = SEED) -> dict[str, float]:
    """Share of data sets whose interval holds the true difference, by figure."""
    truth = [true_values(world) for world in worlds]
    held = dict.fromkeys(FIGURES, 0)
    for trial in range(trials):
        generator = torch.Generator().manual_seed(seed + trial)
        drawn = draw(worlds[0], rows, generator)
        first = Predictions(drawn.scores, False, drawn.targets, drawn.class_names, worlds[0])
        models = [Binned.of(each.inputs, 15) for each in (first, second_model(first, worlds[1], generator))]
        losses = [model.losses_and_distances for model in models]
        cells = [error_cells(model, 0.1) for model in models]
        ends = {
            "accuracy": accuracy_difference(models[0].correct, models[1].correct),
            "nll": mean_difference(losses[0][0], losses[1][0]),
            "brier": mean_difference(losses[0][1], losses[1][1]),
        }
        for name in FIGURES[3:]:
            ends[name] = error_difference(cells[0][name], cells[1][name], RESAMPLES, trial)[1:]
        for name, (low, high) in ends.items():
            held[name] += low <= truth[1][name] - truth[0][name] <= high
    return {name: count / trials for name, count in held.items()}


def main() -> None:
    """One row a pair of models and sample size: printed, and kept."""
    torch.set_num_threads(1)
    lines = [f"| first | second | n | {' | '.join(FIGURES)} |", "|---|---|---|" + "---|" * len(FIGURES)]
    for worlds in PAIRS:
        for rows in SIZES:
            found = coverage(worlds, rows)
            shown = " | ".join(f"{100.0 * found[name]:.1f}" for name in FIGURES)
            lines.append(f"| {worlds[0]} | {worlds[1]} | {rows:,} | {shown} |")
            print(lines[-1], flush=True)
    save_table(Path("results/coverage/paired_coverage.md"), typed("paired_coverage"), "\n".join(lines), seeds=[SEED])


if __name__ == "__main__":
    main()
