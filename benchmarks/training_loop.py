"""What the training loop costs: ours against a bare loop on the same model and data, epochs in turn."""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable

import torch
from lightning_fabric import Fabric
from torch import nn

from benchmarks.report import Part, Row, Target, measured, publish
from metacal.lab.data import Batches, Examples
from metacal.lab.models import create_model
from metacal.lab.training import Checkpoints, Phase, PlainLoss, RunSpec, Training
from metacal.lab.training.build import build_optimizer
from metacal.lab.training.checkpoints import Progress
from metacal.lab.training.loop import run_epoch
from metacal.losses import CrossEntropyLoss

BOUND = 1.03
BATCH = 128


def examples(size: int, seed: int) -> Examples:
    generator = torch.Generator().manual_seed(seed)
    return Examples(torch.randn(size, 3, 32, 32, generator=generator), torch.randint(10, (size,), generator=generator))


def ours(train: Examples, val: Examples, folder: str) -> Callable[[], None]:
    """An epoch of `metacal.lab.training`: batches, figures, validation, checkpoint."""
    torch.manual_seed(0)
    spec = RunSpec(dataset="random", model="resnet8", epochs=10**9, lr=0.1, weight_decay=5e-4, schedule="constant")
    module = create_model(spec.model, num_classes=10)
    fabric = Fabric(accelerator="cpu", devices=1)
    fabric.launch()
    model, optimizer = fabric.setup(module, build_optimizer(spec, module.parameters()))
    training = Training(
        spec=spec,
        fabric=fabric,
        model=model,
        optimizer=optimizer,
        phases=[Phase(Batches(train, BATCH), PlainLoss(model, CrossEntropyLoss(), "sum"), 0.1)],
        val=Batches(val, 4 * BATCH, shuffle=False),
        checkpoints=Checkpoints(folder),
    )
    progress = Progress()
    return lambda: run_epoch(training, progress)


def bare(train: Examples, val: Examples) -> Callable[[], None]:
    """An epoch as one would write it by hand, with validation, without figures or checkpoints."""
    torch.manual_seed(0)
    model = create_model("resnet8", num_classes=10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    loss_function = nn.CrossEntropyLoss(reduction="sum")

    def epoch() -> None:
        model.train()
        for rows in torch.split(torch.randperm(len(train)), BATCH):
            optimizer.zero_grad()
            loss_function(model(train.inputs[rows]), train.targets[rows]).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for rows in torch.split(torch.arange(len(val)), 4 * BATCH):
                model(val.inputs[rows])

    return epoch


def measure(pairs: int) -> Part:
    """Epochs of both loops, taking turns."""
    train, val = examples(20 * BATCH, 0), examples(2 * BATCH, 1)
    with tempfile.TemporaryDirectory() as folder:
        loops = {"ours": ours(train, val, folder), "bare": bare(train, val)}
        for loop in loops.values():
            loop()  # warm
        ratios, seconds = [], {"ours": [0.0] * pairs, "bare": [0.0] * pairs}
        for pair in range(pairs):
            for name in ("ours", "bare") if pair % 2 else ("bare", "ours"):
                started = time.perf_counter()
                loops[name]()
                seconds[name][pair] = time.perf_counter() - started
            ratios.append(seconds["ours"][pair] / seconds["bare"][pair])
    rows: list[Row] = [
        {"loop": name, "median s / epoch": statistics.median(times), "best": min(times)}
        for name, times in seconds.items()
    ]
    median = statistics.median(ratios)
    target = Target(f"our loop / a bare one, median of {pairs} interleaved pairs", median, BOUND, at_least=False)
    note = (
        "ResNet8, 20 batches of 128, one validation pass; ours also keeps figures and writes two checkpoints an epoch."
    )
    return Part("Cross-entropy training, one epoch", rows, [target], [note])


def main() -> None:
    """Measure, save, print; exit with 1 if the target was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training_loop", description=__doc__)
    parser.add_argument("--pairs", type=int, default=30)
    pairs = parser.parse_args().pairs
    torch.set_num_threads(2)
    publish("training_loop", {"loop": measured(lambda: measure(pairs))})


if __name__ == "__main__":
    main()
