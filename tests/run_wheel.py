"""Tries the wheel with no more packages than an extra promises: ``python -m tests.run_wheel core``, then ``cli``.

No test framework, and nothing that metacal does not bring: `make wheel` runs it in an empty environment.
"""

import importlib
import os
import pkgutil
import sys
import tempfile
from pathlib import Path

from tests.run_readme import blocks, run_command, write_predictions

import metacal

README = Path(__file__).parent.parent / "README.md"

OF_AN_EXTRA = (
    *("__main__", "cli", "lab", "evaluation.arrow_tables", "evaluation.other_columns"),
    *("integrations.calibration_metric", "integrations.lightning", "integrations.transformers"),
)
"""Modules that need an extra to be imported: the command line, the lab, and what is made for one package or format."""

PREDICTION_COMMANDS = (
    "metacal demo",
    "metacal evaluate test.parquet a.npz",
    "metacal report test.parquet --figures figures",
    "metacal calibrate test.parquet --method auto --fit-on val.parquet --out calibrated.csv --save fitted.safetensors",
)


def is_of_an_extra(module: str) -> bool:
    """Whether a module, by its dotted name, needs more than what metacal requires."""
    return module.startswith(tuple(f"metacal.{name}" for name in OF_AN_EXTRA))


def run_core() -> str:
    """Import every module of the library, run the README's Python, and see that a missing extra is named."""
    modules = [each.name for each in pkgutil.walk_packages(metacal.__path__, "metacal.", onerror=lambda name: None)]
    library = [name for name in modules if not is_of_an_extra(name)]
    for name in library:
        importlib.import_module(name)
    for block in blocks(README):
        exec(compile(block, str(README), "exec"), {})
    Path("said.csv").write_text("p_cat,p_dog,label\n0.9,0.1,cat\n")
    asked = {
        "cli": lambda: metacal.evaluation.read_predictions("said.csv"),
        "lightning": lambda: importlib.import_module("metacal.integrations.lightning"),
        "transformers": lambda: importlib.import_module("metacal.integrations.transformers"),
        "evaluate": lambda: importlib.import_module("metacal.integrations.calibration_metric"),
    }
    for extra, ask in asked.items():
        try:
            ask()
        except metacal.MissingExtraError as error:
            check(f"pip install 'metacal[{extra}]'" in str(error), str(error))
        else:
            check(False, f"{extra} is not installed, and nothing says so")
    check_refused("metacal --help", "cli")
    return f"core: {len(library)} of {len(modules)} modules imported, the README's Python ran."


def run_cli() -> str:
    """Run the verbs of prediction files; those of the lab say what they need."""
    write_predictions()
    for command in PREDICTION_COMMANDS:
        found = run_command(command)
        check(found.returncode == 0, f"`{command}` left with {found.returncode}.\n{found.stdout}{found.stderr}")
    check_refused("metacal train dataset=digits", "lab")
    return f"cli: {len(PREDICTION_COMMANDS)} commands ran."


def check_refused(command: str, extra: str) -> None:
    """See that a command ends with one line that names an extra, and status 2."""
    found = run_command(command)
    is_one_line = found.stderr.startswith("error: ") and found.stderr.count("\n") == 1
    is_named = f"pip install 'metacal[{extra}]'" in found.stderr
    check(found.returncode == 2 and is_one_line and is_named, f"`{command}`: {found.returncode}\n{found.stderr}")


def check(holds: bool, said: str) -> None:
    """Leave with a message if something does not hold."""
    if not holds:
        sys.exit(said)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        print({"core": run_core, "cli": run_cli}[sys.argv[1]]())
