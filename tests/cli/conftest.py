"""The command line, called in this process."""

import sys

import pytest

from metacal.cli import main


@pytest.fixture
def metacal(monkeypatch, capsys):
    """Run the command in this process, on a wide terminal: ``(status, output, errors)``."""
    monkeypatch.setenv("COLUMNS", "300")

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["metacal", *map(str, words)])
        with pytest.raises(SystemExit) as left:
            main()
        output, errors = capsys.readouterr()
        return left.value.code, output, errors.lstrip("\n")  # rich < 14.3 ends a progress that is off with a line

    return run
