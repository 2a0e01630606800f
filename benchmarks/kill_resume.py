"""Runs killed at random moments and resumed: how many end bit for bit like a run that was left alone.

Each trial trains a network with dropout by ``method=meta`` and kills its process (SIGKILL) twice, each time after a
random number of epochs and a random part of one more, so anywhere between start and end; then the run is resumed to its
end, and everything that was kept is compared.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.report import Part, Row, Target, publish
from metacal.lab.training import RunFolder
from metacal.lab.training.checkpoints import Checkpoints

EPOCHS = 60
WORDS = [
    *("dataset=digits", "method=meta", f"epochs={EPOCHS}", "milestones=30,45", "batch_size=16"),
    *("train_size=256", "model_options.hidden=[64]", "model_options.dropout=0.2"),
]
KILLS = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as scratch:
        whole = RunFolder(Path(scratch) / "whole")
        run_to_the_end(whole)
        epoch = whole.read_scores()["train_seconds"] / EPOCHS
        kept, kills = outcome(whole), 0
        same = 0
        for trial in range(options.trials):
            cut = RunFolder(Path(scratch) / f"cut{trial}")
            kills += run_and_kill(cut, epoch, draw)
            place = difference(outcome(cut), kept)
            same += place is None
            told = "" if place is None else f"; differs at {place}"
            print(f"trial {trial + 1}: {same} of {trial + 1} the same, {kills} kills{told}", flush=True)
            shutil.rmtree(cut.path)
    rows: list[Row] = [{"trials": options.trials, "kills": kills, "the same to the bit": same}]
    target = Target(
        "runs that were killed and ended bit for bit the same, share", same / options.trials, 1.0, at_least=True
    )
    publish("kill_resume", {"kill_resume": Part("Kill and resume", rows, [target])})


def command(folder: RunFolder) -> list[str]:
    program = str(Path(sys.executable).parent / "metacal")
    return [program, "train", *WORDS, "--run-dir", str(folder.path), "--resume"]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def run_to_the_end(folder: RunFolder) -> None:
    """Begin a run or go on with it; what it says is shown if it fails."""
    done = subprocess.run(command(folder), capture_output=True, text=True, env=environment())
    if done.returncode:
        raise SystemExit(done.stderr)


def run_and_kill(folder: RunFolder, epoch: float, draw: random.Random) -> int:
    """Run to the end, with kills on the way; returns how many hit. An epoch takes so many seconds."""
    kills = 0
    for after in sorted(draw.sample(range(EPOCHS), KILLS)):
        process = subprocess.Popen(
            command(folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment()
        )
        while process.poll() is None and len(list(folder.path.glob("epochs/*.safetensors"))) < after:
            time.sleep(0.01)
        time.sleep(draw.uniform(0.0, epoch))
        kills += process.poll() is None
        process.kill()
        process.wait()
    run_to_the_end(folder)
    return kills


def outcome(folder: RunFolder) -> dict[str, Any]:
    """All that a run kept, but for the time it took."""
    state, _ = Checkpoints(folder.checkpoints).load_last()
    assert state is not None
    state["processes"][0]["progress"].pop("seconds")
    scores = folder.read_scores()
    scores.pop("train_seconds")
    files = [folder.path / "history.csv", *sorted((folder.path / "epochs").iterdir())]
    return {
        "state": state,
        "best": Checkpoints(folder.checkpoints).load_best(),
        "scores": scores,
        "files": [file.read_bytes() for file in files],
        "predictions": [folder.read_predictions(part).logits for part in ("val", "test")],
    }


def difference(one: Any, other: Any, place: str = "") -> str | None:
    """Where two nests of tensors and plain values differ in a bit, if they do."""
    if isinstance(one, torch.Tensor):
        return None if torch.equal(one, other) and one.dtype == other.dtype else place
    if isinstance(one, dict) and one.keys() == other.keys():
        pairs = [(f"{place}/{key}", one[key], other[key]) for key in one]
    elif isinstance(one, (list, tuple)) and len(one) == len(other):
        pairs = [(f"{place}/{number}", *both) for number, both in enumerate(zip(one, other, strict=True))]
    else:
        return None if one == other else place
    return next((found for where, a, b in pairs if (found := difference(a, b, where)) is not None), None)


if __name__ == "__main__":
    main()
