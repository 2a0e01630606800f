"""The one place that turns the names in a spec into objects: data -> model -> train -> evaluate, straight down."""

import hashlib
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from metacal import losses, metalearning
from metacal.data import Batches, Dataset, Splits, load_dataset, make_splits, make_transform
from metacal.errors import InvalidValueError
from metacal.evaluation import Predictions, score_predictions
from metacal.losses import Loss
from metacal.metalearning import Hyperparameter
from metacal.models import create_model
from metacal.runs import Hardware, RunFolder, RunSpec, Term
from metacal.runs.processes import is_first_process
from metacal.training import (
    Checkpoints,
    MetaObjective,
    Objective,
    Phase,
    PlainObjective,
    Schedule,
    StopRequest,
    Training,
    build_optimizer,
    train,
)
from metacal.training.events import EpochDone, Event, Listener, Notice, TrainingBegan, silence
from metacal.training.predict import predict, share_of

LOSSES: dict[str, type[Loss]] = {
    "cross_entropy": losses.CrossEntropy,
    "label_smoothing": losses.LabelSmoothing,
    "brier": losses.BrierLoss,
    "focal": losses.FocalLoss,
    "flsd": losses.FLSDLoss,
    "dece": losses.DECE,
    "mmce": losses.MMCE,
    "mmce_weighted": losses.MMCEWeighted,
    "sb_ece": losses.SBECE,
    "s_avuc": losses.SAvUC,
}
HYPERPARAMETERS: dict[str, Callable[[Any, int], Hyperparameter]] = {
    "nonuniform_smoothing": lambda head, num_classes: metalearning.NonUniformLabelSmoothing(num_classes),
    "vector_smoothing": lambda head, num_classes: metalearning.VectorLabelSmoothing(num_classes),
    "scalar_smoothing": lambda head, num_classes: metalearning.ScalarLabelSmoothing(num_classes),
    "unitwise_l2": lambda head, num_classes: metalearning.UnitwiseL2(head),
    "temperature": lambda head, num_classes: metalearning.LearnableTemperature(),
    "focal_gamma": lambda head, num_classes: metalearning.LearnableFocalGamma(num_classes),
}
PRECISIONS = {"32": "32-true", "64": "64-true", "bf16": "bf16-mixed", "16": "16-mixed"}


def run(
    spec: RunSpec,
    folder: RunFolder,
    *,
    hardware: Hardware | None = None,
    data_dir: Path | None = None,
    resume: bool = False,
    emit: Listener = silence,
    stop: StopRequest | None = None,
) -> dict[str, Any]:
    """Execute a spec into a run folder and return its scores; a complete run is read, not run again.

    Args:
        spec: what to run.
        folder: where it is kept; locked meanwhile.
        hardware: where it is executed.
        data_dir: folder of the datasets; see `metacal.data.load_dataset`.
        resume: go on with a run that was begun before.
        emit: is told what happens.
        stop: asks the loop to stop.
    """
    if is_first_process():
        folder.check_free_for(spec, resume=resume)
    if resume and folder.is_complete:
        return folder.read_scores()
    dataset, splits = load_data(spec, data_dir)
    hardware = hardware or Hardware()
    fabric = make_fabric(spec, hardware)
    torch.manual_seed(spec.seed)
    model = create_model(
        spec.model,
        num_classes=dataset.num_classes,
        input_shape=dataset.input_shape,
        embeddings=dataset.embeddings,
        **spec.model_options,
    )
    if wants_channels_last(hardware, dataset, fabric):
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    training = prepare(spec, dataset, splits, model, fabric, folder, emit, StopRequest() if stop is None else stop)
    check_output(training, dataset)
    with folder.lock() if fabric.is_global_zero else nullcontext():
        if fabric.is_global_zero:
            folder.check_free_for(spec, resume=resume)
            begin(spec, dataset, splits, fabric, folder)
        progress = train(training, resume=resume)
        return finish(spec, dataset, splits, training, folder, progress.seconds)


def begin(spec: RunSpec, dataset: Dataset, splits: Splits, fabric: Fabric, folder: RunFolder) -> None:
    """Write what the run is into its folder, or hold it to what is written there: the data must be the same."""
    data_hash = fingerprint(dataset)
    if folder.exists:
        folder.check_data(data_hash, splits.indices)
        return
    folder.write_splits(splits.indices)
    folder.write_superclasses(dataset.superclasses)
    circumstances = {"device": str(fabric.device), "processes": fabric.world_size, "data": dataset.files}
    folder.write_spec(spec, {**circumstances, "data_hash": data_hash})


def fingerprint(dataset: Dataset) -> str:
    """A hash of all inputs and targets."""
    digest = hashlib.sha256()
    for part in (dataset.train, dataset.test):
        for values in (part.inputs, part.targets):
            digest.update(values.contiguous().numpy().data)
    return digest.hexdigest()


@torch.no_grad()
def check_output(training: Training, dataset: Dataset) -> None:
    """Raise unless the model gives logits of this data's classes; before anything is written."""
    x, _ = next(iter(training.val))
    module, devices = training.model, [training.fabric.device] if training.fabric.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), training.fabric.autocast():
        module.eval()
        try:
            logits = module.module(x.to(next(module.parameters()).dtype) if x.is_floating_point() else x)
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            reason = str(error).splitlines()[0]
            raise InvalidValueError(f"`model` must take inputs of shape {tuple(x.shape)}, got: {reason}.") from None
        module.train()
    wanted = (len(x), dataset.num_classes)
    if not isinstance(logits, Tensor) or tuple(logits.shape) != wanted:
        found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise InvalidValueError(f"`model` must return logits of shape {wanted}, got {found}.")


def load_data(spec: RunSpec, data_dir: Path | None) -> tuple[Dataset, Splits]:
    """The dataset and its parts."""
    dataset = load_dataset(spec.dataset, folder=data_dir, **spec.dataset_options)
    if spec.augment is not None:
        dataset = replace(dataset, augment=spec.augment)
    splits = make_splits(
        dataset,
        seed=spec.seed,
        with_meta=spec.method.needs_meta or spec.hold_out_meta,
        val_share=spec.val_share,
        meta_share=spec.meta_share,
        val_size=spec.val_size,
        meta_size=spec.meta_size,
        train_size=spec.train_size,
        stratified=spec.stratified,
    )
    return dataset, splits


def make_fabric(spec: RunSpec, hardware: Hardware) -> Fabric:
    """Devices, precision and processes, started."""
    if hardware.strategy == "fsdp":
        reason = (
            "the meta step needs the whole head" if spec.method.hyperparameters else "checkpoints hold whole models"
        )
        raise InvalidValueError(f"`strategy` must be auto or ddp for {spec.method.name}, got fsdp: {reason}.")
    if hardware.threads is not None:
        torch.set_num_threads(hardware.threads)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*AMP with fp16 is not supported on CPU")  # refused below
            fabric = Fabric(
                accelerator=hardware.accelerator,
                devices=hardware.devices,
                strategy=hardware.strategy,
                precision=PRECISIONS[spec.precision],  # type: ignore[arg-type]
            )
    except (RuntimeError, ValueError) as error:
        raise InvalidValueError(
            f"`accelerator`, `devices` and `strategy` must be what this machine has: {str(error).splitlines()[0]}"
        ) from None
    if spec.precision == "16" and fabric.device.type == "cpu":
        raise InvalidValueError("`precision` must be 32, 64 or bf16 on a CPU, got 16.")
    fabric.launch()
    return fabric


def wants_channels_last(hardware: Hardware, dataset: Dataset, fabric: Fabric) -> bool:
    """Whether image channels are to be stored last: as asked, or where that is faster.

    On CUDA it is known to be; on a CPU small networks gain a quarter and large ones nothing, but lose nothing either
    (results/benchmarks/channels_last.json).
    """
    if hardware.channels_last is not None:
        return hardware.channels_last
    return dataset.kind == "image" and fabric.device.type in ("cuda", "cpu")


def prepare(
    spec: RunSpec,
    dataset: Dataset,
    splits: Splits,
    module: nn.Module,
    fabric: Fabric,
    folder: RunFolder,
    emit: Listener,
    stop: StopRequest,
) -> Training:
    """Objects for the loop."""
    head = module.head
    assert isinstance(head, nn.Module)
    optimizer = build_optimizer(
        spec.optimizer,
        module.parameters(),
        lr=spec.lr,
        momentum=spec.momentum,
        nesterov=spec.nesterov,
        weight_decay=spec.weight_decay,
    )
    if spec.compile:
        module.compile()
    model, optimizer = fabric.setup(module, optimizer)
    torch.manual_seed(spec.seed + 1000 * fabric.global_rank)  # dropout: another stream on every process
    objective = main_objective(spec, dataset, splits, model, head, fabric)
    phases = [Phase(batches_of(spec, dataset, splits, "train", fabric), objective, spec.lr)]
    if spec.method.interleaved:
        calibration = PlainObjective(model, sum_of(spec.method.interleaved), "mean")
        batches = batches_of(spec, dataset, splits, "meta", fabric)
        phases.append(Phase(batches, calibration, spec.interleaved_lr or spec.lr))
    if spec.schedule == "multistep" and spec.milestones and spec.milestones[0] >= spec.epochs:
        emit(Notice(f"The learning rate never drops: milestones {list(spec.milestones)} with {spec.epochs} epochs."))
    return Training(
        fabric=fabric,
        model=model,
        optimizer=optimizer,
        phases=phases,
        val=evaluation_batches(spec, dataset, splits, "val", fabric),
        schedule=Schedule(spec.schedule, spec.epochs, spec.milestones, spec.decay),
        epochs=spec.epochs,
        checkpoints=Checkpoints(folder.checkpoints),
        clip_norm=spec.clip_norm,
        accumulate=spec.accumulate,
        patience=spec.patience,
        emit=keeping(folder, emit) if fabric.is_global_zero else silence,
        stop=stop,
    )


def keeping(folder: RunFolder, emit: Listener) -> Listener:
    """A listener that keeps every epoch before it passes the event on."""

    def keep(event: Event) -> None:
        if isinstance(event, TrainingBegan):
            folder.drop_epochs(event.epoch)
        elif isinstance(event, EpochDone):
            folder.add_epoch(event.record, event.tensors)
        emit(event)

    return keep


def main_objective(
    spec: RunSpec, dataset: Dataset, splits: Splits, model: nn.Module, head: nn.Module, fabric: Fabric
) -> Objective:
    """A plain loss, or a meta-calibrated one if the method learns something."""
    method = spec.method
    if not method.hyperparameters:
        return PlainObjective(model, sum_of(method.loss), "mean" if method.averaged else spec.reduction)
    learned: dict[str, Hyperparameter] = {
        name: HYPERPARAMETERS[name](head, dataset.num_classes) for name in method.hyperparameters
    }
    calibrator = metalearning.MetaCalibrator(
        model,
        head,
        learned if len(learned) > 1 else next(iter(learned.values())),
        sum_of(method.objective),
        base_loss=sum_of(method.loss, reduction="none"),
        inner_reduction=spec.reduction,
        every=spec.meta_every,
        meta_lr=spec.meta_lr,
        preset=spec.meta_preset,
        seed=spec.seed,
    )
    return MetaObjective(calibrator, batches_of(spec, dataset, splits, "meta", fabric))


def sum_of(terms: tuple[Term, ...], **options: Any) -> Loss:
    """A Loss from its terms."""
    return reduce(add, (term.weight * LOSSES[term.loss](**term.options, **options) for term in terms))


def batches_of(spec: RunSpec, dataset: Dataset, splits: Splits, part: str, fabric: Fabric) -> Batches:
    """Shuffled batches of the training part, augmented, or of the meta part, as it is: this process's share of each."""
    size = spec.batch_size if part == "train" else spec.meta_batch_size or spec.batch_size
    return Batches(
        getattr(splits, part),
        size,
        seed=spec.seed + (part == "meta"),
        transform=make_transform(dataset, training=part == "train", seed=spec.seed),
        device=fabric.device,
        rank=fabric.global_rank,
        world_size=fabric.world_size,
    )


def evaluation_batches(spec: RunSpec, dataset: Dataset, splits: Splits, part: str, fabric: Fabric) -> Batches:
    """This process's share of a part, in order, as it is."""
    return Batches(
        share_of(getattr(splits, part), fabric),
        4 * spec.batch_size,
        shuffle=False,
        transform=make_transform(dataset, training=False),
        device=fabric.device,
    )


def finish(
    spec: RunSpec, dataset: Dataset, splits: Splits, training: Training, folder: RunFolder, seconds: float
) -> dict[str, Any]:
    """Predictions and scores of the best checkpoint."""
    fabric = training.fabric
    fabric.barrier()
    best, complaints = training.checkpoints.load_best()
    for complaint in complaints:
        training.emit(Notice(f"{complaint} Its copy is used."))
    training.model.load_state_dict(best["model"])
    said = {}
    for part in ("val", "test"):
        logits, targets = predict(fabric, training.model, evaluation_batches(spec, dataset, splits, part, fabric))
        said[part] = Predictions.from_logits(logits, targets, dataset.class_names, spec.title)
    scores = {
        "spec": spec.hash,
        "best_epoch": best["epoch"],
        "train_seconds": seconds,
        "test": score_predictions(probs=said["test"].probs, targets=said["test"].targets).as_dict(),
        "val": score_predictions(probs=said["val"].probs, targets=said["val"].targets).as_dict(),
    }
    if fabric.is_global_zero:
        for part, predictions in said.items():
            folder.write_predictions(part, predictions)
        folder.write_hyperparameters(training.phases[0].objective.export(best["learned"]))
        folder.write_scores(scores)
    return scores
