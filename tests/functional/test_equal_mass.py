"""Sorting samples by confidence: the fast way equals the general one."""

import pytest
import torch

from metacal.functional.equal_mass import SortedSamples, sort_by_confidence


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("odd", [None, -0.0, -0.5, 2.0, 1e30, torch.inf, torch.nan, -torch.nan])
def test_any_confidences_are_sorted_with_their_answers(dtype, odd):
    generator = torch.Generator().manual_seed(0)
    confidences = (torch.randint(0, 40, (300,), generator=generator) / 20).to(dtype)
    confidences[:4] = torch.tensor([0.0, 1.0, torch.finfo(dtype).tiny, 2.0 - 2.0**-20], dtype=dtype)
    confidences[confidences == 2.0] = 0.5
    if odd is not None:
        confidences[7] = odd
    correct = torch.rand(300, generator=generator) < 0.5
    ordered, right = sort_by_confidence(confidences, correct)
    assert torch.equal(ordered.nan_to_num(nan=3e30), confidences.sort().values.nan_to_num(nan=3e30))
    assert right.dtype is torch.bool and ordered.dtype is dtype
    for value in confidences.unique():  # of NaN none is equal
        assert right[ordered == value].sum() == correct[confidences == value].sum(), value


def test_no_samples_and_samples_with_a_gradient_are_sorted():
    nothing = sort_by_confidence(torch.zeros(0), torch.zeros(0, dtype=torch.bool))
    assert [len(each) for each in nothing] == [0, 0]
    samples = SortedSamples(torch.tensor([0.9, 0.2, 0.4], requires_grad=True), torch.tensor([True, False, True]))
    assert samples.confidences.tolist() == pytest.approx([0.2, 0.4, 0.9])
    assert samples.correct_before.tolist() == [0, 0, 1, 2]
