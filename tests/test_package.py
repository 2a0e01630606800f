"""The package as a whole: lazy parts, version, licence files, and the README's code as printed."""

import re
from importlib.metadata import version
from pathlib import Path

import pytest
from tests.run_readme import blocks

import metacal

ROOT = Path(__file__).parent.parent


def test_version_is_the_installed_one():
    assert metacal.__version__ == version("metacal")


def test_parts_are_imported_on_first_use():
    assert metacal.metrics.ExpectedCalibrationError is not None
    assert set(dir(metacal)) >= {"functional", "losses", "metrics"}
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        metacal.nothing  # noqa: B018


PRINTED = [
    (page, number, block)
    for page in ("README.md", "docs/quickstart.md", "docs/train.md")
    for number, block in enumerate(blocks(ROOT / page))
]


@pytest.mark.parametrize(("page", "number", "block"), PRINTED, ids=[f"{page}-{number}" for page, number, _ in PRINTED])
def test_code_runs_as_printed(page, number, block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, page, "exec"), {})


def test_torch_is_pinned():
    assert "torch==2.13.0" in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("extra", ["lightning", "transformers", "ray", "tensorboard", "mlflow"])
def test_extras_are_installed_in_the_versions_that_are_claimed(extra):
    import tomllib

    from packaging.requirements import Requirement

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for line in project["optional-dependencies"][extra]:
        requirement = Requirement(line)
        assert requirement.specifier.contains(version(requirement.name)), line


def test_every_function_is_in_the_reference():
    """One by one: a function with the name of its file would be taken for the file."""
    page = (ROOT / "docs" / "reference" / "functional.md").read_text(encoding="utf-8")
    named = re.findall(r"^::: ([\w.]+)$", page, re.M)
    expected = [f"{getattr(metacal.functional, name).__module__}.{name}" for name in metacal.functional.__all__]
    assert sorted(named) == sorted(expected)
