"""How much of a hypergradient is signal: that of one smoothing strength, for a trained network that is over-confident.

Run: ``python -m benchmarks.gradient_noise RUN --data-dir data``, with the folder of a cross-entropy run on images. The
network stays as it is: batches of training and of validation samples are drawn again and again, and the derivative
that `small_step` finds is held against its own spread. Minus is the sign that lowers confidence. The table goes to
results/study.
"""

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.report import save_table, typed
from metacal.functional import expected_calibration_error
from metacal.functional.batch_losses import soft_accuracies, soft_bin_memberships
from metacal.lab.data import Batches, make_transform
from metacal.lab.training import Checkpoints, RunFolder, build_model, load_data
from metacal.losses import CrossEntropyLoss, DECELoss, FunctionLoss, Loss
from metacal.metalearning import MetaProblem, ScalarLabelSmoothing
from metacal.metalearning.estimators import small_step

DRAWS, TRAINING_BATCH, META_BATCHES = 400, 128, (128, 512)


def dece_part(live: str) -> Callable[[Tensor, Tensor], Tensor]:
    """DECE with the gradient of one of its sharp parts alone: ``"accuracy"`` or ``"membership"``."""

    def value(logits: Tensor, targets: Tensor) -> Tensor:
        probs = torch.softmax(logits, dim=1)
        confidences = probs.amax(dim=1)
        accuracies, members = soft_accuracies(probs, targets, 100.0), soft_bin_memberships(confidences, 15, 0.01)
        accuracies = accuracies if live == "accuracy" else accuracies.detach()
        members = members if live == "membership" else members.detach()
        return (members * (accuracies - confidences.detach()).unsqueeze(1)).sum(dim=0).abs().sum() / len(targets)

    return value


OBJECTIVES: dict[str, Loss] = {
    "cross-entropy": CrossEntropyLoss(),
    "DECE, as published": DECELoss(),
    "its part through confidences": DECELoss(gradient="confidence"),
    "its part through soft accuracies": FunctionLoss(dece_part("accuracy")),
    "its part through soft bins": FunctionLoss(dece_part("membership")),
}


@torch.no_grad()
def features_of(model: nn.Module, head: nn.Linear, batches: Batches) -> tuple[Tensor, Tensor]:
    """What the head is given, and the labels; the model's statistics stay as they were."""
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    seen: list[Tensor] = []
    handle = head.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0].clone()))
    model.train()
    labels = []
    for x, y in batches.epoch(0):
        model(x)
        labels.append(y)
    handle.remove()
    model.load_state_dict(kept)
    return torch.cat(seen), torch.cat(labels)


def derivatives(
    head: nn.Linear, objective: Loss, train: tuple[Tensor, Tensor], held_out: tuple[Tensor, Tensor], size: int
) -> list[float]:
    """Of the objective by the strength, one a draw of both batches."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for _ in range(DRAWS):
        rows = torch.randint(len(train[1]), (TRAINING_BATCH,), generator=generator)
        meta_rows = torch.randint(len(held_out[1]), (size,), generator=generator)
        problem = MetaProblem(
            head=head,
            hyperparameters=ScalarLabelSmoothing(head.out_features),
            base_loss=CrossEntropyLoss(reduction="none"),
            objective=objective,
            features=train[0][rows],
            labels=train[1][rows],
            meta_features=held_out[0][meta_rows],
            meta_labels=held_out[1][meta_rows],
            lr=1.0,
            reduction="mean",
            num_classes=head.out_features,
        )
        found.append(float(small_step(problem).total[0]))
    return found


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--data-dir", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    spec = RunFolder(arguments.run).read_spec()
    dataset, splits = load_data(spec, arguments.data_dir)
    model = build_model(spec, dataset)
    state, _ = Checkpoints(arguments.run / "checkpoints").load_last()
    if state is None:
        raise SystemExit(f"{arguments.run} must have a checkpoint, found none.")
    model.load_state_dict(state["model"])
    head = model.head
    assert isinstance(head, nn.Linear)
    parts = {}
    for name, examples in (("train", splits.train), ("val", splits.val)):
        batches = Batches(examples, TRAINING_BATCH, seed=0, transform=make_transform(dataset, training=False))
        parts[name] = features_of(model, head, batches)
    features, labels = parts["val"]
    ece = expected_calibration_error(logits=head(features).detach(), targets=labels)
    lines = ["| derivative of | samples looked at | mean | spread | mean / spread |", "|---|---|---|---|---|"]
    for name, objective in OBJECTIVES.items():
        for size in META_BATCHES:
            values = derivatives(head, objective, parts["train"], parts["val"], size)
            mean, spread = statistics.fmean(values), statistics.stdev(values)
            lines.append(f"| {name} | {size} | {mean:.4f} | {spread:.4f} | {mean / spread:.2f} |")
            print(lines[-1], flush=True)
    told = f"{spec.title}, held-out ECE {100 * float(ece):.2f} %; {DRAWS} draws of {TRAINING_BATCH} training samples."
    save_table(
        Path("results/study/gradient_noise.md"),
        typed("gradient_noise"),
        f"{told}\n\n" + "\n".join(lines),
        seeds=[spec.seed],
    )


if __name__ == "__main__":
    main()
