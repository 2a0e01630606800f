"""Predictions to measure on: synthetic ones of any size that look like a trained network's, and real ones."""

import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from metacal.evaluation.predictions import example_predictions

WIDE_RESNET = "WideResNet-16-4 on CIFAR-10"
DENSENET = "DenseNet-BC-100 on CIFAR-100"
DENSENET_FILE = "predictions/densenet-bc-100-cifar-100.npz"

SPREADS = {10: (2.0, 5.0), 1000: (2.5, 10.5)}
"""Scale of the noise and lead of the true class, by number of classes: accuracies of about 0.8."""


def synthetic_predictions(samples: int, num_classes: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """float32 probs ``(n, K)`` and targets: softmax of scaled normal logits in which the true class has a lead."""
    generator = torch.Generator().manual_seed(seed)
    scale, lead = SPREADS[num_classes]
    targets = torch.randint(num_classes, (samples,), generator=generator)
    logits = torch.randn(samples, num_classes, generator=generator).mul_(scale)
    logits[torch.arange(samples), targets] += lead
    return torch.softmax(logits, dim=1), targets


def one_bin_events(samples: int, seed: int = 0) -> tuple[Tensor, Tensor, float]:
    """Yes/no events whose probabilities all lie in the last of 15 bins, and their exact ECE.

    A float32 in [0.5, 1] is a multiple of 2**-24, so the exact sum is an integer that fits 64 bits.

    Returns:
        float32 probs ``(n,)``, targets ``(n,)`` and the ECE, rounded once from the exact rational.
    """
    generator = torch.Generator().manual_seed(seed)
    probs = 0.95 + 0.04 * torch.rand(samples, generator=generator)
    targets = (torch.rand(samples, generator=generator) < 0.906).long()
    units = int((probs.double() * 2**24).long().sum())
    return probs, targets, abs(units - int(targets.sum()) * 2**24) / (samples * 2**24)


def real_predictions() -> dict[str, tuple[Tensor, Tensor]]:
    """Real float32 probs ``(n, K)`` and targets by name: one file ships with metacal, METACAL_TEST_DATA has another."""
    found = {WIDE_RESNET: example_predictions()}
    path = Path(os.environ.get("METACAL_TEST_DATA", "")) / DENSENET_FILE
    if path.is_file():
        with np.load(path, allow_pickle=False) as arrays:
            probs, targets = torch.from_numpy(arrays["predictions"]), torch.from_numpy(arrays["ground_truth"])
        found[DENSENET] = (probs, targets.reshape(-1).long())
    return found


def missing_predictions() -> str | None:
    """One sentence if the second file of real predictions is not there."""
    if DENSENET in real_predictions():
        return None
    return f"{DENSENET} is skipped: METACAL_TEST_DATA does not name a folder that holds {DENSENET_FILE}."
