"""The predictions that ship with the package are the real ones."""

import numpy as np
import pytest
import torch

from metacal.evaluation.predictions import EXAMPLE, example_predictions


def test_shapes_and_dtypes():
    probs, targets = example_predictions()
    assert probs.shape == (10_000, 10) and probs.dtype == torch.float32
    assert targets.shape == (10_000,) and targets.dtype == torch.int64
    assert targets.bincount().tolist() == [1000] * 10
    torch.testing.assert_close(probs.sum(1), torch.ones(10_000), rtol=0.0, atol=1e-4)


@pytest.mark.data
def test_equal_to_the_originals(data_folder):
    probs, targets = example_predictions()
    with np.load(data_folder / "predictions" / EXAMPLE, allow_pickle=False) as arrays:
        np.testing.assert_array_equal(probs.numpy(), arrays["predictions"])
        np.testing.assert_array_equal(targets.numpy(), arrays["ground_truth"].reshape(-1))
