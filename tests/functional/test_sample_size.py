"""The noise floor against simulated calibrated models, and when a warning is due."""

import pytest
import torch

from metacal.functional import (
    calibration_error,
    equal_width_statistics,
    noise_floor,
    sample_size_warning,
)


@pytest.mark.parametrize(("n", "num_bins", "spread"), [(1500, 15, 0.8), (5000, 10, 0.8), (400, 1, 0.0)])
def test_floor_is_the_mean_error_of_calibrated_models(n, num_bins, spread):
    generator = torch.Generator().manual_seed(0)
    confidences = 0.1 + spread * torch.rand(n, generator=generator)
    errors, floors = [], []
    for _ in range(400):
        correct = torch.bernoulli(confidences, generator=generator).bool()
        statistics = equal_width_statistics(confidences, correct, num_bins)
        errors.append(calibration_error(statistics))
        floors.append(noise_floor(statistics))
    assert len(set(floors[0].reshape(1).tolist() + floors[-1].reshape(1).tolist())) == 1  # correctness plays no part
    # Within 6 %: one bin's error alone scatters by 76 % of its mean, a twentieth of that over 400 draws.
    assert floors[0].item() == pytest.approx(torch.stack(errors).mean().item(), rel=0.06 if num_bins > 1 else 0.12)


def test_known_floor():
    statistics = equal_width_statistics(torch.full((100,), 0.5), torch.arange(100) < 90)
    assert noise_floor(statistics).item() == pytest.approx((2 * 0.25 / (torch.pi * 100)) ** 0.5, abs=1e-12)


def test_certain_predictions_have_no_floor():
    statistics = equal_width_statistics(torch.tensor([0.0, 1.0, 1.0]), torch.tensor([False, True, True]))
    assert noise_floor(statistics).item() == 0.0


@pytest.mark.parametrize(("n", "is_warned"), [(1, True), (149, True), (150, False), (10_000, False)])
def test_warning_below_ten_samples_a_bin(n, is_warned):
    message = sample_size_warning(equal_width_statistics(torch.full((n,), 0.5), torch.arange(n) % 2 == 0, 15))
    if is_warned:
        floor = (0.5 / (torch.pi * n)) ** 0.5
        assert message.startswith(f"{n} samples are too few for 15 bins") and message.endswith(f"{floor:.3f}.")
    else:
        assert message is None
