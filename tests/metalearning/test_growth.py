"""A long training: what is kept does not grow with it, but for a history that is thinned out."""

import gc
import os
from pathlib import Path

import pytest
import torch
from tests.metalearning.models import batches, both_ways, calibrator, make_net, sgd

MOST_RECORDS = 64


def bytes_of_tensors():
    """Of all tensors that Python can reach."""
    gc.collect()
    return sum(each.untyped_storage().nbytes() for each in gc.get_objects() if type(each) is torch.Tensor)


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@both_ways
def test_twenty_thousand_steps_without_growth(through):
    net = make_net()
    optimizer, training = sgd(net, lr=0.01, momentum=0.9), batches(20)
    meta = calibrator(
        net, optimizer=optimizer, meta=batches(20, n=10, seed=500), through=through, every=4, memory=64, scaled=True
    )
    meta._history.most = MOST_RECORDS
    found = []
    for step in range(20_001):
        if step in (5_000, 20_000):
            found.append((bytes_of_tensors(), resident_bytes(), len(meta.history), len(str(meta.state_dict()))))
        loss = meta.step(*training[step % len(training)])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    (tensors, resident, _, state), (tensors_later, resident_later, records, state_later) = found
    assert meta._task.meta_steps == 5_001
    assert records < MOST_RECORDS
    row = 64 + 8 * len(meta.history[0])
    assert tensors_later <= tensors + MOST_RECORDS * row
    assert resident_later <= resident + 2**22
    assert state_later <= 1.5 * state
