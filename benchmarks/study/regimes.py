"""The regimes of the study, fixed on cross-entropy alone before meta-calibration was run in them.

A regime must over-fit and be over-confident under plain cross-entropy: training accuracy above 99 % and validation ECE
above 5 %. ``python -m benchmarks.study regime`` trains cross-entropy (and nothing else) and prints whether that holds.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Regime:
    """Data sizes and plain training settings.

    Attributes:
        dataset: name in `benchmarks.study.data`.
        train: samples to train on.
        meta: samples of the meta set; methods without one train on train + meta.
        val: samples for looking at while fixing the regime.
        width: of the two hidden layers of the MLP.
        epochs: passes over train + meta samples; every method takes the same number of steps.
        lr: of SGD with momentum 0.9, divided by 10 after half and after three quarters of the steps.
        batch: training and meta batch size.
    """

    dataset: str
    train: int
    meta: int
    val: int
    width: int
    epochs: int
    lr: float = 0.1
    batch: int = 32


REGIMES = {
    "digits": Regime("digits", train=80, meta=40, val=400, width=256, epochs=150),
    "digits-short": Regime("digits", train=80, meta=40, val=400, width=256, epochs=50),
    "digits-long": Regime("digits", train=80, meta=40, val=400, width=256, epochs=600),
    "newsgroups": Regime("newsgroups", train=4000, meta=500, val=1000, width=256, epochs=25, batch=128),
    "newsgroups-long": Regime("newsgroups", train=4000, meta=500, val=1000, width=256, epochs=100, batch=128),
}
