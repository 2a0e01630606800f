"""Mean, sum or nothing."""

import pytest
import torch

from metacal.errors import InvalidValueError
from metacal.functional.sample_losses import reduce_losses


@pytest.mark.parametrize(("reduction", "expected"), [("mean", 2.0), ("sum", 6.0), ("none", [1.0, 2.0, 3.0])])
def test_reductions(reduction, expected):
    assert reduce_losses(torch.tensor([1.0, 2.0, 3.0]), reduction).tolist() == expected


@pytest.mark.parametrize("reduction", ["avg", None, True])
def test_unknown_reduction(reduction):
    with pytest.raises(InvalidValueError, match=f"`reduction` must be one of 'mean', 'sum', 'none', got {reduction!r}"):
        reduce_losses(torch.zeros(1), reduction)
