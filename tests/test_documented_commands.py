"""What the pages print into a console runs as printed, wherever it needs no download, no cluster and no hours."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.run_readme import blocks, commands, run_command

ROOT = Path(__file__).parent.parent
PRINTED = {
    page.relative_to(ROOT).as_posix(): found
    for page in [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "CONTRIBUTING.md"]
    if page.name != "quickstart.md"  # run with the wheel, see run_readme.py
    and (found := [line for block in blocks(page, "console") for line in commands(block)])
}
CLONE, DOWNLOAD, HOURS = "CI runs it in a clone", "needs a data set that is downloaded", "trains for hours"
LEFT_OUT = {
    "pip install 'metacal[cli]'": "installed already",
    "make check": CLONE,
    "make test": CLONE,
    "make test-slow": CLONE,
    "make test-lowest": CLONE,
    "make pages": "writes into the clone; tests/test_pages.py checks what it would write",
    "make docs": CLONE,
    "make format": "changes the clone",
    "python -m benchmarks.fuzz jsonl --seconds 1800 --out findings": "fuzzes for half an hour, with atheris",
    "make bench": "measures, for an hour, in an environment of its own",
    "metacal data fetch cifar10 svhn": DOWNLOAD,
    "metacal data check cifar10": DOWNLOAD,
    "metacal data fetch cifar10 cifar100 svhn 20newsgroups": DOWNLOAD,
    "metacal run main-ece --scale smoke": DOWNLOAD,
    "metacal run table-6 figure-2 --rows cifar-10 --seeds 0 --scale cpu --jobs 2 -o out": HOURS,
    "metacal run synthetic synthetic-sweep synthetic-boundary -o out": "fits for minutes",
    "metacal run main-ece --jobs 4": HOURS,
    "metacal run main-ece --engine ray --address head-node:6379 --gpus 1": "needs a cluster",
    "metacal run cross-domain --scale cpu --methods ce,ls,mc": HOURS,
    "metacal shift runs/my-run --json shift.json": DOWNLOAD,
    "metacal train dataset=cifar10 method=mc domains=cifar-c": HOURS,
    "metacal train dataset=cifar10 model=resnet18 method=mc seed=1 --run-dir runs/mc-1": HOURS,
    "metacal train --run-dir runs/mc-1 --resume": "goes on with the run before",
    "metacal train dataset=cifar100 method=mc devices=4 strategy=ddp precision=bf16": HOURS,
    "torchrun --nproc-per-node=4 $(which metacal) train dataset=cifar100 method=mc devices=4 strategy=ddp": HOURS,
}
"""Lines that are not run, and why."""
CLASSES = 5


def predictions(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """As sure as they are right, and mostly right."""
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(0.04 * np.ones(CLASSES), size=2000) + 1e-6
    probs /= probs.sum(axis=1, keepdims=True)
    return probs, np.array([rng.choice(CLASSES, p=p) for p in probs])


def write_table(name: str, probs: np.ndarray, targets: np.ndarray, prefix: str, target: str) -> None:
    """Predictions as columns, in the format that the name ends in."""
    import pyarrow
    from pyarrow import csv, parquet

    columns = {**{f"{prefix}{k}": probs[:, k] for k in range(CLASSES)}, target: targets}
    table = pyarrow.table({**columns, "country": ["de", "fr"] * (len(targets) // 2)})
    (csv.write_csv if name.endswith(".csv") else parquet.write_table)(table, name)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A folder with every file that the pages name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as many tests as cores run at once
    for seed, name in enumerate(("test", "val", "other-data")):
        write_table(f"{name}.parquet", *predictions(seed), "prob_", "target")
    write_table("test.csv", *predictions(3), "score_", "truth")
    write_table("new.csv", *predictions(4), "prob_", "target")
    write_table("predictions.parquet", *predictions(5), "p_", "label")
    keys = {
        "old": "logits",
        "new": "logits",
        "test": "logits",
        "val": "logits",
        "predictions": "probs",
        "outputs": "scores",
    }
    for seed, (name, key) in enumerate(keys.items()):
        probs, targets = predictions(10 + seed)
        scores = probs if key == "probs" else 3.0 * np.log(probs)  # over-confident, so that there is something to fix
        np.savez(f"{name}.npz", y=targets, **{key: scores})
    network = torch.nn.Sequential(torch.nn.Linear(4, CLASSES))
    torch.save(network.state_dict(), "weights.pt")
    torch.export.save(torch.export.export(network, (torch.randn(8, 4),)), "model.pt2")
    samples = ROOT / "tests" / "evaluation" / "samples"
    Path("logs").mkdir()
    shutil.copy(samples / "lm-eval.jsonl", "samples_arc_easy_2026-01-16.jsonl")
    shutil.copy(samples / "inspect-epochs.eval", "logs/2026-01-16_task.eval")
    Path("names.txt").write_text("\n".join("abcde") + "\n")
    rng = np.random.default_rng(20)
    inputs, targets = rng.normal(size=(500, 4)).astype(np.float32), rng.integers(3, size=500)
    np.savez("h.npz", inputs=inputs, targets=targets, domains=np.array(list("ABCDE") * 100))


@pytest.mark.slow
@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("page", PRINTED)
def test_commands_run_as_printed(page):
    for command in PRINTED[page]:
        if command not in LEFT_OUT:
            found = run_command(command)
            assert found.returncode == 0, f"`{command}` left with {found.returncode}.\n{found.stdout}{found.stderr}"


def test_what_is_left_out_is_printed():
    assert set(LEFT_OUT) <= {line for lines in PRINTED.values() for line in lines}
