"""``metacal show``: what tables and figures take, and what there is of them."""

import json

from metacal.lab.paper import EXHIBITS


def test_ls_names_every_table_and_figure(metacal):
    status, output, _ = metacal("ls")
    assert status == 0
    assert all(f" {exhibit.name} " in output and exhibit.cost in output for exhibit in EXHIBITS.values())


def test_what_every_row_of_the_main_table_takes(metacal):
    status, output, errors = metacal("show", "main-ece", "--scale", "cpu")
    assert status == 0, errors
    assert "The rest takes roughly" in output


def test_a_name_for_several_and_what_the_rest_takes(metacal):
    status, output, _ = metacal("show", "interleaved", "--scale", "cpu")
    assert status == 0
    assert "Table 13" in output
    assert "Table 14" in output
    assert "The rest takes roughly" in output


def test_tables_and_figures_are_written_as_far_as_they_are(metacal, tmp_path):
    words = ["ablation", "generalisation-gap", "--scale", "smoke", "--store", str(tmp_path / "runs")]
    status, output, errors = metacal("show", *words, "-o", str(tmp_path / "out"))
    assert status == 0, errors
    page = (tmp_path / "out" / "report.html").read_text()
    assert f"{tmp_path / 'out' / 'report.html'}: open it in a browser." in output
    assert "Table 6" in page
    assert "nothing to draw yet" in page
    assert f"metacal run ablation --scale smoke --store {tmp_path / 'runs'}" in page
    assert json.loads((tmp_path / "out" / "ablation.json").read_text())["name"] == "ablation"
    assert (tmp_path / "out" / "generalisation-gap.json").exists()
    assert (tmp_path / "out" / "ablation.md").exists()
    assert json.loads((tmp_path / "out" / "about.json").read_text())["runs"] == []
    assert not (tmp_path / "runs").exists()  # nothing is run
