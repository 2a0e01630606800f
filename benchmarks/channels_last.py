"""Where storing image channels last is faster: a training step of each network in both memory formats, in turn."""

import argparse
from collections.abc import Callable

import torch
from torch.nn import functional

from benchmarks.report import Part, Row, measured, publish
from benchmarks.timing import interleave
from metacal.lab.models import create_model

NETWORKS = ("resnet8", "resnet20", "resnet18")


def step_of(name: str, batch: int, memory_format: torch.memory_format) -> Callable[[], float]:
    """A forward and backward pass of one network in one format."""
    torch.manual_seed(0)
    model = create_model(name, num_classes=10).to(memory_format=memory_format)  # type: ignore[call-overload]
    images = torch.randn(batch, 3, 32, 32).to(memory_format=memory_format)
    targets = torch.randint(10, (batch,))

    def step() -> float:
        model.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(model(images), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.item()

    return step


def measure(options: argparse.Namespace) -> Part:
    """A step of every network in both formats, taking turns."""
    rows: list[Row] = []
    for name in NETWORKS:
        calls = {
            "channels first": step_of(name, options.batch, torch.contiguous_format),
            "channels last": step_of(name, options.batch, torch.channels_last),
        }
        times = {kind: timing.seconds for kind, timing in interleave(calls, options.rounds, 60.0).items()}
        ratio = times["channels first"] / times["channels last"]
        rows.append(
            {"network": name, **{f"{k}, ms": 1e3 * t for k, t in times.items()}, "channels last is faster by": ratio}
        )
    note = f"Best of {options.rounds} steps of {options.batch} images, taking turns, {options.threads} thread(s)."
    return Part("A training step by memory format, CPU", rows, notes=(note,))


def main() -> None:
    """Measure, save and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.channels_last", description=__doc__)
    parser.add_argument("--threads", type=int, default=2, help="of torch; 2")
    parser.add_argument("--batch", type=int, default=64, help="images a step; 64")
    parser.add_argument("--rounds", type=int, default=5, help="of each; 5")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    publish("channels_last", {"step": measured(lambda: measure(options))})


if __name__ == "__main__":
    main()
