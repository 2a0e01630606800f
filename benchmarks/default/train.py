"""One run: a network trained in one regime by one method, and its figures on the test samples."""

import time
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.default.data import Samples, Split, split
from benchmarks.default.methods import BASELINES, CANDIDATES, Candidate
from benchmarks.default.regimes import REGIMES, Regime
from metacal import MetaCalibrator
from metacal.functional import (
    classwise_calibration_error,
    expected_calibration_error,
    fit_temperature,
    negative_log_likelihood,
)
from metacal.functional.temperature import temperature_with_prior
from metacal.lab.models import create_model
from metacal.metalearning.finish import gain_of

META_BATCH = 256
WIDTH = 256


@dataclass(frozen=True)
class Run:
    """What is run."""

    regime: str
    method: str
    seed: int


def execute(run: Run) -> dict[str, Any]:
    """Train and score; a baseline and a candidate see the same samples in the same order from the same start."""
    regime, samples = REGIMES[run.regime], split(REGIMES[run.regime], run.seed)
    torch.manual_seed(run.seed)
    model = build(regime, samples)
    candidate = CANDIDATES.get(run.method)
    started = time.perf_counter()
    meta, strengths = train(model, regime, samples, run, candidate)
    seconds = round(time.perf_counter() - started, 2)
    held_out = (predict(model, samples.held_out[0]), samples.held_out[1])
    test = (predict(model, samples.test[0]), samples.test[1])
    row = {**asdict(run), "seconds": seconds, "strengths": strengths, **scores(held_out, test)}
    if meta is not None:
        found = meta.finish()
        row["finish"] = figures(predict(model, samples.test[0]), samples.test[1])  # of the model as it is left
        row["temperatures"]["finish"] = found.temperature if found.is_folded else 1.0
    return row


def train(
    model: nn.Module, regime: Regime, samples: Split, run: Run, candidate: Candidate | None
) -> tuple[MetaCalibrator | None, list[float]]:
    """Train in place; the calibrator, if there is one, and the mean strength now and then."""
    x, y = samples.train
    optimizer = make_optimizer(model, regime)
    per_epoch = len(y) // regime.batch
    scheduler = make_scheduler(optimizer, regime, steps=per_epoch * regime.epochs)
    meta = None
    if candidate is not None:
        held_out = TensorDataset(*samples.held_out)
        loader = DataLoader(held_out, batch_size=min(META_BATCH, len(held_out)))
        meta = MetaCalibrator(model, optimizer, loader, seed=run.seed, **candidate.arguments(samples.num_classes))
    generator = torch.Generator().manual_seed(run.seed)
    strengths = []
    model.train()
    for _ in range(regime.epochs):
        order = torch.randperm(len(y), generator=generator)
        for number in range(per_epoch):
            rows = order[number * regime.batch : (number + 1) * regime.batch]
            loss = meta.step(x[rows], y[rows]) if meta else BASELINES[run.method](model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
        if meta is not None:
            strengths.append(round(float(meta.hyperparameters.summary()["strength"]), 5))
    return meta, strengths[:: -max(1, len(strengths) // 10)][::-1]


def build(regime: Regime, samples: Split) -> nn.Module:
    """The regime's network, from the current random state."""
    num_classes, shape = samples.num_classes, samples.train[0].shape[1:]
    if regime.model == "mlp":
        layers = [nn.Linear(shape[0], WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(WIDTH, num_classes))
    if regime.model == "cnn":
        layers = [nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        layers += [nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
        return nn.Sequential(*layers, nn.Linear(32 * 49, 128), nn.ReLU(), nn.Linear(128, num_classes))
    return create_model(regime.model, num_classes=num_classes)


def make_optimizer(model: nn.Module, regime: Regime) -> torch.optim.Optimizer:
    """The regime's."""
    if regime.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), regime.lr, momentum=0.9, weight_decay=regime.weight_decay)
    kind = torch.optim.AdamW if regime.optimizer == "adamw" else torch.optim.Adam
    return kind(model.parameters(), regime.lr, weight_decay=regime.weight_decay)


def make_scheduler(optimizer: torch.optim.Optimizer, regime: Regime, steps: int) -> Any:
    """The regime's, stepped each iteration."""
    schedulers = torch.optim.lr_scheduler
    if regime.schedule == "drops":
        return schedulers.MultiStepLR(optimizer, [steps // 2, 3 * steps // 4])
    if regime.schedule == "cosine":
        return schedulers.CosineAnnealingLR(optimizer, steps)
    return schedulers.ConstantLR(optimizer, 1.0)


@torch.no_grad()
def predict(model: nn.Module, inputs: Tensor) -> Tensor:
    """Logits in evaluation mode."""
    model.eval()
    return torch.cat([model(part) for part in torch.split(inputs, 1000)]).double()


def scores(held_out: Samples, test: Samples) -> dict[str, Any]:
    """Test figures as the model is, and after each way to fit a temperature on the held-out samples."""
    logits, targets = held_out
    likelihood = fit_temperature(logits=logits, targets=targets).temperature
    prior = float(temperature_with_prior(logits=logits, targets=targets, iterations=60))
    ways = {"plain": 1.0, "likelihood": likelihood, "prior": prior}
    for name, value in (("likelihood, if significant", likelihood), ("prior, if significant", prior)):
        gain, error = gain_of(logits, targets, value)
        ways[name] = value if gain > error else 1.0
    ways["finish"] = prior
    return {"temperatures": ways, **{name: figures(test[0] / t, test[1]) for name, t in ways.items()}}


def figures(logits: Tensor, targets: Tensor) -> dict[str, float]:
    """Error, ECE, classwise ECE and NLL."""
    return {
        "error": float((logits.argmax(dim=1) != targets).double().mean()),
        "ece": float(expected_calibration_error(logits=logits, targets=targets)),
        "classwise": float(classwise_calibration_error(logits=logits, targets=targets)),
        "nll": float(negative_log_likelihood(logits=logits, targets=targets)),
    }
