"""How far a reader has to walk: files of `src/metacal` in which a function runs, by command; files and lines by room.

``python -m benchmarks.walks`` prints both; ``--files`` names the files, in the order in which they are entered, and
``--json results/house/walks.json`` keeps all of it for docs/architecture.md. Every command is run twice and watched the
second time, so that what is executed by importing a module does not count.
"""

import argparse
import ast
import inspect
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import metacal
from benchmarks.report import Part, Row, Target, publish
from metacal.cli.app import run_app

PACKAGE = Path(metacal.__file__).parent
BOUNDS = {"train batch": 40, "evaluate": 20, "table cell": 55}


class Watch:
    """Which files of the package run, and which of them between the end of one training batch and that of the next."""

    def __init__(self) -> None:
        self.files: dict[str, None] = {}  # in the order in which they are entered
        self.batch: dict[str, None] = {}
        self.before_batches: list[dict[str, None]] = []
        self.batches: list[dict[str, None]] = []

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Take in a call or a return, as `sys.setprofile` says it."""
        code = frame.f_code
        if not code.co_filename.startswith(str(PACKAGE)) or not code.co_flags & inspect.CO_OPTIMIZED:
            return  # others' code, and the bodies of modules and classes
        name = str(Path(code.co_filename).relative_to(PACKAGE))
        if event == "call":
            self.files[name] = None
            self.batch[name] = None
        elif event == "return" and code.co_name == "train_batch":
            self.batches.append(self.batch)
            self.before_batches.append(dict(self.files))
            self.batch = {}


@contextmanager
def watching() -> Iterator[Watch]:
    """Watch all threads of this process."""
    watch = Watch()
    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        yield watch
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def walk(command: Callable[[Path], list[str]]) -> Watch:
    """What a command line visits when everything it needs is imported already."""
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            words = ["metacal", *command(Path(folder))]
            said = StringIO()
            with redirect_stdout(said), redirect_stderr(said), watching() as watch:
                typed, sys.argv = sys.argv, words
                try:
                    run_app()
                except SystemExit as left:
                    if left.code:
                        raise RuntimeError(f"{' '.join(words)} failed: {said.getvalue()}") from None
                finally:
                    sys.argv = typed
    return watch


def train(folder: Path) -> list[str]:
    """A short run with a meta step at every batch."""
    return ["train", "dataset=digits", "method=meta", "meta_every=1", "epochs=1", "--run-dir", str(folder / "run")]


def evaluate(folder: Path) -> list[str]:
    """Two hundred predictions."""
    rng = np.random.default_rng(0)
    np.savez(folder / "predictions.npz", probs=rng.dirichlet(np.ones(5), 200), targets=rng.integers(5, size=200))
    return ["evaluate", str(folder / "predictions.npz")]


def table_cell(folder: Path) -> list[str]:
    """One method on one dataset with one seed, trained and shown."""
    cell = ["--rows", "cifar-10/resnet18", "--methods", "mc", "--seeds", "0", "--scale", "smoke"]
    return ["run", "main-ece", *cell, "--store", str(folder / "runs")]


def purpose(file: str) -> str:
    """What a file says that it does: the first paragraph of its docstring, as Markdown."""
    said = ast.get_docstring(ast.parse((PACKAGE / file).read_text(encoding="utf-8"))) or ""
    return " ".join(said.split("\n\n")[0].split()).replace("``", "`").replace("|", "\\|")


def rooms() -> list[Row]:
    """Files and lines of each room."""
    files, lines = Counter[str](), Counter[str]()
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).parts[:-1]
        room = "/".join(parts[:2] if parts[:1] == ("lab",) else parts[:1]) or "."
        files[room] += 1
        lines[room] += len(path.read_text(encoding="utf-8").splitlines())
    rows: list[Row] = [{"room": room, "files": files[room], "lines": lines[room]} for room in files]
    return [*rows, {"room": "all", "files": files.total(), "lines": lines.total()}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", action="store_true", help="name the files of every walk")
    parser.add_argument("--json", type=Path, help="save the figures here")
    arguments = parser.parse_args()
    whole = walk(train)
    walks = {
        "train batch": max(whole.batches[1:], key=len),
        "train, to the second batch": whole.before_batches[1],
        "train": whole.files,
        "evaluate": walk(evaluate).files,
        "table cell": walk(table_cell).files,
    }
    if arguments.files:
        for name, files in walks.items():
            print(f"{name}:", *files, sep="\n  ")
    rows: list[Row] = [
        {"walk": name, "files": len(files), "rooms": len({str(Path(file).parent) for file in files})}
        for name, files in walks.items()
    ]
    targets = [Target(f"files of {name}", len(walks[name]), bound, at_least=False) for name, bound in BOUNDS.items()]
    size = rooms()
    targets += [
        Target("files in all", float(size[-1]["files"] or 0), 190, at_least=False),
        Target("lines in all", float(size[-1]["lines"] or 0), 20_000, at_least=False),
    ]
    parts = {"walks": Part("Files in which a function runs", rows, targets), "rooms": Part("Files and lines", size)}
    if arguments.json is not None:
        visits: list[Row] = [
            {"walk": name, "file": file, "does": purpose(file)} for name, files in walks.items() for file in files
        ]
        parts["files"] = Part("Files in the order in which they are entered", visits)
    publish("walks", parts, path=arguments.json, is_whole=False)


if __name__ == "__main__":
    main()
