"""``metacal train``: train and score one model, with checkpoints to resume from."""

import logging
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from metacal.cli.options import JSONFile, check_places
from metacal.cli.terminal import Console
from metacal.files import write_json
from metacal.lab.cli import DataDir, TrustModel

if TYPE_CHECKING:
    from metacal.lab.training import RunFolder, RunSpec

SHOWN = ("accuracy", "nll", "brier", "ece", "adaptive_ece", "classwise_ece")


def train(
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE...", help="Settings; see above.", show_default=False)
    ] = None,
    run_dir: Annotated[
        Path | None, typer.Option("--run-dir", metavar="DIR", help="Folder of the run. [default: runs/NAME-HASH]")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a run from its last checkpoint.")] = False,
    trust_model: TrustModel = False,
    data_dir: DataDir = None,
    json_file: JSONFile = None,
) -> None:
    """Train a model and score it on the test set.

    Start with [bold]dataset[/], [bold]model[/], [bold]method[/] and [bold]seed[/]. The paper's datasets use the
    published settings by default for the other keys: epochs, batch_size, accumulate, optimizer, lr, momentum, nesterov,
    weight_decay, schedule, milestones, decay, reduction, clip_norm, average, ema_decay, interleaved_lr, patience,
    precision, compile; train_size, val_share or val_size, meta_share or meta_size, stratified, hold_out_meta, augment,
    domains; meta, outer, through, meta_every, meta_lr, meta_batch_size, meta_memory, published; select, finish;
    model_options.NAME, dataset_options.NAME; and, for the hardware, accelerator, devices, strategy, threads and
    channels_last.

    Methods: meta, this library's own, learns a penalty on the validation samples (meta=val). The paper's are ce, ls
    and other baselines, and mc and its variants, which learn on a part of the training data (meta=split); an unknown
    name lists all of them. select=refinement selects the checkpoint by validation NLL after temperature scaling, and
    finish=true folds the temperature into the model; both are the default, except for the paper's methods on its
    datasets.

    Examples:
      metacal train dataset=digits method=meta

      metacal train dataset=cifar10 model=resnet18 method=mc seed=1 --run-dir runs/mc-1

      metacal train --run-dir runs/mc-1 --resume

      metacal train dataset=cifar100 method=ls devices=4 strategy=ddp precision=bf16

      metacal train dataset=mydata.npz model=mypackage.nets:Net epochs=20

      metacal train dataset=cifar10 method=mc domains=cifar-c
    """
    from metacal.lab.cli.progress import exit_when_stopped, watch_training
    from metacal.lab.data import SOURCES
    from metacal.lab.models import MODELS
    from metacal.lab.training import RunFolder, are_hardware_settings, read_assignments, read_hardware, run
    from metacal.lab.training.environment import is_first_process
    from metacal.lab.training.run_folder import RunStore

    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # silence its start-up messages
    words = settings or []
    if resume and run_dir is not None and are_hardware_settings(words):
        spec, hardware = RunFolder(run_dir).read_spec_to_build(trust_model=trust_model), read_hardware(words)
    else:
        spec, hardware = read_assignments(words, datasets=SOURCES, models=MODELS)
    folder = RunStore("runs").folder(spec) if run_dir is None else RunFolder(run_dir)
    home = folder.path.resolve()
    if json_file is not None and json_file.resolve().parent not in (
        home,
        *home.parents,
    ):  # the run creates these
        check_places(json=json_file)
    command = resume_command(words, spec, folder, data_dir)
    with (
        exit_when_stopped(f"Stopped; everything is saved. Continue with: {command}") as stop,
        watch_training(spec) as emit,
    ):
        scores = run(spec, folder, hardware=hardware, data_dir=data_dir, resume=resume, emit=emit, stop=stop)
    if is_first_process():
        print_scores(folder, scores)
        if json_file is not None:
            write_json(json_file, scores)


def resume_command(words: list[str], spec: "RunSpec", folder: "RunFolder", data_dir: Path | None) -> str:
    """Return the command that continues a run."""
    from metacal.lab.training import are_hardware_settings

    machine = [word for word in words if are_hardware_settings([word])]
    trust = ["--trust-model"] if spec.has_own_model else []
    data = [] if data_dir is None else ["--data-dir", str(data_dir)]
    return shlex.join(["metacal", "train", *machine, "--run-dir", str(folder.path), "--resume", *trust, *data])


def print_scores(folder: "RunFolder", scores: dict[str, Any]) -> None:
    """Print the scores of the best checkpoint."""
    console = Console()
    console.say(f"{folder.path}, epoch {scores['best_epoch']} (best of validation)")
    table = Table()
    table.add_column("measure")
    for part in ("val", "test"):
        table.add_column(part, justify="right")
    for name in SHOWN:
        table.add_row(name, *(f"{scores[part][name]:.4f}" for part in ("val", "test")))
    console.print(table)
    if "finish" in scores:
        console.say(scores["finish"]["verdict"])
    if "domains" in scores:
        found = scores["domains"]
        for kind in ("average", "worst"):
            figures = ", ".join(f"{name} {found[kind][name]:.4f}" for name in ("error", "ece", "nll"))
            console.say(f"{kind} of {len(found['each'])} test domains ({found['source']}): {figures}")
