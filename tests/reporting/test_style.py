"""Figures are written whole, the same bytes each time, or the error names the file."""

import os
import stat

import pytest

from metacal.errors import StorageError
from metacal.reporting.style import FORMATS, figure_bytes, new_figure, save_figure


def drawn():
    figure = new_figure(2.0, 1.0)
    figure.subplots().set_title("猫 $x$")
    return figure


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_figure_is_replaced_whole(tmp_path, suffix):
    path = tmp_path / "new" / f"a.b.{suffix}"
    save_figure(drawn(), path)
    path.chmod(0o600)
    save_figure(drawn(), path)
    assert path.read_bytes() == figure_bytes(drawn(), suffix) and os.listdir(path.parent) == [path.name]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_place_that_is_no_folder_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"file/a\.png could not be written: "):
        save_figure(drawn(), tmp_path / "file" / "a.png")
