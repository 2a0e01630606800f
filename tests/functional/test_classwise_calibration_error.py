"""Classwise ECE against a loop: layouts, norms, thresholds, and classes that never occur."""

import pytest
import torch
from tests import oracles
from tests.functional import samples

from metacal.functional import classwise_calibration_error

NORMS = ["l1", "l2", "max"]


@pytest.mark.parametrize("dtype", samples.DTYPES)
@pytest.mark.parametrize("inputs", ["logits", "probs"])
@pytest.mark.parametrize("layout", samples.LAYOUTS)
def test_equals_the_loop(layout, inputs, dtype):
    for ignore in (False, True):
        keywords = samples.draw(layout, inputs=inputs, dtype=dtype, ignore=ignore)
        _, _, columns = samples.read(layout, keywords)
        for norm in NORMS:
            ours = classwise_calibration_error(**keywords, norm=norm).item()
            expected = sum(oracles.ece(*column, norm=norm) for column in columns) / len(columns)
            assert ours == pytest.approx(expected, abs=samples.tolerance(keywords)), (norm, ignore)


@pytest.mark.parametrize("num_bins", [1, 2, 10, 15, 100])
@pytest.mark.parametrize("threshold", [None, 0.0, 0.1, 0.6])
def test_thresholds_and_bins(num_bins, threshold):
    keywords = samples.draw("multiclass", n=60, num_classes=6, inputs="probs")
    probs, targets = keywords["probs"].numpy(), keywords["targets"].numpy()
    ours = classwise_calibration_error(**keywords, num_bins=num_bins, threshold=threshold).item()
    assert ours == pytest.approx(oracles.classwise_ece(probs, targets, num_bins, threshold=threshold), abs=1e-9)


def test_a_class_left_empty_by_the_threshold_is_left_out_of_the_mean():
    probs = torch.tensor([[0.8, 0.15, 0.05], [0.6, 0.35, 0.05]])
    value = classwise_calibration_error(probs=probs, targets=torch.tensor([0, 1]), threshold=0.1, num_bins=1).item()
    assert value == pytest.approx((abs(0.7 - 0.5) + abs(0.25 - 0.5)) / 2, abs=1e-7)


@pytest.mark.parametrize("absent", [0, 2, 4])
def test_classes_absent_from_the_labels_count(absent):
    keywords = samples.draw("multiclass", n=80, num_classes=5, inputs="probs")
    targets = torch.where(keywords["targets"] == absent, 1 if absent != 1 else 0, keywords["targets"])
    ours = classwise_calibration_error(probs=keywords["probs"], targets=targets).item()
    assert ours == pytest.approx(oracles.classwise_ece(keywords["probs"].numpy(), targets.numpy()), abs=1e-9)


def test_one_label_for_all_still_averages_over_every_class():
    probs = torch.tensor([[0.5, 0.25, 0.25]]).repeat(8, 1)
    value = classwise_calibration_error(probs=probs, targets=torch.zeros(8, dtype=torch.int64)).item()
    assert value == pytest.approx((0.5 + 0.25 + 0.25) / 3, abs=1e-9)
