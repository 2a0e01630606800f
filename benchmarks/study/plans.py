"""Which runs each table of the study is made of."""

from benchmarks.study.regimes import REGIMES
from benchmarks.study.train import BASELINES, META_METHODS, Run

UNSEEN = 200
"""First seed of every compared run: nothing was chosen by looking at runs from here on."""

META_LRS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)


def regime(seeds: int = 5) -> list[Run]:
    """Cross-entropy alone, to fix the regimes."""
    return [Run(name, "ce", seed) for name in REGIMES for seed in range(seeds)]


def unseen(seeds: int) -> range:
    """The first seeds that nothing was chosen on."""
    return range(UNSEEN, UNSEEN + seeds)


def methods(seeds: int = 10) -> list[Run]:
    """The paper's four hyper-parameters against cross-entropy, label smoothing and focal loss at equal data."""
    names = (*BASELINES, *META_METHODS)
    return [Run(r, method, seed) for r in ("digits", "newsgroups") for method in names for seed in unseen(seeds)]


def robustness(seeds: int = 10) -> list[Run]:
    """Non-uniform smoothing over meta learning rates, inner reductions, lengths, and forms of the outer step."""
    return [
        Run(r, "mc", seed, meta_lr=lr, reduction=reduction, outer=outer)
        for r in ("digits-short", "digits", "digits-long", "newsgroups")
        for reduction in ("mean", "sum")
        for outer in ("published", "per unit step", "default")
        for lr in META_LRS
        for seed in unseen(seeds)
    ]


def every(seeds: int = 10) -> list[Run]:
    """How often the meta step has to be taken, in runs of about 450, 875, 1,800 and 3,500 iterations."""
    short = [(r, k) for r in ("digits", "newsgroups") for k in (1, 4, 16, 0)]
    long = [(r, k) for r in ("digits-long", "newsgroups-long") for k in (1, 16, 0)]
    return [Run(r, "mc", seed, every=k) for r, k in (*short, *long) for seed in unseen(seeds)]


# What may keep meta-calibration from winning: a meta set that is too small, too few steps, the inner learning rate, a
# meta batch that is too small.
SWEEPS: dict[str, dict[str, tuple[float, ...]]] = {
    "meta": {"digits": (10, 20, 40, 80), "newsgroups": (50, 125, 500, 1000, 2000)},
    "epochs": {"digits": (15, 50, 150), "newsgroups": (3, 6, 25)},
    "lr": {"digits": (0.01, 0.03, 0.1), "newsgroups": (0.01, 0.03, 0.1)},
    "meta_batch": {"digits": (8, 16, 40), "newsgroups": (32, 128, 500)},
    # A memory of 1 sample is none: the long regimes without, to be compared with.
    "memory": {"digits": (128,), "digits-long": (1, 128), "newsgroups": (512,), "newsgroups-long": (1, 512)},
}


def conditions(seeds: int = 10) -> list[Run]:
    """One thing changed at a time: the meta set's share of the labels, how many it looks at, how long it trains."""
    return [
        Run(r, method, seed, **{swept: value})  # type: ignore[arg-type]
        for swept, by_regime in SWEEPS.items()
        for r, values in by_regime.items()
        for value in values
        for method in ("ce", "ls", "mc", "mc-s")
        for seed in unseen(seeds)
    ]


def steady(seeds: int = 10) -> list[Run]:
    """The outer step for runs with a schedule against the default one, in short and in long runs."""
    return [
        Run(r, method, seed, outer=outer)
        for r in ("digits", "digits-long", "newsgroups", "newsgroups-long")
        for method, outers in (("ce", ("default",)), ("mc", ("default", "steady")), ("mc-s", ("default", "steady")))
        for outer in outers
        for seed in unseen(seeds)
    ]


def budget(seeds: int = 10) -> list[Run]:
    """What the labels of the meta set are best spent on: training, a temperature, or meta-calibration."""
    return [
        Run(r, method, seed, outer=outer, equal_data=equal_data)
        for r in ("digits", "newsgroups")
        for method, outer, equal_data in (
            ("ce", "default", True),
            ("ls", "default", True),
            ("mc", "steady", True),
            ("ce", "default", False),
        )
        for seed in unseen(seeds)
    ]


PLANS = {
    "regime": regime,
    "methods": methods,
    "robustness": robustness,
    "every": every,
    "conditions": conditions,
    "steady": steady,
    "budget": budget,
}
