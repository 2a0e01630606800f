"""Histogram binning by hand, isotonic regression against scikit-learn."""

import itertools

import numpy as np
import pytest
import torch
from sklearn.isotonic import IsotonicRegression
from tests.posthoc.samples import drawn

from metacal.posthoc import (
    HistogramBinning,
    IsotonicCalibration,
)


@pytest.mark.parametrize("binning", ["equal_mass", "equal_width"])
def test_histogram_binning_by_hand(binning):
    logits, targets = drawn(n=900, num_classes=2)
    probs = torch.softmax(logits, 1)[:, 1].numpy()
    y = targets.numpy()
    binned = HistogramBinning(num_bins=6, binning=binning).fit(probs=probs, targets=y)
    edges = np.linspace(0, 1, 7) if binning == "equal_width" else np.r_[0.0, np.sort(probs)[149:-1:150], 1.0]
    for low, high in itertools.pairwise(edges):
        inside = (probs > low) & (probs <= high)
        assert inside.any()
        said = binned.predict_proba(probs=probs[inside])
        np.testing.assert_allclose(said, y[inside].mean(), atol=0.02)  # both classes have bins of their own


def test_an_empty_bin_keeps_its_middle_and_a_row_of_zeros_its_probabilities():
    probs = np.array([[0.05, 0.95]] * 10 + [[0.95, 0.05]] * 10)
    binned = HistogramBinning(num_bins=10, binning="equal_width").fit(probs=probs, targets=np.arange(20) % 2)
    np.testing.assert_allclose(binned.predict_proba(probs=np.array([[0.45, 0.55]])), [[0.45, 0.55]])
    one = HistogramBinning(num_bins=1)
    with pytest.warns(UserWarning, match="All 4 targets"):
        one.fit(probs=np.full((4, 3), 1 / 3), targets=np.zeros(4, int))
    np.testing.assert_allclose(one.predict_proba(probs=np.full((1, 3), 1 / 3)), [[1.0, 0.0, 0.0]])


def test_isotonic_is_scikit_learns():
    logits, targets = drawn(n=700, num_classes=3)
    probs, y = torch.softmax(logits, 1).numpy(), targets.numpy()
    fresh = torch.softmax(drawn(n=200, num_classes=3, seed=1)[0] * 3, 1).numpy()
    expected = np.stack(
        [
            IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(probs[:, k], y == k).predict(fresh[:, k])
            for k in range(3)
        ],
        axis=1,
    )
    said = IsotonicCalibration().fit(probs=probs, targets=y).predict_proba(probs=fresh)
    np.testing.assert_allclose(said, expected / expected.sum(1, keepdims=True), atol=1e-9)
