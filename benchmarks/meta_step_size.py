"""What meta-calibration costs by size: the arithmetic of a meta step through the head, and how that grows.

Run: ``python -m benchmarks.meta_step_size``. Figures go to results/benchmarks/meta_step_size.json, the growth to
docs/figures/meta-step-cost.svg.
"""

import argparse
import math

import torch
from torch import nn

import metacal
from benchmarks.meta_step import BATCH, LR
from benchmarks.meta_step_growth import measure_growth
from benchmarks.report import Part, Row, Target, measured, publish
from benchmarks.timing import interleave
from metacal.lab.models.resnet import Bottleneck, ResNet
from metacal.losses import CrossEntropyLoss, DECELoss
from metacal.metalearning.through_head import MetaProblem, one_step

TARGET = 0.05


def measure_arithmetic() -> Part:
    """The meta step without its forward pass, K = 1000 and 2048 features, against a ResNet50 step."""
    torch.manual_seed(0)
    model = ResNet(Bottleneck, (3, 4, 6, 3), num_classes=1000)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9)
    smoothing = metacal.NonUniformLabelSmoothing(1000, initial="uniform")
    x, y = torch.randn(BATCH, 3, 32, 32), torch.randint(1000, (BATCH,))
    meta = metacal.MetaCalibrator(model, optimizer, [(x, y)], smoothing, outer=metacal.PAPER)
    problem = MetaProblem(
        head=model.head,
        hyperparameters=smoothing,
        base_loss=CrossEntropyLoss(reduction="none"),
        objective=CrossEntropyLoss() + 0.5 * DECELoss(),
        features=torch.randn(BATCH, 2048),
        labels=torch.randint(1000, (BATCH,)),
        meta_features=torch.randn(BATCH, 2048),
        meta_labels=torch.randint(1000, (BATCH,)),
        lr=LR,
        reduction="mean",
        num_classes=1000,
    )

    def plain() -> float:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.item()

    def arithmetic() -> float:
        found = one_step(problem)
        meta._update(found, BATCH)
        return found.meta_loss.item()

    timings = interleave({"ResNet50 step": plain, "meta arithmetic": arithmetic}, rounds=5, patience=math.inf)
    share = timings["meta arithmetic"].seconds / timings["ResNet50 step"].seconds
    rows: list[Row] = [{"what": name, "ms": 1e3 * timing.seconds} for name, timing in timings.items()]
    target = Target("meta arithmetic / ResNet50 step, K=1000, 2048 features", share, TARGET, at_least=False)
    return Part(f"Meta arithmetic (gradient, Adam, projection; non-uniform smoothing), batch {BATCH}", rows, [target])


def main() -> None:
    """Measure, save, print; exit with 1 if a target was missed."""
    argparse.ArgumentParser(prog="python -m benchmarks.meta_step_size", description=__doc__).parse_args()
    torch.set_num_threads(2)
    measures = {"arithmetic": measure_arithmetic, "growth": measure_growth}
    publish("meta_step_size", {name: measured(measure) for name, measure in measures.items()})


if __name__ == "__main__":
    main()
