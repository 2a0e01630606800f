"""One run of the study: an MLP trained with one method on one split, and its figures on the test samples."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor, nn

import metacal
from benchmarks.study.data import features_and_labels
from benchmarks.study.regimes import REGIMES, Regime
from metacal.functional import expected_calibration_error, fit_temperature, negative_log_likelihood
from metacal.lab.training.training_loss import OUTER_STEPS as OF_RUNS
from metacal.losses import CrossEntropyLoss, DECELoss, FocalLoss, LabelSmoothingLoss, Loss
from metacal.metalearning import OuterStep

BASELINES: dict[str, Loss] = {"ce": CrossEntropyLoss(), "ls": LabelSmoothingLoss(0.05), "fl3": FocalLoss(3.0)}
OUTER_STEPS: dict[str, OuterStep] = {
    "published": replace(OF_RUNS["first"], adaptive=False),
    "per unit step": replace(OF_RUNS["first"], adaptive=False, per_unit_step=True),
    "default": OF_RUNS["first"],
    "steady": OF_RUNS["steady"],
}
META_METHODS = ("mc", "mc-s", "mc-v", "mc-l2")


@dataclass(frozen=True)
class Run:
    """What is run; ``default`` is the outer step that the library had when the study was made.

    ``meta``, ``epochs``, ``lr`` and ``meta_batch`` are the regime's where they are 0; a larger meta set leaves less to
    train on. ``outer`` is one of `OUTER_STEPS`; ``every`` and ``memory`` are its own where they are 0. With
    ``equal_data`` the baselines train on the meta set too.
    """

    regime: str
    method: str
    seed: int
    meta_lr: float = 1e-3
    reduction: str = "mean"
    every: int = 0
    outer: str = "default"
    initial: str = "zero"
    equal_data: bool = True
    meta: int = 0
    epochs: int = 0
    lr: float = 0.0
    meta_batch: int = 0
    memory: int = 0

    def in_regime(self) -> Regime:
        """The regime with what this run changes of it; all the labels together stay as many."""
        regime = REGIMES[self.regime]
        meta = self.meta or regime.meta
        train = regime.train + regime.meta - meta
        return replace(regime, train=train, meta=meta, epochs=self.epochs or regime.epochs, lr=self.lr or regime.lr)


def outer_step(run: Run) -> OuterStep:
    """How the hyper-parameters of a run move."""
    outer = replace(OUTER_STEPS[run.outer], lr=run.meta_lr)
    if run.memory:
        outer = replace(outer, memory=run.memory)
    return replace(outer, every=run.every, dense_start=0) if run.every else outer


def hyperparameters_of(run: Run, head: nn.Linear, num_classes: int) -> metacal.Hyperparameter:
    """The hyper-parameters that a method learns."""
    if run.method == "mc-l2":
        return metacal.UnitwiseL2(head)
    if run.method == "mc-s":
        return metacal.ScalarLabelSmoothing(num_classes)
    if run.method == "mc-v":
        return metacal.VectorLabelSmoothing(num_classes)
    return metacal.NonUniformLabelSmoothing(num_classes, initial=run.initial)


def split(regime: Regime, seed: int, total: int) -> dict[str, Tensor]:
    """Row numbers of test, val, train and meta: one seeded shuffle; what is left over is test."""
    rows = torch.randperm(total, generator=torch.Generator().manual_seed(seed))
    sizes = [regime.train, regime.meta, regime.val, total - regime.train - regime.meta - regime.val]
    return dict(zip(("train", "meta", "val", "test"), torch.split(rows, sizes), strict=True))


def batches(rows: Tensor, size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Batches of row numbers without end, reshuffled each pass; a short last batch is left out."""
    size = min(size, len(rows))
    while True:
        order = rows[torch.randperm(len(rows), generator=generator)]
        yield from (part for part in torch.split(order, size) if len(part) == size)


@dataclass(frozen=True)
class MetaBatches(Iterable[tuple[Tensor, Tensor]]):
    """Held-out batches without end, the same ones each time."""

    features: Tensor
    labels: Tensor
    rows: Tensor
    size: int
    seed: int

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for part in batches(self.rows, self.size, torch.Generator().manual_seed(self.seed)):
            yield self.features[part], self.labels[part]


def execute(run: Run) -> dict[str, object]:
    """Train and score."""
    regime = run.in_regime()
    features, labels = features_and_labels(regime.dataset)
    started = time.perf_counter()
    parts = split(regime, run.seed, len(labels))
    is_meta = run.method in META_METHODS
    pool = parts["train"] if is_meta or not run.equal_data else torch.cat((parts["train"], parts["meta"]))
    torch.manual_seed(run.seed)
    num_classes = int(labels.max()) + 1
    head = nn.Linear(regime.width, num_classes)
    hidden = [nn.Linear(features.shape[1], regime.width), nn.ReLU(), nn.Linear(regime.width, regime.width), nn.ReLU()]
    model = nn.Sequential(*hidden, head)
    optimizer = torch.optim.SGD(model.parameters(), lr=regime.lr, momentum=0.9)
    steps = regime.epochs * ((regime.train + regime.meta) // regime.batch)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [steps // 2, 3 * steps // 4])
    generator = torch.Generator().manual_seed(run.seed)
    stream = batches(pool, regime.batch, generator)
    meta = None
    if is_meta:
        meta = metacal.MetaCalibrator(
            model,
            optimizer,
            MetaBatches(features, labels, parts["meta"], run.meta_batch or regime.batch, run.seed + 1),
            hyperparameters_of(run, head, num_classes),
            CrossEntropyLoss() + 0.5 * DECELoss(gradient="confidence" if run.outer == "steady" else "full"),
            head=head,
            reduction=run.reduction,
            outer=outer_step(run),
        )
    for _ in range(steps):
        part = next(stream)
        if meta is not None:
            loss = meta.step(features[part], labels[part])
        else:
            loss = BASELINES[run.method](model(features[part]), labels[part])
            loss = loss * len(part) if run.reduction == "sum" else loss
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if run.reduction == "sum":
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step()
        scheduler.step()
    figures = {name: score(model, features[rows], labels[rows]) for name, rows in (*parts.items(), ("pool", pool))}
    with torch.no_grad():
        logits = {name: model(features[rows]) for name, rows in parts.items()}

    def ece_scaled_on(part: str) -> float:
        """Test ECE with the temperature that is best for some other samples."""
        temperature = fit_temperature(logits=logits[part], targets=labels[parts[part]]).temperature
        return float(expected_calibration_error(logits=logits["test"] / temperature, targets=labels[parts["test"]]))

    return {
        **asdict(run),
        "train_accuracy": 1.0 - figures["pool"]["error"],
        "val_ece": figures["val"]["ece"],
        **{f"test_{name}": value for name, value in figures["test"].items()},
        "test_ece_after_temperature": ece_scaled_on("val"),
        "test_ece_after_meta_temperature": ece_scaled_on("meta") if pool is parts["train"] else None,
        "summary": meta.summary() if meta is not None else "",
        "seconds": time.perf_counter() - started,
    }


@torch.no_grad()
def score(model: nn.Module, features: Tensor, labels: Tensor) -> dict[str, float]:
    """Error, ECE and NLL."""
    logits = model(features)
    return {
        "error": float((logits.argmax(dim=1) != labels).double().mean()),
        "ece": float(expected_calibration_error(logits=logits, targets=labels)),
        "nll": float(negative_log_likelihood(logits=logits, targets=labels)),
    }
