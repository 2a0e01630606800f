"""What meta-calibration costs: steps of a ResNet18 side by side with plain cross-entropy, and with the published form.

A second part times the product's own loop: the step that `metacal train` takes, with a method and with plain
cross-entropy, on the same data. Run: ``python -m benchmarks.meta_step``.
Figures go to results/benchmarks/meta_step.json.
"""

import argparse
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import metacal
from benchmarks.meta_step_published import PublishedStep
from benchmarks.report import Part, Row, Target, measured, publish
from benchmarks.timing import interleave_cycles
from metacal.data import Dataset, Examples, make_splits
from metacal.models.resnet import BasicBlock, ResNet
from metacal.pipeline import make_fabric
from metacal.pipeline.model import build_model
from metacal.pipeline.preparing import prepare
from metacal.runs import Hardware, RunFolder, build_spec
from metacal.training import StopRequest
from metacal.training.events import silence
from metacal.training.loop import train_batch

BATCH = 64
CYCLE = 16
ROUNDS = 2
LR = 0.1
PLAIN = "cross-entropy"
FLOOR = "cross-entropy, and a forward pass"
PUBLISHED = "every=1, as published"
TARGETS = {1: 1.40, 4: 1.12, 16: 1.05}
FLOOR_TARGET = 1.05
PRODUCT_BATCH = 128
PRODUCT_TARGETS = {10: 1.40, 100: 1.50}


def batches(num_classes: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Fresh batches of random images from memory, without end."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(16 * BATCH, 3, 32, 32, generator=generator)
    labels = torch.randint(num_classes, (len(images),), generator=generator)
    while True:
        for rows in torch.split(torch.randperm(len(images), generator=generator), BATCH):
            yield images[rows], labels[rows]


Loss = Callable[[Tensor, Tensor], Tensor]


def training_loss(model: ResNet, num_classes: int, kind: str) -> Loss:
    """The loss of a training batch: plain, after a look at a meta batch, after ours, or after a step as published."""
    if kind == PLAIN:
        return lambda x, y: nn.functional.cross_entropy(model(x), y)
    meta_stream = batches(num_classes, seed=2)
    if kind == FLOOR:

        def loss_after_look(x: Tensor, y: Tensor) -> Tensor:
            with torch.no_grad():
                model(next(meta_stream)[0])
            return nn.functional.cross_entropy(model(x), y)

        return loss_after_look
    if kind == PUBLISHED:
        step = PublishedStep(model, num_classes, LR)
        return lambda x, y: step((x, y), meta_stream)
    smoothing = metacal.NonUniformLabelSmoothing(num_classes)
    meta = metacal.MetaCalibrator(model, model.head, smoothing, every=int(kind.removeprefix("every=")))
    return lambda x, y: meta.step(x, y, meta=meta_stream, lr=LR)


def trainer(num_classes: int, kind: str) -> Callable[[], object]:
    """A training step of a ResNet18 in training mode."""
    torch.manual_seed(0)
    model = ResNet(BasicBlock, (2, 2, 2, 2), num_classes)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9)
    stream = batches(num_classes, seed=1)
    loss_of = training_loss(model, num_classes, kind)

    def step() -> None:
        loss = loss_of(*next(stream))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def measure_step() -> Part:
    """Time of a training step with meta-calibration over that of a plain one, K = 10 and 100."""
    rows: list[Row] = []
    targets = []
    for num_classes in (10, 100):
        kinds = (PLAIN, FLOOR, *(f"every={every}" for every in TARGETS), PUBLISHED)
        seconds = interleave_cycles({kind: trainer(num_classes, kind) for kind in kinds}, CYCLE, ROUNDS)
        ratios = {kind: each / seconds[PLAIN] for kind, each in seconds.items()}
        rows += [{"K": num_classes, "step": k, "ms": 1e3 * seconds[k], "ratio": ratios[k]} for k in kinds]
        for every, bound in TARGETS.items():
            name = f"K={num_classes}, every={every} / {PLAIN}"
            targets.append(Target(name, ratios[f"every={every}"], bound, at_least=False))
        over_floor = ratios["every=1"] / ratios[FLOOR]
        targets.append(Target(f"K={num_classes}, every=1 / {FLOOR}", over_floor, FLOOR_TARGET, at_least=False))
    note = "A fresh meta batch costs a forward pass: a plain step and that is the floor for every=1."
    title = (
        f"ResNet18, 32 x 32, training and meta batch {BATCH}, {ROUNDS} cycles of {CYCLE} steps, taking turns step by "
        "step; mean over a cycle of the better time at each place"
    )
    return Part(title, rows, targets, [note])


def product_step(method: str, num_classes: int, folder: str, **settings: Any) -> Callable[[], object]:
    """A training step of `metacal train dataset=cifar10 model=resnet8 method=...`, on random images."""
    generator = torch.Generator().manual_seed(0)
    examples = Examples(
        torch.randint(256, (20 * PRODUCT_BATCH, 3, 32, 32), generator=generator, dtype=torch.uint8),
        torch.randint(num_classes, (20 * PRODUCT_BATCH,), generator=generator),
    )
    names = tuple(map(str, range(num_classes)))
    dataset = Dataset("random", "image", examples, examples, names, mean=(0.5,) * 3, std=(0.25,) * 3, augment=True)
    spec = build_spec({"dataset": "cifar10", "model": "resnet8", "method": method, **settings})
    splits = make_splits(dataset, seed=0, with_meta=spec.method.needs_meta)
    fabric = make_fabric(spec, Hardware(accelerator="cpu"))
    torch.manual_seed(0)
    model = build_model(spec, dataset)
    training = prepare(spec, dataset, splits, model, fabric, RunFolder(Path(folder)), silence, StopRequest())
    phase = training.phases[0]
    stream = (batch for epoch in count() for batch in phase.batches.epoch(epoch))
    training.model.train()
    return lambda: train_batch(training, phase, *next(stream), lr=LR, whole=PRODUCT_BATCH)


def measure_product() -> Part:
    """Time of a step of `metacal train` with meta-calibration over one with cross-entropy, K = 10 and 100."""
    rows: list[Row] = []
    targets = []
    for num_classes in (10, 100):
        with tempfile.TemporaryDirectory() as folder:
            steps = {
                "method=ce": product_step("ce", num_classes, f"{folder}/ce"),
                "method=mc meta_every=1": product_step("mc", num_classes, f"{folder}/mc", meta_every=1),
            }
            seconds = interleave_cycles(steps, CYCLE, 2 * ROUNDS)
        plain, ours = seconds.values()
        rows += [{"K": num_classes, "step": k, "ms": 1e3 * s, "ratio": s / plain} for k, s in seconds.items()]
        targets.append(Target(f"K={num_classes}, mc / ce", ours / plain, PRODUCT_TARGETS[num_classes], at_least=False))
    return Part(f"The step of metacal train, ResNet8, 32 x 32, batch {PRODUCT_BATCH}", rows, targets)


def main() -> None:
    """Measure, save, print; exit with 1 if a target was missed."""
    argparse.ArgumentParser(prog="python -m benchmarks.meta_step", description=__doc__).parse_args()
    torch.set_num_threads(2)
    publish("meta_step", {"step": measured(measure_step), "product": measured(measure_product)})


if __name__ == "__main__":
    main()
