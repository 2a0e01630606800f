"""``metacal ls``."""

import json

from metacal.lab.paper import EXHIBITS


def test_ls_names_every_table_and_figure(metacal, tmp_path):
    status, output, _ = metacal("ls", "--json", str(tmp_path / "list.json"))
    entries = json.loads((tmp_path / "list.json").read_text())
    assert status == 0
    assert all(entry["name"] in output for entry in entries)
    assert {entry["name"] for entry in entries} == set(EXHIBITS)
