"""How often does a 95 % interval hold the true value? Simulated worlds whose true values are known.

``python -m benchmarks.interval_coverage``; the tables go to results/coverage and docs/design/intervals.md.
"""

import argparse
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.report import save_table, typed
from metacal.evaluation import Predictions
from metacal.evaluation.evaluation import MEASURES
from metacal.evaluation.scores import Binned
from metacal.evaluation.streaming import StreamedScores
from metacal.functional.binning import calibration_error, equal_width_index, equal_width_statistics
from metacal.functional.calibration_errors import smooth_error

NUM_BINS = 15
NUM_CLASSES = 10
RESAMPLES = 1000
SEED = 7_000
"""Of the worlds that are reported; the interval was chosen on worlds of other seeds."""

GRID = 1_500_000
WORLDS: dict[str, Callable[[Tensor], Tensor]] = {
    "calibrated": torch.zeros_like,
    "2 points over-confident": lambda confidences: torch.full_like(confidences, -0.02),
    "5 points over-confident": lambda confidences: torch.full_like(confidences, -0.05),
    "10 points over-confident": lambda confidences: torch.full_like(confidences, -0.10),
    "wiggle": lambda confidences: -0.0414 * torch.sin(5.0 * math.pi * confidences),
    "10 points in the top bin only": lambda confidences: -0.10 * (confidences > 14 / 15).double(),
}
SIZES = (100, 500, 2000)
HEADLINE = ("ece", "nll", "brier", "accuracy", "one-sided", "percentile", "basic")
"""Four figures; how many intervals of the ECE are one-sided; and how the bootstrap's two cover it."""

OTHERS = tuple(name for name in MEASURES if name not in HEADLINE)


def confidences_at(uniform: Tensor) -> Tensor:
    """Confidences in [0.5, 1], more of them high than low."""
    return 0.5 + 0.5 * uniform.sqrt()


def draw(world: str, samples: int, generator: torch.Generator) -> Predictions:
    """Probabilities that leave equal parts to the classes below the top one, and targets."""
    confidences = confidences_at(torch.rand(samples, generator=generator, dtype=torch.float64))
    chances = confidences + WORLDS[world](confidences)
    is_right = torch.rand(samples, generator=generator, dtype=torch.float64) < chances
    top = torch.randint(NUM_CLASSES, (samples,), generator=generator)
    other = (top + torch.randint(1, NUM_CLASSES, (samples,), generator=generator)) % NUM_CLASSES
    probs = ((1.0 - confidences) / (NUM_CLASSES - 1)).unsqueeze(1).repeat(1, NUM_CLASSES)
    probs.scatter_(1, top.unsqueeze(1), confidences.unsqueeze(1))
    return Predictions.from_probs(probs, torch.where(is_right, top, other))


def true_values(world: str) -> dict[str, float]:
    """Every figure of endlessly many samples: expectations over a fine grid of confidences, in the same bins."""
    confidences = confidences_at((torch.arange(GRID, dtype=torch.float64) + 0.5) / GRID)
    gaps = WORLDS[world](confidences)
    chances, below = confidences + gaps, (1.0 - confidences) / (NUM_CLASSES - 1)
    rest = NUM_CLASSES - 1
    right = (1.0 - confidences).square() + rest * below.square()
    wrong = confidences.square() + (1.0 - below).square() + (rest - 1) * below.square()
    index = equal_width_index(confidences, NUM_BINS)
    bins = torch.zeros(NUM_BINS, dtype=torch.float64).index_add(0, index, gaps) / GRID
    counts = torch.bincount(index, minlength=NUM_BINS) / GRID
    of_class = bins.index_add(0, equal_width_index(below, NUM_BINS), -gaps / GRID) / NUM_CLASSES  # top, and not top
    parts = gaps.view(NUM_BINS, -1).mean(1)  # confidences rise, so these bins are of equal mass
    return {
        "accuracy": chances.mean().item(),
        "nll": -(chances * confidences.log() + (1.0 - chances) * below.log()).mean().item(),
        "brier": (chances * right + (1.0 - chances) * wrong).mean().item(),
        "ece": bins.abs().sum().item(),
        "mce": (bins.abs() / counts.clamp(min=1.0 / GRID)).amax().item(),
        "adaptive_ece": parts.abs().mean().item(),
        "classwise_ece": of_class.abs().sum().item(),
        "debiased_ece_l2": parts.square().mean().sqrt().item(),
        "sweep_ece": gaps.abs().mean().item(),
        "smooth_ece": smooth_error(confidences, chances).item(),
    }


def bootstrap_ends(predictions: Predictions, generator: np.random.Generator) -> dict[str, tuple[float, float]]:
    """The ECE's textbook intervals: quantiles of the resampled values, and those turned over around the estimate."""
    confidences, predicted = predictions.probs.max(dim=1)
    bins = equal_width_statistics(confidences, predicted == predictions.targets, NUM_BINS)
    cells = torch.stack((bins.correct_sums, bins.counts - bins.correct_sums)).flatten().numpy()
    drawn = generator.multinomial(len(confidences), cells / cells.sum(), size=RESAMPLES).reshape(RESAMPLES, 2, -1)
    gaps = drawn[:, 0] - drawn.sum(1) * bins.confidences.numpy()
    values = np.abs(gaps).sum(1) / len(confidences)
    low, high = np.quantile(values, [0.025, 0.975]).tolist()
    estimate = calibration_error(bins).item()
    return {"percentile": (low, high), "basic": (2.0 * estimate - high, 2.0 * estimate - low)}


def headline(world: str, samples: int, trials: int, seed: int) -> dict[str, float]:
    """Share of data sets whose interval holds the true value, by figure; of the ECE, the bootstrap's as well."""
    truth = true_values(world)
    generator, resampling = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
    hits = dict.fromkeys(HEADLINE, 0)
    for _ in range(trials):
        predictions = draw(world, samples, generator)
        scores = StreamedScores(is_logits=False, num_bins=NUM_BINS)
        scores.update(predictions.scores, predictions.targets)
        ends = scores.intervals()
        hits["one-sided"] += ends["ece"][0] == 0.0
        for name, (low, high) in {**ends, **bootstrap_ends(predictions, resampling)}.items():
            if name in HEADLINE:
                hits[name] += low <= truth.get(name, truth["ece"]) <= high
    return {name: count / trials for name, count in hits.items()}


def others(world: str, samples: int, trials: int, seed: int) -> dict[str, float]:
    """The same of the other figures, which take longer."""
    truth, generator = true_values(world), torch.Generator().manual_seed(seed)
    hits = dict.fromkeys(OTHERS, 0)
    for _ in range(trials):
        predictions = draw(world, samples, generator)
        confidences, predicted = predictions.probs.max(dim=1)
        smooth = smooth_error(confidences, predicted == predictions.targets).item()
        ends = Binned.of(predictions.inputs, NUM_BINS).intervals(smooth)
        for name in OTHERS:
            hits[name] += ends[name][0] <= truth[name] <= ends[name][1]
    return {name: count / trials for name, count in hits.items()}


def table(columns: tuple[str, ...], rows: list[tuple[str, int, dict[str, float]]]) -> str:
    """One row a world and sample size, in percent."""
    lines = [f"| true error | n | {' | '.join(columns)} |", "|---|---|" + "---|" * len(columns)]
    for world, samples, shares in rows:
        lines.append(f"| {world} | {samples:,} | {' | '.join(f'{100 * shares[name]:.1f}' for name in columns)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure every world at every size: printed, and kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000, help="data sets a row")
    parser.add_argument("--other-trials", type=int, default=200, help="data sets a row, for the other figures")
    parser.add_argument("--seed", type=int, default=SEED, help="of the first row")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    places = [(world, samples) for world in WORLDS for samples in SIZES]
    seeds = [arguments.seed + number for number in range(len(places))]
    for file, columns, measure, trials in (
        ("interval_coverage", HEADLINE, headline, arguments.trials),
        ("other_intervals", OTHERS, others, arguments.other_trials),
    ):
        rows = []
        for (world, samples), seed in zip(places, seeds, strict=True):
            rows.append((world, samples, measure(world, samples, trials, seed)))
            print(table(columns, rows[-1:]).splitlines()[-1], flush=True)
        path = Path("results/coverage") / f"{file}.md"
        save_table(path, typed("interval_coverage"), table(columns, rows), seeds=seeds, data_sets=trials)


if __name__ == "__main__":
    main()
