"""Nothing is learned before a model over-fits: before it predicts training samples better than held-out ones."""

import pytest
import torch
from tests.metalearning.models import K, batch, calibrator, make_net, same, state_of
from torch.nn.functional import cross_entropy

from metacal import HierarchicalLabelSmoothing


def labelled_by(net, x, *, rightly):
    """Labels that a model gives, or the ones that it finds least probable."""
    with torch.no_grad():
        logits = net(x)
    return logits.argmax(1) if rightly else logits.argmin(1)


@pytest.mark.parametrize("through", ["head", "model"])
@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("overfits", [True, False])
def test_a_model_that_does_not_over_fit_is_left_alone(through, waits, overfits):
    net = make_net(norm=False, dropout=0.0)
    x, x_meta = batch(12, 1)[0], batch(30, 2)[0]
    y, y_meta = labelled_by(net, x, rightly=overfits), labelled_by(net, x_meta, rightly=not overfits)
    meta = calibrator(net, HierarchicalLabelSmoothing(K), meta=[(x_meta, y_meta)], through=through, waits=waits)
    before = state_of(meta.hyperparameters)
    meta.step(x, y)
    assert same(state_of(meta.hyperparameters), before) == (waits and not overfits)
    assert meta.skipped == 0 and len(meta.history) == 1, "it is a meta step all the same"


@pytest.mark.parametrize("through", ["head", "model"])
@pytest.mark.parametrize("parts", [1, 2])
def test_the_gap_is_that_of_plain_likelihoods(through, parts):
    net = make_net(norm=False, dropout=0.0).double()
    (x, y), (x_meta, y_meta) = batch(12, 1, dtype=torch.float64), batch(10, 2, dtype=torch.float64)
    meta = calibrator(net, HierarchicalLabelSmoothing(K), meta=[(x_meta, y_meta)], through=through, waits=True)
    rows = [(x, y)] if parts == 1 else [(x[:5], y[:5]), (x[5:], y[5:])]
    given = [(meta._path.run(part)[0], labels) for part, labels in rows]
    found = meta._path.hypergradient(meta._task, given, (x_meta, y_meta))
    expected = cross_entropy(net(x_meta), y_meta) - cross_entropy(net(x), y)
    # Through the model the training loss is the mean of two points on either side: exact up to the move's square.
    torch.testing.assert_close(found.gap, expected.detach(), rtol=1e-8, atol=1e-8)
