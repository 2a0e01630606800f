"""How often do the intervals of an ECE hold the true value? Simulated worlds whose calibration error is known.

Run: ``python -m benchmarks.interval_coverage``; the table goes to results/coverage and docs/design/intervals.md.
"""

import argparse
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.report import save_table, typed
from metacal.functional.binning import equal_width_index
from metacal.functional.bootstrap import binned_interval, binned_statistic, bootstrap_interval

NUM_BINS = 15
RESAMPLES = 500
SEED = 0
WORLDS = {
    "calibrated": lambda confidences: confidences,
    "2 points over-confident": lambda confidences: confidences - 0.02,
    "over-confident at the top": lambda confidences: confidences - 0.08 * (confidences - 0.4),
    "15 points over-confident": lambda confidences: confidences - 0.15,
}


def draw(world: str, samples: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Confidences in [0.5, 1], the chance of being right at each, and whether each was right."""
    confidences = 0.5 + 0.5 * torch.rand(samples, generator=generator, dtype=torch.float64).sqrt()
    chances = WORLDS[world](confidences)
    return confidences, chances, torch.rand(samples, generator=generator, dtype=torch.float64) < chances


def true_error(world: str, generator: torch.Generator) -> float:
    """The binned error of the world itself: chances instead of outcomes, four million samples."""
    confidences, chances, _ = draw(world, 4_000_000, generator)
    sums = torch.zeros(NUM_BINS, dtype=torch.float64)
    sums.index_add_(0, equal_width_index(confidences, NUM_BINS), chances - confidences)
    return float(sums.abs().sum() / len(confidences))


def percentile(confidences: Tensor, correct: Tensor, seed: int) -> tuple[float, float]:
    """The textbook interval: quantiles of the resampled values."""
    statistic = binned_statistic(confidences, correct, NUM_BINS)
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randint(len(confidences), (RESAMPLES, len(confidences)), generator=generator)
    values = torch.cat([statistic(part) for part in torch.split(rows, 50)])
    low, high = torch.quantile(values, torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return low, high


def main() -> None:
    """One row a world and sample size: printed, and kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=200, help="data sets drawn a row")
    trials = parser.parse_args().trials
    generator = torch.Generator().manual_seed(SEED)
    lines = ["| world | true ECE | n | percentile | basic | ours |", "|---|---|---|---|---|---|"]
    for world in WORLDS:
        truth = true_error(world, generator)
        for samples in (500, 2000, 10000):
            hits = {"percentile": 0, "basic": 0, "ours": 0}
            for trial in range(trials):
                confidences, _, correct = draw(world, samples, generator)
                statistic = binned_statistic(confidences, correct, NUM_BINS)
                basic = bootstrap_interval(statistic, confidences, num_resamples=RESAMPLES, seed=trial)
                ours = binned_interval(confidences, correct, NUM_BINS, num_resamples=RESAMPLES, seed=trial)
                ends = {
                    "percentile": percentile(confidences, correct, trial),
                    "basic": (float(basic.low), float(basic.high)),
                    "ours": (float(ours.low), float(ours.high)),
                }
                for name, (low, high) in ends.items():
                    hits[name] += low - 1e-12 <= truth <= high
            shares = " | ".join(f"{count / trials:.0%}" for count in hits.values())
            lines.append(f"| {world} | {truth:.3f} | {samples:,} | {shares} |")
            print(lines[-1], flush=True)
    save_table(
        Path("results/coverage/interval_coverage.md"), typed("interval_coverage"), "\n".join(lines), seeds=[SEED]
    )


if __name__ == "__main__":
    main()
