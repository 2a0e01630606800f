"""Bad files: each ends the command with status 2 and one line that names the file, the row or column, and the fix."""

import sys

import pytest
from tests.evaluation.files import BAD_FILES

from metacal.cli import main
from metacal.errors import InvalidFileError
from metacal.evaluation import PredictionFile, read_predictions
from metacal.evaluation.predictions import gather


@pytest.mark.parametrize("case", BAD_FILES)
def test_one_line_and_status_2(case, tmp_path, monkeypatch, capsys):
    make, options, message = BAD_FILES[case]
    monkeypatch.setattr(sys, "argv", ["metacal", "evaluate", str(make(tmp_path)), *options])
    with pytest.raises(SystemExit) as caught:
        main()
    output, errors = capsys.readouterr()
    assert caught.value.code == 2
    assert output == ""
    lines = errors.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    assert lines[0].endswith(".")
    assert message in lines[0]


@pytest.mark.parametrize("case", [case for case, (_, options, _) in BAD_FILES.items() if not options])
def test_the_library_says_the_same(case, tmp_path):
    make, _, message = BAD_FILES[case]
    with pytest.raises(InvalidFileError) as caught:
        gather(PredictionFile(make(tmp_path), top_label=True))
    assert message in str(caught.value)


def test_a_row_far_into_a_large_file_is_named(tmp_path):
    rows = ["0.5,0.5,1"] * 400_000
    rows[345_677] = "0.5,0.6,1"
    path = tmp_path / "large.csv"
    path.write_text("p_0,p_1,label\n" + "\n".join(rows) + "\n")
    with pytest.raises(InvalidFileError, match=r"large\.csv: row 345678: probabilities sum to 1\.1, not 1"):
        read_predictions(path)
