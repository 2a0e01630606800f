"""Every example runs from the command line as printed; --quick takes a few steps of one seed."""

import json
import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
SCRIPTS = sorted(path for path in EXAMPLES.glob("*.py") if path.stem != "comparison")


def test_there_is_one_for_each_trainer():
    assert [path.stem for path in SCRIPTS] == [
        "accelerate_loop",
        "fabric_loop",
        "fine_tune_head",
        "lightning_callback",
        "pytorch_loop",
        "sklearn_estimator",
        "transformers_trainer",
    ]


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_examples_end_with_a_table(path, monkeypatch, capsys, tmp_path):
    """In this process: importing torch and the trainers anew for each would take most of the time."""
    monkeypatch.setattr(sys, "argv", [str(path), "--quick", "--json", str(tmp_path / "found.json")])
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    runpy.run_path(str(path), run_name="__main__")
    printed = capsys.readouterr().out
    assert "accuracy %" in printed and "ECE %" in printed and "(1 seed)" in printed
    written = (tmp_path / "found.json").read_text()
    about = json.loads(written)["about"]
    assert written.count('"ece"') >= 2 and about["seeds"] == [0] and about["wall_seconds"] > 0 and about["torch"]
