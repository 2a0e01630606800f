"""The package as a whole: lazy parts, version, licence files, and the README's code as printed."""

import ast
import dataclasses
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from PIL import Image
from pyarrow import parquet
from tests.run_readme import LEFT_OUT, blocks, commands

import metacal
from metacal.errors import EXTRAS
from metacal.lab.data.sources import SOURCES

ROOT = Path(__file__).parent.parent


def test_the_version_is_that_of_the_citation_and_of_the_newest_release():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\nversion: {metacal.__version__}\n" in citation
    released = re.search(r"^date-released: (.+)$", citation, re.M)
    assert released is not None
    assert re.findall(r"^## \[(\d.*?)\] - (.*)$", changes, re.M)[0] == (metacal.__version__, released[1])


def test_every_part_in_the_reference_is_an_attribute():
    """After ``import metacal`` alone, as in a fresh process."""
    pages = [page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference").glob("*.md")]
    parts = [part for page in pages for part in re.findall(r"^# (metacal\.\w+)$", page, re.M)]
    script = f"import metacal; print({', '.join(f'{part}.__name__' for part in parts)})"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (run.stderr, run.stdout.split()) == ("", parts) and "metacal.metalearning" in parts


def test_parts_are_imported_on_first_use():
    assert metacal.metrics.ExpectedCalibrationError is not None
    assert set(dir(metacal)) >= {"functional", "losses", "metrics"}
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        metacal.nothing  # noqa: B018


@pytest.mark.parametrize("name", metacal.__all__)
def test_every_name_can_be_used(name):
    assert getattr(metacal, name) is not None and name in dir(metacal)


def test_what_the_calibrator_takes_and_returns_is_at_hand():
    from metacal import metalearning

    names = "MetaCalibrator OuterStep PAPER Finish TemperatureScaled LogitPenalty HierarchicalLabelSmoothing"
    names += " ScalarLabelSmoothing VectorLabelSmoothing NonUniformLabelSmoothing UnitwiseL2"
    names += " LearnableTemperature LearnableFocalGamma"
    for name in names.split():
        assert name in metacal.__all__ and getattr(metacal, name) is getattr(metalearning, name)
    assert dataclasses.replace(metacal.PAPER, every=4).every == 4


NEEDS_A_CLUSTER = ROOT / "docs" / "scaling.md"
OWN_TESTS = sorted((ROOT / "docs" / "integrations").glob("*.md"))
PRINTED = sorted(
    page.relative_to(ROOT).as_posix()
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"))
    if blocks(page) and page not in (NEEDS_A_CLUSTER, *OWN_TESTS)
)


@pytest.fixture
def users_files(tmp_path, monkeypatch):
    """A folder with the files that the pages speak of."""
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    probs, targets = generator.dirichlet(np.ones(3), size=300), generator.integers(3, size=300)
    np.savez("predictions.npz", probs=probs, targets=targets)
    columns = {f"prob_{k}": probs[:, k] for k in range(3)}
    parquet.write_table(pyarrow.table({**columns, "target": targets}), "test.parquet")
    for number in range(40):
        folder = tmp_path / "photos" / ("cat", "dog")[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(256, size=(80, 80, 3), dtype=np.uint8)).save(folder / f"{number}.png")


@pytest.mark.usefixtures("users_files")
@pytest.mark.parametrize("page", PRINTED)
def test_code_runs_as_printed(page):
    """The blocks of a page one after the other: later ones may use what earlier ones made."""
    names: dict[str, object] = {}
    for block in blocks(ROOT / page):
        exec(compile(block, page, "exec"), names)


def test_what_is_printed_to_be_copied_passes_the_check_of_docstrings():
    kinds = (ast.FunctionDef, ast.ClassDef)
    for block in blocks(ROOT / "CONTRIBUTING.md"):
        made = [node for node in ast.walk(ast.parse(block)) if isinstance(node, kinds) and node.name != "__init__"]
        assert made and [node.name for node in made if ast.get_docstring(node) is None] == []


def test_every_dataset_is_in_the_table_of_names():
    page = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    named = [name for row in re.findall(r"^\| (`.*?) \|", page, re.M) for name in re.findall(r"`([^`]+)`", row)]
    assert set(SOURCES) <= set(named)


def test_commands_that_are_not_run_with_the_wheel_are_printed():
    pages = (ROOT / "README.md", ROOT / "docs" / "quickstart.md")
    printed = [each for page in pages for block in blocks(page, "console") for each in commands(block)]
    assert set(LEFT_OUT) <= set(printed) and "metacal show main-ece --scale cpu" in printed


def test_torch_is_pinned():
    assert "torch==2.13.0" in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("extra", ["lightning", "transformers", "ray", "tensorboard", "mlflow", "onnx"])
def test_extras_are_installed_in_the_versions_that_are_claimed(extra):
    from packaging.requirements import Requirement

    tomllib = pytest.importorskip("tomllib")  # from Python 3.11 on
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for line in project["optional-dependencies"][extra]:
        requirement = Requirement(line)
        assert requirement.specifier.contains(version(requirement.name)), line


def test_packages_of_extras_are_known_by_the_names_that_are_imported():
    """So that a missing one is named with its extra."""
    from importlib.metadata import packages_distributions

    from packaging.requirements import Requirement

    tomllib = pytest.importorskip("tomllib")  # from Python 3.11 on
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    owners = {name: [owner.lower() for owner in found] for name, found in packages_distributions().items()}

    def required(extra):
        found = [Requirement(line) for line in stated[extra]]
        inner = [name for each in found if each.name == "metacal" for name in each.extras]
        return {each.name for each in found if each.name != "metacal"}.union(*map(required, inner))

    assert set(EXTRAS) == set(stated) - {"all", "docs", "dev"}
    for extra, packages in EXTRAS.items():
        assert required(extra) == {owner for name in packages for owner in owners[name] if owner in required("all")}


def test_requirements_have_a_lower_bound_and_no_other():
    """So that metacal fits into an environment that exists; constraints.txt says what was tested."""
    tomllib = pytest.importorskip("tomllib")  # from Python 3.11 on
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["requires-python"] == ">=3.10"
    lines = [line for extra in project["optional-dependencies"].values() for line in extra] + project["dependencies"]
    assert [line for line in lines if not re.fullmatch(r"metacal\[[a-z,]+\]|[\w\[\]-]+>=[\d.]+", line)] == []
    required = {line.partition(">=")[0] for line in project["dependencies"]}
    assert required == {"torch", "numpy", "torchmetrics", "scikit-learn"}


def test_what_is_required_is_imported():
    """By some module of the package; what only tests and tools need is an extra."""
    from importlib.metadata import packages_distributions

    from packaging.requirements import Requirement

    tomllib = pytest.importorskip("tomllib")  # from Python 3.11 on
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    required = {Requirement(line).name for line in project["dependencies"]}
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    imported = set(re.findall(r"^\s*(?:import|from) (\w+)", source, re.M))
    used = {owner.lower() for name, owners in packages_distributions().items() if name in imported for owner in owners}
    assert required - used == set()


def test_every_function_is_in_the_reference():
    """One by one: a function with the name of its file would be taken for the file."""
    page = (ROOT / "docs" / "reference" / "functional.md").read_text(encoding="utf-8")
    named = re.findall(r"^::: ([\w.]+)$", page, re.M)
    expected = [f"{getattr(metacal.functional, name).__module__}.{name}" for name in metacal.functional.__all__]
    assert sorted(named) == sorted(expected)
