"""How often a 95 % interval of a bin's accuracy holds the true one: Wilson's against resampling the bin.

``python -m benchmarks.share_coverage``; the table goes to results/coverage and docs/design/reporting.md.
"""

from pathlib import Path

import torch

from benchmarks.report import save_table, typed
from metacal.functional.intervals import share_interval

WORLDS = 4000
RESAMPLES = 1000
ROUNDING = 1e-6
SEED = 0


def coverage(share: float, count: int, seed: int = SEED) -> tuple[float, float]:
    """Coverage of Wilson's and of the percentile bootstrap interval over many samples of one bin."""
    generator = torch.Generator().manual_seed(seed)
    right = torch.binomial(torch.full((WORLDS,), float(count)), torch.full((WORLDS,), share), generator=generator)
    low, high = share_interval(right, torch.full((WORLDS,), count))
    wilson = (low <= share) & (share <= high)
    chances = (right / count).unsqueeze(1).expand(-1, RESAMPLES).contiguous()
    resampled = torch.binomial(torch.full_like(chances, float(count)), chances, generator=generator) / count
    low, high = torch.quantile(resampled, torch.tensor([0.025, 0.975]), dim=1)
    bootstrap = (low <= share + ROUNDING) & (share - ROUNDING <= high)
    return wilson.double().mean().item(), bootstrap.double().mean().item()


def main() -> None:
    """One row a share and sample size: printed, and kept."""
    lines = ["| true share | samples | Wilson | bootstrap |", "|---|---|---|---|"]
    for share in (0.5, 0.9, 0.99):
        for count in (5, 20, 100, 1000):
            wilson, bootstrap = coverage(share, count)
            lines.append(f"| {share} | {count:,} | {wilson:.0%} | {bootstrap:.0%} |")
            print(lines[-1], flush=True)
    save_table(Path("results/coverage/share_coverage.md"), typed("share_coverage"), "\n".join(lines), seeds=[SEED])


if __name__ == "__main__":
    main()
