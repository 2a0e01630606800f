"""Runs the code of Markdown files as printed, Python and console, with whatever metacal the interpreter finds.

No test framework, and nothing that metacal does not bring: the wheel is tried with it in an empty environment.
"""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

LEFT_OUT = {
    "pip install metacal": "the wheel is installed already",
    "pip install 'metacal[cli]'": "the wheel is installed already",
    "metacal run main-ece --rows cifar-10/resnet18 --methods ce,mc --scale cpu": "needs CIFAR-10, trains for hours",
    "metacal train dataset=cifar10 method=mc domains=cifar-c": "needs CIFAR-10, trains for hours",
}
"""Lines of consoles that are not run, and why."""


def blocks(path: Path, kind: str = "python") -> list[str]:
    """The blocks of one language, as printed."""
    return re.findall(rf"```{kind}\n(.*?)```", path.read_text(encoding="utf-8"), re.S)


def commands(block: str) -> list[str]:
    """What is typed into a console, without its comments."""
    return [re.sub(r"\s+#.*", "", line[2:]) for line in block.splitlines() if line.startswith("$ ")]


def write_predictions() -> None:
    """The files that the README's commands read: calibrated predictions, which pass its bound."""
    import numpy as np
    import pyarrow
    from pyarrow import parquet

    rng = np.random.default_rng(0)
    for name in ("test.parquet", "val.parquet", "a.npz", "b.npz"):
        probs = rng.dirichlet(0.3 * np.ones(5), size=4000)
        targets = np.array([rng.choice(5, p=p) for p in probs])
        if name.endswith(".npz"):
            np.savez(name, probs=probs, targets=targets)
        else:
            columns = {f"prob_{k}": probs[:, k] for k in range(5)}
            parquet.write_table(pyarrow.table({**columns, "target": targets}), name)


def run_command(command: str) -> subprocess.CompletedProcess[str]:
    """One line of a console, with the programs of this interpreter's environment."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": programs, "BROWSER": "true"}  # a browser that opens nothing
    return subprocess.run(command, shell=True, env=environment, capture_output=True, text=True)


def without_digits(text: str) -> str:
    """What is printed by every machine: digits may differ in the last place, and so may the spaces before them."""
    return re.sub(r"[\d.,]+", "#", " ".join(text.split()))


def run_page(path: Path) -> str:
    """Every block in turn, and whether it prints what stands below it; says how many there were."""
    ran, left_out, printed = 0, 0, ""
    for kind, block in re.findall(r"```(python|console|text)\n(.*?)```", path.read_text(encoding="utf-8"), re.S):
        if kind == "python":
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(compile(block, str(path), "exec"), {})
            printed = output.getvalue()
            ran += 1
            continue
        if kind == "text":
            if without_digits(block) != without_digits(printed):
                sys.exit(f"{path}: the code above prints\n{printed}and not\n{block}")
            continue
        for command in commands(block):
            if command in LEFT_OUT:
                left_out += 1
                continue
            found = run_command(command)
            if found.returncode:
                sys.exit(f"{path}: `{command}` left with {found.returncode}.\n{found.stdout}{found.stderr}")
            ran += 1
    return f"{path}: {ran} blocks and commands ran, {left_out} left out."


if __name__ == "__main__":
    write_predictions()
    for name in sys.argv[1:]:
        print(run_page(Path(name)))
