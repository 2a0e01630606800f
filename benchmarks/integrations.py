"""What the integrations cost: a trainer's step with meta-calibration against the same trainer's without it.

One thread, and its processor time, so that others on the machine count as little as possible.
"""

import argparse
import logging
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import lightning
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, TensorDataset

from benchmarks.report import Part, Row, Target, measured, publish
from metacal.integrations.lightning import MetaCalibration
from metacal.integrations.sklearn import MetaCalibratedClassifier
from metacal.lab.models import create_model
from metacal.metalearning import OuterStep

BOUND = 1.5
SECONDS_BOUND = 30.0
BATCH = 64
OUTERS = {f"every={every}": replace(OuterStep(), every=every, dense_start=0) for every in (1, 16)}


class Module(lightning.LightningModule):
    """ResNet8 on 32 x 32 images, as a user would write it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = create_model("resnet8", num_classes=10)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """Cross-entropy."""
        x, y = batch
        return functional.cross_entropy(self.net(x), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """SGD."""
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def images(n: int, seed: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.randn(n, 3, 32, 32, generator=generator), torch.randint(10, (n,), generator=generator))


def lightning_fit(steps: int, callbacks: list[lightning.Callback]) -> float:
    """Seconds a step, without the setting up."""
    clock = StepClock()
    trainer = lightning.Trainer(
        max_steps=steps,
        accelerator="cpu",
        callbacks=[*callbacks, clock],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), DataLoader(images(steps * BATCH, 0), BATCH))
    return clock.mean()


class StepClock(lightning.Callback):
    """Mean time from one batch's start to the next."""

    def __init__(self) -> None:
        self.starts: list[float] = []

    def on_train_batch_start(self, *_: Any) -> None:
        """Look at the clock."""
        self.starts.append(time.process_time())

    def mean(self) -> float:
        """Seconds a step, the first two left out."""
        return float(np.mean(np.diff(self.starts)[2:]))


class Pictures(Dataset[dict[str, Tensor]]):
    """Images as dictionaries."""

    def __init__(self, n: int, seed: int) -> None:
        self.x, self.y = images(n, seed).tensors

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        return {"pixel_values": self.x[number], "labels": self.y[number]}


def transformers_fit(steps: int, settings: dict[str, Any] | None) -> float:
    from transformers import Trainer, TrainerCallback, TrainingArguments, ViTConfig, ViTForImageClassification

    from metacal.integrations.transformers import MetaCalibrationTrainer

    starts: list[float] = []

    class Clock(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            starts.append(time.process_time())

    torch.manual_seed(0)
    shape: dict[str, Any] = {"image_size": 32, "patch_size": 8, "num_labels": 10}
    shape |= {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 256}
    config = ViTConfig(**shape)
    with tempfile.TemporaryDirectory() as folder:
        options: dict[str, Any] = {
            "model": ViTForImageClassification(config),
            "args": TrainingArguments(
                folder,
                max_steps=steps,
                per_device_train_batch_size=BATCH,
                report_to=[],
                use_cpu=True,
                disable_tqdm=True,
                save_strategy="no",
                logging_strategy="no",
            ),
            "train_dataset": Pictures(steps * BATCH, 0),
            "callbacks": [Clock()],
        }
        if settings is None:
            Trainer(**options).train()
        else:
            MetaCalibrationTrainer(**options, meta_dataset=Pictures(4 * BATCH, 1), meta_calibration=settings).train()
    return float(np.mean(np.diff(starts)[2:]))


def ratios(rounds: int, plain: Callable[[], float], variants: dict[str, Callable[[], float]]) -> list[Row]:
    """Each variant's mean step against that of the plain trainer, in turns."""
    seconds: dict[str, list[float]] = {name: [] for name in ("plain", *variants)}
    for _ in range(rounds):
        seconds["plain"].append(plain())
        for name, variant in variants.items():
            seconds[name].append(variant())
    rows: list[Row] = []
    for name, times in seconds.items():
        pairs = [own / base for own, base in zip(times, seconds["plain"], strict=True)]
        rows.append(
            {"trainer": name, "CPU ms a step": 1e3 * statistics.median(times), "ratio": statistics.median(pairs)}
        )
    return rows


def trainers(title: str, rows: list[Row], options: argparse.Namespace) -> Part:
    """Rows of `ratios` with their bounds."""
    targets = [Target(f"{row['trainer']} / plain", float(row["ratio"] or 0), BOUND, at_least=False) for row in rows[1:]]
    note = f"Mean step of {options.steps}, processor time of one thread; medians over {options.rounds} rounds in turn."
    return Part(title, rows, targets, [note])


def measure_lightning(options: argparse.Namespace) -> Part:
    """Lightning with and without the callback."""
    meta, steps = DataLoader(images(4 * BATCH, 1), BATCH), options.steps
    rows = ratios(
        options.rounds,
        lambda: lightning_fit(steps, []),
        {
            f"MetaCalibration, {name}": lambda outer=outer: lightning_fit(  # type: ignore[misc]
                steps, [MetaCalibration(meta, head="net.head", outer=outer)]
            )
            for name, outer in OUTERS.items()
        },
    )
    return trainers("Lightning, ResNet8, batch 64", rows, options)


def measure_transformers(options: argparse.Namespace) -> Part:
    """Transformers' trainer and ours."""
    steps = options.steps
    rows = ratios(
        options.rounds,
        lambda: transformers_fit(steps, None),
        {
            f"MetaCalibrationTrainer, {name}": lambda outer=outer: transformers_fit(steps, {"outer": outer})  # type: ignore[misc]
            for name, outer in OUTERS.items()
        },
    )
    return trainers("Transformers, ViT of 4 layers, batch 64", rows, options)


def embeddings(samples: int) -> Row:
    """A head on 768 features, as of a frozen encoder, on one thread."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(samples, 768)).astype(np.float32)  # noqa: N806
    y = (X[:, :10] + generator.normal(size=(samples, 10))).argmax(axis=1)
    started = time.process_time()
    classifier = MetaCalibratedClassifier(random_state=0).fit(X, y)
    fitted = time.process_time() - started
    classifier.predict_proba(X)
    return {
        "samples": samples,
        "features": 768,
        "CPU s to fit": fitted,
        "CPU s to predict": time.process_time() - started - fitted,
        "passes": classifier.n_iter_,
    }


def measure_embeddings(_: argparse.Namespace) -> Part:
    """The estimator on few and on many samples."""
    rows = [embeddings(10_000), embeddings(100_000)]
    slowest = Target(
        "seconds to fit 100,000 x 768", float(rows[-1]["CPU s to fit"] or 0), SECONDS_BOUND, at_least=False
    )
    return Part("MetaCalibratedClassifier(), one thread", rows, [slowest])


PARTS = {"lightning": measure_lightning, "transformers": measure_transformers, "scikit-learn": measure_embeddings}


def main() -> None:
    """Measure, save, print; exit with 1 if a target was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.integrations", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=24)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    publish("integrations", {name: measured(partial(measure, options)) for name, measure in PARTS.items()})


if __name__ == "__main__":
    main()
