"""Rows of several files are matched by id, whatever their order and format."""

import pytest
from tests.evaluation.files import write

from metacal.errors import InvalidFileError
from metacal.evaluation import PredictionFile
from metacal.evaluation.paired import align_rows


def said(path, ids):
    table = {"p_a": [0.5] * len(ids), "p_b": [0.5] * len(ids), "label": ["a"] * len(ids)}
    return PredictionFile(write(path, table | {"id": ids} if ids[0] is not None else table))


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_rows_in_another_order(suffix, tmp_path):
    files = [said(tmp_path / "a.parquet", [7, 8, 9]), said(tmp_path / f"b{suffix}", [9, 7, 8])]
    assert [places.tolist() for places in align_rows(files)] == [[0, 1, 2], [2, 0, 1]]


def test_files_without_ids(tmp_path):
    assert align_rows([said(tmp_path / "a.csv", ["x"]), said(tmp_path / "b.csv", [None])]) is None


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["x", "y", "y"], r"b\.csv: id y is there twice; drop one"),
        (["x"], r"b\.csv: has no id y, which another file has"),
        (["x", "y", "z"], r"a\.csv: has no id z, which another file has"),
    ],
)
def test_ids_that_do_not_match(ids, message, tmp_path):
    with pytest.raises(InvalidFileError, match=message):
        align_rows([said(tmp_path / "a.csv", ["x", "y"]), said(tmp_path / "b.csv", ids)])
