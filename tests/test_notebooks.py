"""The notebooks run from top to bottom, and are kept without their output."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parent.parent / "examples").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_it_runs(path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # of the kernel: small models, beside the other tests
    notebook = nbformat.read(path, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells)
    NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
    assert any(cell.get("outputs") for cell in notebook.cells)
