"""Histogram binning by hand, isotonic regression against scikit-learn."""

import itertools

import numpy as np
import pytest
import safetensors.numpy
import torch
from sklearn.isotonic import IsotonicRegression
from tests.posthoc.samples import drawn

from metacal.posthoc import BetaCalibration, Calibrator, HistogramBinning, IsotonicCalibration


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
    np.testing.assert_allclose(
        binned.predict_proba(probs=np.array([[0.45, 0.55]])), 20 / 21 * np.array([[0.45, 0.55]]) + 0.5 / 21
    )
    one = HistogramBinning(num_bins=1)
    with pytest.warns(UserWarning, match="All 4 targets"):
        one.fit(probs=np.full((4, 3), 1 / 3), targets=np.zeros(4, int))
    np.testing.assert_allclose(one.predict_proba(probs=np.full((1, 3), 1 / 3)), [[0.8 + 0.2 / 3, 0.2 / 3, 0.2 / 3]])


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
    np.testing.assert_allclose(said, 700 / 701 * expected / expected.sum(1, keepdims=True) + 1 / 701 / 3, atol=1e-9)


@pytest.mark.parametrize("kind", [HistogramBinning, IsotonicCalibration, BetaCalibration])
def test_no_probability_is_0(kind, tmp_path):
    """A class that never came gets its share of the uniform distribution; a file of before this was kept gets none."""
    logits, targets = drawn(n=99, num_classes=4)
    probs = torch.softmax(5.0 * logits, 1)
    calibrator = kind().fit(probs, targets.clamp(max=2))
    certain = torch.eye(4, dtype=torch.float64)
    said = calibrator.predict_proba(certain)
    assert calibrator.uniform_share_ == 0.01
    assert said.min() == pytest.approx(0.01 / 4, rel=1e-3)
    calibrator.save(tmp_path / "new.safetensors")
    with safetensors.safe_open(tmp_path / "new.safetensors", framework="numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys() if name != "uniform_share"}  # noqa: SIM118
        safetensors.numpy.save_file(arrays, tmp_path / "old.safetensors", metadata=file.metadata())
    old = Calibrator.load(tmp_path / "old.safetensors")
    torch.testing.assert_close(0.99 * old.predict_proba(certain) + 0.01 / 4, said)
