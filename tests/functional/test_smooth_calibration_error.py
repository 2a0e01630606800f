"""SmECE against direct kernel sums over mirrored Gaussians."""

import pytest
import torch
from tests import oracles
from tests.functional import samples

from metacal.functional import smooth_calibration_error

SETS = {
    "spread": ([0.05, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95] * 4, [0, 0, 0, 1, 1, 1, 1] * 4),
    "too sure": ([0.9, 0.95, 0.97, 0.99] * 6, [1, 0, 1, 0] * 6),
    "at the ends": ([0.0, 1.0, 0.0, 1.0, 0.5] * 4, [0, 1, 1, 0, 1] * 4),
    "one sample": ([0.3], [1]),
    "nearly calibrated": ([0.25] * 4 + [0.75] * 4, [1, 0, 0, 0, 1, 1, 1, 0]),
    "wrong all over": ([0.1, 0.9] * 10, [1, 0] * 10),
}


@pytest.mark.parametrize("name", SETS)
def test_equals_the_loop(name):
    probs, targets = torch.tensor(SETS[name][0]), torch.tensor(SETS[name][1])
    expected = oracles.smooth_ece(probs.numpy(), targets.numpy(), points=2000)
    ours = smooth_calibration_error(probs=probs, targets=targets).item()
    assert ours == pytest.approx(expected, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize(
    ("layout", "inputs", "ignore"),
    [
        ("multiclass", "logits", False),
        ("segmentation", "probs", True),
        ("binary", "logits", True),
        ("multilabel", "probs", False),
    ],
)
def test_equals_the_loop_in_every_layout(layout, inputs, ignore):
    keywords = samples.draw(layout, n=12, inputs=inputs, ignore=ignore)
    confidences, correct, _ = samples.read(layout, keywords)
    expected = oracles.smooth_ece(confidences, correct, points=1000)
    assert smooth_calibration_error(**keywords).item() == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_narrow_dtypes_are_widened():
    keywords = samples.draw("multiclass", n=200, inputs="probs", dtype=torch.float16)
    wide = {**keywords, "probs": keywords["probs"].float()}
    assert torch.equal(smooth_calibration_error(**keywords), smooth_calibration_error(**wide, validate=False))


def test_calibrated_data_are_near_0_and_fall_with_n():
    errors = []
    for n in (100, 10_000, 1_000_000):
        generator = torch.Generator().manual_seed(0)
        probs = torch.rand(n, generator=generator)
        targets = torch.bernoulli(probs, generator=generator).long()
        errors.append(smooth_calibration_error(probs=probs, targets=targets).item())
    assert errors[0] > errors[1] > errors[2] and errors[2] < 0.005
