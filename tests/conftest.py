"""Shared fixtures: golden vectors, real data where it is to be had, and one thread so that runs repeat."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

torch.set_num_threads(1)

GOLDEN = Path(__file__).parent / "golden" / "reference.npz"


@pytest.fixture(scope="session")
def golden() -> dict[str, np.ndarray]:
    """Inputs and outputs of the published functions, as ``group/case/name``."""
    with np.load(GOLDEN, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Real data, found through METACAL_TEST_DATA; the test is skipped without it."""
    folder = os.environ.get("METACAL_TEST_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("METACAL_TEST_DATA does not name a folder with the test data")
    return Path(folder)
