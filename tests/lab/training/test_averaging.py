"""Averaged weights: against averages by hand, statistics of batch normalisation included; and what a run keeps."""

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric
from torch import nn

from metacal.lab.training import Checkpoints, RunFolder, build_spec, run
from metacal.lab.training.averaging import AveragedWeights

FABRIC = Fabric(accelerator="cpu", devices=1)
BATCHES = [(torch.randn(8, 3, generator=torch.Generator().manual_seed(n)), None) for n in range(4)]


def trained(model, seed):
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator))
    return [parameter.detach().numpy().copy() for parameter in model.parameters()]


def weights_of(average):
    return [parameter.detach().numpy() for parameter in average.model.module.parameters()]


def test_an_exponential_average_over_steps():
    model = nn.Linear(3, 2)
    average = AveragedWeights(model, "ema", decay=0.9, epochs=10)
    expected = None
    for seed in range(6):
        weights = trained(model, seed)
        average.after_step()
        pairs = zip(expected or weights, weights)
        expected = weights if expected is None else [0.9 * old + 0.1 * new for old, new in pairs]
    average.after_epoch(0, BATCHES, FABRIC)
    for found, wanted in zip(weights_of(average), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_the_mean_over_the_last_quarter_of_the_epochs():
    model = nn.Linear(3, 2)
    average = AveragedWeights(model, "swa", decay=0.9, epochs=8)
    seen = []
    for epoch in range(8):
        seen.append(trained(model, epoch))
        average.after_step()
        average.after_epoch(epoch, BATCHES, FABRIC)
        assert average.begins_after(epoch) == (epoch == 6)
        taken = seen[6:] if epoch >= 6 else seen[-1:]
        for found, *wanted in zip(weights_of(average), *taken, strict=True):
            np.testing.assert_allclose(found, np.mean(wanted, axis=0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["ema", "swa"])
def test_statistics_of_batch_normalisation_are_those_of_the_averaged_weights(kind):
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    average = AveragedWeights(model, kind, decay=0.9, epochs=2)
    for epoch in range(2):
        trained(model, epoch)
        average.after_step()
        average.after_epoch(epoch, BATCHES, FABRIC)
    linear, norm = average.model.module
    outputs = [linear(x).detach().numpy() for x, _ in BATCHES]
    np.testing.assert_allclose(norm.running_mean, np.mean([each.mean(0) for each in outputs], axis=0), rtol=1e-4)
    np.testing.assert_allclose(norm.running_var, np.mean([each.var(0, ddof=1) for each in outputs], axis=0), rtol=1e-4)
    assert model[1].running_mean.tolist() == [0.0, 0.0]


def test_a_run_scores_the_averaged_weights_and_none_of_before(tmp_path):
    small = {"dataset": "digits", "train_size": 128, "batch_size": 32, "epochs": 8, "milestones": [7], "finish": False}
    folders = {kind: RunFolder(tmp_path / str(kind)) for kind in (None, "ema", "swa")}
    for kind, folder in folders.items():
        run(build_spec({**small, "average": kind, "ema_decay": 0.8}), folder)
    plain, ema, swa = (folder.read_history() for folder in folders.values())
    assert [row["train_loss"] for row in plain] == [row["train_loss"] for row in ema]  # the training is the same
    assert [row["val_loss"] for row in plain] != [row["val_loss"] for row in ema]
    assert [row["val_loss"] for row in plain[:6]] == [row["val_loss"] for row in swa[:6]]
    last, best = (getattr(Checkpoints(folders["swa"].checkpoints), f"load_{which}")()[0] for which in ("last", "best"))
    assert best["epoch"] in (7, 8)
    assert int(last["average"]["n_averaged"]) == 2
    if best["epoch"] == 8:
        for name, value in best["model"].items():
            assert torch.equal(value, last["average"][f"module.{name}"])
