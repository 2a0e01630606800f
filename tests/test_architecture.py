"""The house rules as data: who may import whom, how long a file may be, and what names say nothing."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.run_wheel import is_of_an_extra

SOURCE = Path(__file__).parent.parent / "src"
PACKAGE = SOURCE / "metacal"

# package -> packages of ours that it may import (besides itself and `errors`). `files` lies at the bottom too, and uses
# the standard library alone: a room that writes files may stand on it.
MAY_IMPORT: dict[str, set[str]] = {
    "__main__": {"cli"},
    "errors": set(),
    "files": set(),
    "bf16": set(),
    "seeding": set(),
    "functional": set(),
    "losses": {"functional"},
    "metrics": {"functional"},
    "metalearning": {"functional", "losses", "files", "seeding"},
    "posthoc": {"functional", "files"},
    "evaluation": {"functional", "files"},
    "reporting": {"functional", "evaluation", "files"},
    "integrations": {
        *("bf16", "functional", "losses", "metalearning", "metrics", "posthoc", "evaluation", "reporting", "seeding"),
    },
    "cli": {
        *("functional", "losses", "metrics", "posthoc", "evaluation", "files", "reporting", ""),
        "lab.cli",  # app.py alone, which gathers the verbs: held below
    },
    "": {"functional", "lab", "losses", "metrics", "metalearning", "posthoc", "evaluation", "reporting"},
    "lab": set(),
    "lab.data": {"functional", "seeding"},
    "lab.models": set(),
    "lab.training": {
        *("bf16", "functional", "losses", "metalearning", "evaluation", "reporting", "files"),
        *("lab.data", "lab.models"),
    },
    "lab.shift": {"functional", "evaluation", "lab.data", "lab.training"},
    "lab.paper": {
        *("functional", "losses", "metalearning", "evaluation", "reporting", "files"),
        *("lab.data", "lab.training"),
    },
    "lab.engines": {"functional", "files", "lab.data", "lab.models", "lab.training"},
    "lab.cli": {
        *("cli", "functional", "evaluation", "files", "reporting", ""),
        *("lab.data", "lab.models", "lab.training", "lab.paper", "lab.engines"),
        "lab.shift",
    },
}
# A result knows how to draw and print itself: these hand it to the room above, when they are called.
HANDED_UP = {"metacal.evaluation.evaluation": {"reporting"}, "metacal.evaluation.comparison": {"reporting"}}
MAX_LINES = 400
BANNED_STEMS = {"utils", "util", "helpers", "helper", "common", "misc"}
NOT_LOADED_BY_IMPORT = (
    "torch",
    "numpy",
    "polars",
    "plotly",
    "lightning",
    "sklearn",
    "pandas",
    "torchmetrics",
    "matplotlib",
    "scipy",
    "PIL",
    "pooch",
    "transformers",
    "mlflow",
)

MODULES = sorted(PACKAGE.rglob("*.py"))


def dotted_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room(dotted: str) -> str:
    """``metacal.functional.dece`` -> ``functional``, ``metacal.lab.data.files`` -> ``lab.data``."""
    parts = dotted.split(".")
    return ".".join(parts[1:3]) if parts[1:2] == ["lab"] else "".join(parts[1:2])


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: imports are absolute"
            found |= {
                f"{node.module}.{alias.name}" if node.module == "metacal" else node.module for alias in node.names
            }
    return {name for name in found if name.split(".")[0] == "metacal"}


@pytest.mark.parametrize("path", MODULES, ids=dotted_name)
def test_imports_go_one_way(path):
    own = room(dotted_name(path))
    assert own in MAY_IMPORT, f"say in MAY_IMPORT what {own} may import"
    used = {room(name) for name in imports_of(path)} - {own, "errors"} - HANDED_UP.get(dotted_name(path), set())
    assert used <= MAY_IMPORT[own], f"{own} may not import {sorted(used - MAY_IMPORT[own])}"


@pytest.mark.parametrize("path", [path for path in MODULES if "lab" not in path.parts], ids=dotted_name)
def test_the_library_stands_without_the_lab(path):
    lab = {name for name in imports_of(path) if name.startswith("metacal.lab")}
    if "integrations" in path.parts:
        lab.discard("metacal.lab.data.batches")  # until it has moved down
    allowed = {"metacal.cli.app": {"metacal.lab.cli"}, "metacal": {"metacal.lab"}}
    assert lab <= allowed.get(dotted_name(path), set())


@pytest.mark.parametrize("path", [path for path in MODULES if path.parent.name == "cli"], ids=dotted_name)
def test_verbs_print_through_one_console(path):
    """The one that shows control characters instead of obeying them."""
    if path.name != "terminal.py":
        assert "rich.console" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", MODULES, ids=dotted_name)
def test_files_are_short_and_say_what_they_are_for(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_LINES
    assert not BANNED_STEMS & {Path(part).stem for part in path.relative_to(SOURCE).parts}
    docstring = ast.get_docstring(ast.parse(text))
    assert docstring and len(docstring) >= 20


@pytest.mark.slow
def test_every_module_imports_on_its_own():
    """In one fresh interpreter each would take minutes: the modules of its room are dropped before each import instead.

    Rooms import only rooms below them (tested above), so what else is loaded cannot help a module to be imported.
    """
    script = """
import importlib, sys, torch, torchmetrics
for name in sys.argv[1:]:
    depth = 3 if name.startswith('metacal.lab.') else 2
    room = name.split('.')[:depth]
    for loaded in [m for m in sys.modules if m.split('.')[:depth] == room]:
        del sys.modules[loaded]
    importlib.import_module(name)
"""
    names = [dotted_name(path) for path in MODULES]
    run = subprocess.run([sys.executable, "-c", script, *names], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_import_metacal_loads_nothing_heavy():
    script = f"import sys, metacal; print([m for m in {NOT_LOADED_BY_IMPORT!r} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_the_library_imports_with_its_required_packages_alone():
    """All that is installed is hidden but the required packages and what they require; they are loaded before."""
    script = """
import importlib, sys
from importlib.metadata import packages_distributions, requires
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
import sklearn.isotonic, torchmetrics

def required_by(name):
    needed = [each for each in map(Requirement, requires(name) or ()) if not each.marker or each.marker.evaluate()]
    return {canonicalize_name(each.name) for each in needed}

kept = left = set(sys.argv.pop(1).split())
while left:
    left = set().union(*map(required_by, left)) - kept
    kept = kept | left
owners = packages_distributions()
hidden = {name for name in owners if not kept & set(map(canonicalize_name, owners[name]))} - {'metacal'}
assert {'matplotlib', 'pyarrow', 'pydantic', 'rich', 'safetensors', 'typer'} <= hidden
hidden |= {name for name in sys.modules if name.partition('.')[0] in hidden}
sys.modules.update(dict.fromkeys(hidden))
for name in sys.argv[1:]:
    importlib.import_module(name)
"""
    tomllib = pytest.importorskip("tomllib")  # from Python 3.11 on
    required = tomllib.loads((SOURCE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    packages = " ".join(re.match(r"[\w-]+", line)[0] for line in required)
    names = [dotted_name(path) for path in MODULES if not is_of_an_extra(dotted_name(path))]
    run = subprocess.run([sys.executable, "-c", script, packages, *names], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_functions_and_shells_share_file_stems():
    stems = {path.stem for path in (PACKAGE / "functional").glob("*.py")} | {"base"}
    for shells in ("metrics", "losses"):
        assert {path.stem for path in (PACKAGE / shells).glob("*.py")} <= stems
