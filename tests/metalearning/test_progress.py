"""What the summary says at the end: what keeps meta-calibration from helping, and what to do."""

import pytest
import torch
from tests.metalearning.models import K, batch, calibrator, make_net
from torch.utils.data import DataLoader, TensorDataset

from metacal import HierarchicalLabelSmoothing, LearnableTemperature, LogitPenalty


def verdict(meta):
    return meta.summary().split("Verdict: ")[1]


@pytest.mark.parametrize("samples", [4 * K, 5 * K])
@pytest.mark.parametrize("source", ["loader", "list"])
def test_too_few_held_out_samples_for_the_classes(samples, source):
    held_out = batch(samples, 2)
    meta = calibrator(
        meta=DataLoader(TensorDataset(*held_out), batch_size=samples) if source == "loader" else [held_out]
    )
    meta.step(*batch(12, 1))
    is_few = samples < 5 * K
    assert (f"{samples} held-out samples are few for {K} classes: hold out at least {5 * K}" in verdict(meta)) == is_few


def test_labels_that_are_not_smoothed():
    meta = calibrator(hyperparameters=HierarchicalLabelSmoothing(K, start=0.0, threshold=0.3))
    assert "no meta step" in verdict(meta)
    meta.hyperparameters.base.data.zero_()
    meta.step(*batch(12, 1))
    assert "labels are not smoothed now" in verdict(meta)
    assert "a temperature give" in verdict(meta)
    meta.hyperparameters.base.data.fill_(0.4)
    assert "not smoothed" not in verdict(meta)
    other = calibrator(hyperparameters=LearnableTemperature())
    other.step(*batch(12, 1))
    assert "not smoothed" not in verdict(other), "it has no strength"


def test_a_model_that_does_not_over_fit():
    net = make_net(norm=False, dropout=0.0)
    x, _ = batch(40, 2)
    for labels, is_off in ((net(x).argmax(1), True), (net(x).argmin(1), False)):
        meta = calibrator(net, LogitPenalty(K), meta=[(x, labels)])
        meta.step(*batch(12, 1))
        assert "no gradient reaches" not in verdict(meta)
        assert "there is no penalty" not in verdict(meta), "the first meta step measures"
        meta.step(*batch(12, 1))
        assert ("there is no penalty, expect what" in verdict(meta)) == is_off
        assert "no gradient reaches" not in verdict(meta)


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_a_finish_that_finds_nothing(scale):
    net = make_net(dropout=0.0)
    with torch.no_grad():
        net.fc.weight.mul_(scale)
    x, _ = batch(200, 3)
    with torch.no_grad():
        calibrated = torch.softmax(net.eval()(x) / scale, dim=1)
    y = torch.multinomial(calibrated, 1, generator=torch.Generator().manual_seed(0)).squeeze(1)
    meta = calibrator(net, meta=[(x, y)])
    meta.step(*batch(12, 1))
    meta.finish(fold=False)
    assert ("No temperature clearly improves the held-out samples" in verdict(meta)) == (scale == 1.0)
