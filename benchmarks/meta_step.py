"""What meta-calibration costs: training steps side by side with plain cross-entropy, and with the published form.

Run: ``python -m benchmarks.meta_step`` (ten minutes on two idle cores), or with the names of parts (network-10,
network-100, perceptron, memory, product) to measure these alone. Figures of the whole go to
results/benchmarks/meta_step.json; those of ``--quick``, which only shows that everything runs, go nowhere.
"""

import argparse
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import metacal
from benchmarks.meta_step_memory import measure_memory
from benchmarks.meta_step_published import PublishedStep
from benchmarks.report import Part, Row, Target, measured, publish
from benchmarks.timing import interleave, interleave_runs
from metacal.lab.data import Dataset, Examples, make_splits
from metacal.lab.models.resnet import BasicBlock, ResNet
from metacal.lab.training import Hardware, RunFolder, build_model, build_spec, make_fabric
from metacal.lab.training.build import Job
from metacal.lab.training.loop import train_batch
from metacal.lab.training.pipeline import prepare
from metacal.metalearning import OuterStep

BATCH = 64
LR = 0.1
ITERATIONS = 10_000
WARM, ROUNDS = 2, 6
"""Steps before any is timed, and steps that are; a step of a ResNet18 takes two seconds, a published one six."""
PLAIN = "cross-entropy"
FLOOR = "cross-entropy, and a forward pass"
IDLE = "no meta step due"
DEFAULT = f"the default over {ITERATIONS:,} iterations"
HEAD, MODEL = "every=1", "every=1, through the model"
PUBLISHED = "every=1, as published"
TARGETS = {HEAD: 1.36, MODEL: 2.75}
SCHEDULE_TARGET = 1.06
PERCEPTRON_BATCH, PERCEPTRON_TARGET = 128, 1.35
PRODUCT_BATCH = 128
PRODUCT_TARGETS = {10: 1.40, 100: 1.50}
EACH = replace(OuterStep(), every=1, dense_start=0)
OUTERS = {IDLE: replace(EACH, every=math.inf), MODEL: EACH}


def batches(inputs: Tensor, num_classes: int, size: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Fresh batches of random samples from memory, without end."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(num_classes, (len(inputs),), generator=generator)
    while True:
        for rows in torch.split(torch.randperm(len(inputs), generator=generator), size):
            yield inputs[rows], labels[rows]


def images(seed: int) -> Tensor:
    """Random ones, for 16 batches."""
    return torch.randn(16 * BATCH, 3, 32, 32, generator=torch.Generator().manual_seed(seed))


Loss = Callable[[Tensor, Tensor], Tensor]


def training_loss(model: ResNet, optimizer: torch.optim.Optimizer, num_classes: int, kind: str) -> Loss:
    """The loss of a training batch: plain, after a pass over a held-out batch, as ours, or as published."""
    if kind == PLAIN:
        return lambda x, y: nn.functional.cross_entropy(model(x), y)
    held_out = batches(images(2), num_classes, BATCH, seed=2)
    if kind == FLOOR:

        def loss_after_pass(x: Tensor, y: Tensor) -> Tensor:
            with torch.no_grad():
                model(next(held_out)[0])
            return nn.functional.cross_entropy(model(x), y)

        return loss_after_pass
    if kind == PUBLISHED:
        step = PublishedStep(model, num_classes, LR)
        return lambda x, y: step((x, y), held_out)
    meta = [next(held_out) for _ in range(16)]
    if kind == HEAD:
        smoothing = metacal.NonUniformLabelSmoothing(num_classes)
        return metacal.MetaCalibrator(model, optimizer, meta, smoothing, through="head", outer=metacal.PAPER).step
    return metacal.MetaCalibrator(model, optimizer, meta, through="model", outer=OUTERS[kind]).step


def trainer(num_classes: int, kind: str) -> Callable[[], float]:
    """A training step of a ResNet18 in training mode."""
    torch.manual_seed(0)
    model = ResNet(BasicBlock, (2, 2, 2, 2), num_classes)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9)
    loss_of = training_loss(model, optimizer, num_classes, kind)
    return stepper(optimizer, loss_of, batches(images(1), num_classes, BATCH, seed=1))


def stepper(
    optimizer: torch.optim.Optimizer, loss_of: Loss, stream: Iterator[tuple[Tensor, Tensor]]
) -> Callable[[], float]:
    """What a loop does with a batch."""

    def step() -> float:
        loss = loss_of(*next(stream))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return 0.0

    return step


def due_share() -> float:
    """Share of iterations with a meta step in the default schedule."""
    return sum(map(OuterStep().is_due, range(ITERATIONS))) / ITERATIONS


def measure_network(num_classes: int, kinds: Sequence[str], rounds: int) -> Part:
    """Time of a training step with meta-calibration over that of a plain one."""
    steps = {kind: trainer(num_classes, kind) for kind in kinds}
    for step in (*steps.values(),) * min(WARM, rounds):
        step()
    timings = interleave(steps, rounds, patience=math.inf)
    seconds = {kind: timing.seconds for kind, timing in timings.items()}
    due = due_share()
    seconds[DEFAULT] = due * seconds[MODEL] + (1.0 - due) * seconds[IDLE]
    ratios = {kind: each / seconds[PLAIN] for kind, each in seconds.items()}
    rows: list[Row] = [{"K": num_classes, "step": k, "ms": 1e3 * seconds[k], "ratio": ratios[k]} for k in seconds]
    bounds = {kind: (ratios[kind], bound) for kind, bound in {**TARGETS, DEFAULT: SCHEDULE_TARGET}.items()}
    targets = [
        Target(f"K={num_classes}, {name} / {PLAIN}", value, bound, at_least=False)
        for name, (value, bound) in bounds.items()
    ]
    note = (
        "`every=1` is the paper's method, through the head: a fresh held-out batch costs a forward pass, so a plain "
        f"step and that is the floor. The default's cost is computed: {due:.1%} of {ITERATIONS:,} iterations take a "
        "meta step, through the model, and the others cost as much as one with none due."
    )
    title = f"ResNet18, 32 x 32, training and held-out batch {BATCH}, {rounds} steps in turn, the best of each"
    return Part(title, rows, targets, [note])


def perceptron(kind: str) -> Callable[[], object]:
    """A training step of a network of three linear layers."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    samples = torch.randn(16 * PERCEPTRON_BATCH, 784, generator=torch.Generator().manual_seed(1))
    stream, held_out = (batches(part, 10, PERCEPTRON_BATCH, seed=3) for part in samples.chunk(2))
    loss_of: Loss = lambda x, y: nn.functional.cross_entropy(model(x), y)  # noqa: E731
    if kind != PLAIN:
        loss_of = metacal.MetaCalibrator(model, optimizer, [next(held_out) for _ in range(8)]).step
    return stepper(optimizer, loss_of, stream)


def measure_perceptron(iterations: int) -> Part:
    """Whole runs of a small network in the default schedule."""
    runs = {kind: partial(perceptron, kind) for kind in (PLAIN, "the default")}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # it gains nothing from more
    seconds = interleave_runs(runs, iterations, rounds=2, block=20)
    torch.set_num_threads(threads)
    rows: list[Row] = [{"step": k, "ms": 1e3 * s, "ratio": s / seconds[PLAIN]} for k, s in seconds.items()]
    target = Target("the default / cross-entropy", seconds["the default"] / seconds[PLAIN], PERCEPTRON_TARGET, False)
    title = (
        f"784-256-256-10, batch {PERCEPTRON_BATCH}, one thread: all of {iterations:,} iterations, twice, 20 in turn, "
        "the better of each 20"
    )
    return Part(title, rows, [target])


def product_step(folder: str, num_classes: int, *, by_hand: bool = False, **settings: Any) -> Callable[[], float]:
    """A training step of `metacal train dataset=cifar10 model=resnet8 ...` on random images; or a bare loop's."""
    generator = torch.Generator().manual_seed(0)
    examples = Examples(
        torch.randint(256, (20 * PRODUCT_BATCH, 3, 32, 32), generator=generator, dtype=torch.uint8),
        torch.randint(num_classes, (20 * PRODUCT_BATCH,), generator=generator),
    )
    names = tuple(map(str, range(num_classes)))
    dataset = Dataset("random", "image", examples, examples, names, mean=(0.5,) * 3, std=(0.25,) * 3, augment=True)
    spec = build_spec({"dataset": "cifar10", "model": "resnet8", **settings})
    splits = make_splits(dataset, seed=0, with_meta=spec.sets_meta_aside)
    fabric = make_fabric(spec, Hardware(accelerator="cpu"))
    torch.manual_seed(0)
    model = build_model(spec, dataset)
    training = prepare(Job(spec, RunFolder(Path(folder)), dataset, splits, fabric), model)
    phase = training.phases[0]
    stream = (batch for epoch in count() for batch in phase.batches.epoch(epoch))
    training.model.train()
    if not by_hand:
        return lambda: train_batch(training, phase, *next(stream), whole=PRODUCT_BATCH)[0].item()
    module, optimizer = training.model.module, training.optimizer.optimizer  # type: ignore[attr-defined]  # without Fabric

    def step() -> float:
        x, y = next(stream)
        loss = nn.functional.cross_entropy(module(x), y)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(module.parameters(), spec.clip_norm or math.inf)
        optimizer.step()
        return loss.item()

    return step


def measure_product(rounds: int) -> Part:
    """Time of a step of `metacal train` over one of a bare loop on the same batches, K = 10 and 100."""
    rows: list[Row] = []
    targets = []
    due_name, idle_name = "method=meta meta_every=1", "method=meta, no meta step due"
    kinds: dict[str, dict[str, Any]] = {
        "a bare loop": {"method": "ce", "by_hand": True},
        "method=ce": {"method": "ce"},
        "method=mc meta_every=1": {"method": "mc", "meta_every": 1},
        due_name: {"method": "meta", "meta_every": 1},
        idle_name: {"method": "meta", "meta_every": 10**9},
    }
    due = due_share()
    for num_classes in (10, 100):
        with tempfile.TemporaryDirectory() as folder:
            steps = {name: product_step(f"{folder}/{name}", num_classes, **each) for name, each in kinds.items()}
            for step in (*steps.values(),) * WARM:
                step()
            timings = interleave(steps, rounds, patience=math.inf)
        seconds = {name: timing.seconds for name, timing in timings.items()}
        seconds[f"method=meta, {DEFAULT}"] = due * seconds[due_name] + (1.0 - due) * seconds[idle_name]
        bare, plain, published, *_ = seconds.values()
        rows += [
            {"K": num_classes, "step": name, "ms": 1e3 * each, "ratio": each / bare} for name, each in seconds.items()
        ]
        bound = PRODUCT_TARGETS[num_classes]
        targets.append(Target(f"K={num_classes}, mc / ce", published / plain, bound, at_least=False))
    title = f"The step of metacal train, ResNet8, 32 x 32, batch {PRODUCT_BATCH}, {rounds} steps in turn"
    return Part(title, rows, targets)


OURS = (PLAIN, FLOOR, IDLE, HEAD, MODEL)


def parts_of(*, quick: bool) -> dict[str, Callable[[], Part]]:
    """All parts by name."""
    rounds = 1 if quick else ROUNDS
    return {
        "network-10": partial(measure_network, 10, (*OURS, PUBLISHED), rounds),
        "network-100": partial(measure_network, 100, OURS, rounds),
        "perceptron": partial(measure_perceptron, 200 if quick else ITERATIONS),
        "memory": partial(measure_memory, (PLAIN, HEAD, MODEL), (HEAD, MODEL), min(rounds, 3)),
        "product": partial(measure_product, 4 * rounds),
    }


def main() -> None:
    """Measure, save, print; exit with 1 if a target was missed."""
    names = tuple(parts_of(quick=True))
    parser = argparse.ArgumentParser(prog="python -m benchmarks.meta_step", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(names)}; all of them if none is named")
    parser.add_argument("--quick", action="store_true", help="one step of each, to see that it runs")
    options = parser.parse_args()
    named = options.parts or names
    if unknown := set(named) - set(names):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    torch.set_num_threads(2)
    parts = {name: measured(measure) for name, measure in parts_of(quick=options.quick).items() if name in named}
    publish("meta_step", parts, is_whole=not (options.parts or options.quick))


if __name__ == "__main__":
    main()
