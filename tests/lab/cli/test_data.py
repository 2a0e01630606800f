"""``metacal data`` as a shell meets it."""

import pytest
from tests.lab.data import files
from tests.lab.data.test_fetch import server  # noqa: F401
from typer.testing import CliRunner

from metacal.cli.app import app
from metacal.lab.data.files import Source
from metacal.lab.data.sources import SOURCES


@pytest.fixture
def data(metacal):
    """A command on data: ``(status, output, errors)``."""
    return lambda *words: metacal("data", *words)


def test_ls_shows_what_is_there_and_how_to_get_the_rest(data, tmp_path):
    files.write_tar(tmp_path / "cifar-100-binary.subset.tar.gz", files.cifar100_files())
    status, output, errors = data("ls", "--data-dir", tmp_path)
    assert status == 0
    assert errors == ""
    assert f"Data folder: {tmp_path}" in output
    lines = {line.split()[1]: line for line in output.splitlines() if line.startswith("│")}
    assert "built in" in lines["digits"]
    assert "subset" in lines["cifar100"]
    assert "cifar-100-binary.subset.tar.gz" in lines["cifar100"]
    assert "not here" in lines["cifar10"]
    assert "metacal data fetch cifar10" in lines["cifar10"]


def test_the_variable_names_the_folder(data, tmp_path, monkeypatch):
    monkeypatch.setenv("METACAL_DATA", str(tmp_path))
    assert f"Data folder: {tmp_path}" in data("ls")[1]


def test_fetch_then_check_then_damage(data, tmp_path, server):  # noqa: F811
    url, _ = server
    folder = tmp_path / "data"
    status, output, errors = data("fetch", "cifar10", "digits", "--data-dir", folder, "--mirror", url)
    assert status == 0
    assert output.split() == [str(folder / "cifar-10-binary.tar.gz")]
    assert "digits is built in" in errors
    status, output, _ = data("check", "cifar10", "--data-dir", folder)
    assert status == 0
    assert "as published" in output
    assert "read without errors" in output
    (folder / "cifar-10-binary.tar.gz").write_bytes(b"rubbish")
    status, output, errors = data("check", "cifar10", "--data-dir", folder)
    assert status == 2
    assert output == ""
    assert errors.count("\n") == 1
    assert f"expected {SOURCES['cifar10'].downloads[0].hash}, found md5:" in errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fetch", "cifar01"), "nearest: cifar10"),
        (("check", "svnh"), "nearest: svhn"),
        (("check", "svhn"), "metacal data fetch svhn"),
        (("fetch", "cifar10", "nothing-such"), "got 'nothing-such'"),
    ],
)
def test_errors_are_one_line_and_status_2(data, tmp_path, monkeypatch, arguments, message):
    monkeypatch.setenv("METACAL_DATA", str(tmp_path))
    status, output, errors = data(*arguments)
    assert status == 2
    assert output == ""
    assert message in errors
    assert errors.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_source_without_an_address_says_where_its_files_go(data, tmp_path, monkeypatch):
    own = Source("own", "measured here", load=lambda folder: None, patterns=(("own.bin",),), looked_for="own.bin")
    monkeypatch.setitem(SOURCES, "own", own)
    monkeypatch.setenv("METACAL_DATA", str(tmp_path))
    status, output, errors = data("ls")
    assert status == 0
    assert errors == ""
    assert "not here" in output
    assert "put its files" in output
    status, output, errors = data("fetch", "cifar10", "own")
    assert (status, output) == (2, "")
    assert errors.count("\n") == 1
    assert f"own cannot be fetched: put its files into the data folder, {tmp_path}." in errors
    status, output, errors = data("check", "own")
    assert status == 2
    assert f"to get it: put its files into {tmp_path}" in errors
    assert "data fetch" not in errors


@pytest.mark.parametrize("verb", ["ls", "fetch", "check"])
def test_help_has_an_example(verb):
    run = CliRunner().invoke(app, ["data", verb, "--help"])
    assert run.exit_code == 0
    assert f"Example: metacal data {verb}" in run.stdout
    assert "--data-dir" in run.stdout
