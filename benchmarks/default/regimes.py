"""Fourteen ways to train a classifier that differ in what matters for its calibration."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Regime:
    """One data set, network and optimiser.

    Attributes:
        data: a name that `benchmarks.default.data.load` knows.
        train: samples that are trained on.
        held_out: samples that are not, for whatever a method does with them.
        test: samples that nothing is done with but scoring.
        model: ``"mlp"``, ``"cnn"`` or a name of `metacal.lab.models`.
        epochs: passes over the training samples.
        batch: size of a training batch.
        optimizer: ``"sgd"`` (momentum 0.9), ``"adam"`` or ``"adamw"``.
        lr: its learning rate.
        schedule: ``"drops"`` (to a tenth at a half and at three quarters), ``"cosine"`` or ``"constant"``.
        weight_decay: of the optimiser.
        noise: share of all labels that are replaced by random ones.
        imbalance: how much more frequent the first class is than the last.
    """

    data: str
    train: int
    held_out: int
    test: int
    model: str
    epochs: int
    batch: int = 32
    optimizer: str = "sgd"
    lr: float = 0.1
    schedule: str = "drops"
    weight_decay: float = 0.0
    noise: float = 0.0
    imbalance: float = 1.0


ADAM: dict[str, Any] = {"optimizer": "adam", "lr": 1e-3, "schedule": "constant"}
ADAMW: dict[str, Any] = {"optimizer": "adamw", "lr": 3e-3, "schedule": "cosine", "weight_decay": 1e-2}
IMAGES: dict[str, Any] = {"model": "resnet8", "batch": 128, "weight_decay": 5e-4}

REGIMES: dict[str, Regime] = {
    "digits-drops": Regime("digits", 120, 80, 1500, "mlp", 150),
    "digits-adam": Regime("digits", 300, 80, 1400, "mlp", 60, **ADAM),
    "digits-calm": Regime("digits", 120, 80, 1500, "mlp", 150, lr=0.01),
    "digits-noise": Regime("digits", 400, 200, 1100, "mlp", 100, schedule="cosine", noise=0.2),
    "digits-50": Regime("digits", 200, 50, 1500, "mlp", 80, **ADAMW),
    "digits-imbalanced": Regime("digits", 300, 150, 1000, "mlp", 80, schedule="cosine", imbalance=10.0),
    "cancer": Regime("cancer", 150, 100, 300, "mlp", 100, **ADAMW),
    "news": Regime("newsgroups", 4500, 500, 5000, "mlp", 25, batch=128),
    "news-adamw": Regime("newsgroups", 1500, 500, 5000, "mlp", 30, batch=64, **{**ADAMW, "lr": 1e-3}),
    "news-noise": Regime("newsgroups", 3000, 500, 5000, "mlp", 25, batch=128, noise=0.2),
    "fashion": Regime("fashion_mnist", 2000, 500, 10000, "cnn", 25, batch=64, **ADAM),
    "svhn": Regime("svhn", 2500, 1000, 3000, epochs=40, **IMAGES),
    "cifar10": Regime("cifar10", 5000, 1000, 10000, epochs=20, schedule="cosine", **IMAGES),
    "cifar100": Regime("cifar100", 5000, 1000, 2000, epochs=20, **IMAGES),
}

IMAGE_REGIMES = ("fashion", "svhn", "cifar10", "cifar100")
"""Those whose runs take minutes."""
