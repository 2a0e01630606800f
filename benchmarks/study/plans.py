"""Which runs each table of the study is made of."""

from benchmarks.study.train import BASELINES, META_METHODS, OUTER_STEPS, Run

META_LRS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)


def regime(seeds: int = 5) -> list[Run]:
    """Cross-entropy alone, to fix the regimes."""
    return [Run(name, "ce", seed) for name in ("digits", "newsgroups") for seed in range(seeds)]


def methods(seeds: int = 10) -> list[Run]:
    """The paper's four hyper-parameters against cross-entropy and label smoothing at equal data."""
    names = (*BASELINES, *META_METHODS)
    return [Run(r, method, seed) for r in ("digits", "newsgroups") for method in names for seed in range(seeds)]


def robustness(seeds: int = 5) -> list[Run]:
    """Non-uniform smoothing over meta learning rates, inner reductions, lengths, and forms of the outer step."""
    return [
        Run(r, "mc", seed, meta_lr=lr, reduction=reduction, outer=outer)
        for r in ("digits-short", "digits", "digits-long", "newsgroups")
        for reduction in ("mean", "sum")
        for outer in OUTER_STEPS
        for lr in META_LRS
        for seed in range(seeds)
    ]


def every(seeds: int = 10) -> list[Run]:
    """How often the meta step has to be taken."""
    return [
        Run(r, "mc", seed, every=k)
        for r in ("digits", "newsgroups")
        for k in (1, 2, 4, 8, 16, 0)
        for seed in range(seeds)
    ]


PLANS = {"regime": regime, "methods": methods, "robustness": robustness, "every": every}
