"""Where figures come from: the processor by its name, the commit, and whether the source is still that commit's."""

import subprocess
from pathlib import Path

import pytest

from metacal.lab.training import environment


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository with a package in it that counts as ours."""
    package = tmp_path / "src" / "package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (tmp_path / "results.txt").write_text("1")
    author = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    for words in (("init", "--quiet"), ("add", "."), (*author, "commit", "--quiet", "-m", "All")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    monkeypatch.setattr(environment, "PACKAGE", package)
    return tmp_path


def test_changes_to_the_source_are_said(checkout):
    clean = environment.commit()
    assert len(clean) == 12
    assert int(clean, 16)
    (checkout / "results.txt").write_text("2")
    assert environment.commit() == clean
    assert environment.commit(checkout) == f"{clean} with changes"
    (checkout / "src" / "package" / "__init__.py").write_text("1")
    assert environment.commit() == f"{clean} with changes"


def test_there_is_no_commit_of_what_is_merely_installed_in_a_project(checkout, monkeypatch):
    installed = checkout / "site-packages" / "package"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    monkeypatch.setattr(environment, "PACKAGE", installed)
    assert environment.commit() is None


def test_what_is_kept_with_figures():
    known = environment.provenance("metacal train")
    assert known["command"] == "metacal train"
    assert known["date"].endswith("UTC")
    assert known["commit"]
    assert {"torch", "metacal", "python", "processor", "cores"} <= known.keys()
    assert "started" not in known


def test_the_processor_has_a_name():
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    found = environment.environment()
    assert found["processor"] == environment.processor()
    assert not names or names[0].endswith(found["processor"])
