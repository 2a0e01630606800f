"""Made-up subjects of a report, with values like those of real ones."""

import math
from dataclasses import replace

import torch

from metacal.evaluation import GroupLabels, Predictions
from metacal.reporting import RunView, prepare_report

CIFAR_10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
HOSTILE = "<script>alert(1)</script>"


def some_predictions(samples=2000, class_names=CIFAR_10, sharpness=2.0, name="made-up", seed=0):
    """Predictions of an over-confident model: targets are drawn from its probabilities before they are sharpened."""
    generator = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(samples, len(class_names), generator=generator)
    targets = torch.multinomial(torch.softmax(logits, dim=1), 1, generator=generator).squeeze(1)
    return Predictions.from_logits(sharpness * logits, targets, class_names, name)


def grouped_predictions(samples=900):
    """A binary model that is over-confident in the south alone."""
    generator = torch.Generator().manual_seed(2)
    logits = 1.5 * torch.randn(samples, generator=generator)
    targets = (torch.rand(samples, generator=generator) < torch.sigmoid(logits)).long()
    codes = torch.arange(samples) % 3
    scores = torch.where(codes == 1, 3.0, 1.0) * logits
    said = Predictions.from_probs(torch.sigmoid(scores), targets, ("no", "yes"), "grouped")
    return replace(said, groups=GroupLabels("region", codes, ("north", "south", "east")))


def some_run(class_names=CIFAR_10, num_epochs=60, superclasses=(0, 0, 1, 1, 1, 1, 1, 1, 0, 0), predictions=None):
    """A run with two learning-rate drops whose smoothing prefers the same superclass."""
    generator = torch.Generator().manual_seed(1)
    size = len(class_names)
    time = torch.arange(num_epochs) / num_epochs
    drops = (time >= 0.5).float() + (time >= 0.75).float()

    def noisy(values, scale):
        return (values + scale * torch.randn(num_epochs, generator=generator)).clamp(min=0.001).tolist()

    val_ece = 0.03 + 0.08 * torch.exp(-4 * time) + 0.02 * drops
    rise = (1 - torch.exp(-6 * time)).unsqueeze(1) * (0.03 + 0.05 * torch.rand(size, generator=generator))
    groups = torch.tensor(superclasses)
    share = torch.rand(size, size, generator=generator) * (0.2 + 2.0 * (groups.unsqueeze(1) == groups))
    share = share.fill_diagonal_(0.0)
    return RunView(
        name="mc-non-uniform-seed-0",
        method="Meta-Calibration, non-uniform smoothing",
        dataset="CIFAR-10",
        class_names=tuple(class_names),
        epochs={
            "train_loss": noisy(0.1 + 2.0 * torch.exp(-5 * time) - 0.04 * drops, 0.02),
            "train_error": noisy(0.02 + 0.5 * torch.exp(-5 * time) / (1 + drops), 0.01),
            "train_ece": noisy(0.4 * val_ece, 0.003),
            "val_error": noisy(0.08 + 0.4 * torch.exp(-5 * time) / (1 + drops), 0.015),
            "val_ece": noisy(val_ece, 0.006),
            "val_dece": noisy(0.9 * val_ece + 0.005, 0.006),
            "lr": (0.1 * 0.1**drops).tolist(),
        },
        strengths=rise * (1 - 0.2 * drops.unsqueeze(1)),
        smoothing=share / share.sum(dim=1, keepdim=True) * rise[-1].unsqueeze(1),
        l2={
            "weight": 1e-4 * torch.randn(size, 64, generator=generator) + 2e-4,
            "bias": 1e-4 * torch.randn(size, generator=generator),
        },
        superclasses=tuple(superclasses),
        predictions=predictions,
    )


def hundred_classes():
    """Names and superclasses like those of CIFAR-100."""
    names = tuple(f"{'abcdefghijklmnopqrst'[number // 5]}_class_{number:02d}" for number in range(100))
    return names, tuple(math.floor(number / 5) for number in range(100))


def quick_report(subjects, title="Calibration report"):
    """A report whose intervals are rough."""
    return prepare_report(subjects, title, num_resamples=8)
