"""Two processes that saw uneven halves, or one of them nothing, compute what one process computes."""

import contextlib
import warnings

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from tests.functional import samples
from tests.processes import run_together

from metacal import metrics as M

METRICS = {
    "expected": lambda: M.ExpectedCalibrationError(num_classes=4),
    "classwise": lambda: M.ClasswiseCalibrationError(num_classes=4),
    "debiased, equal width": lambda: M.DebiasedCalibrationError(num_classes=4, binning="equal_width"),
    "brier": lambda: M.BrierScore(num_classes=4),
    "nll": lambda: M.NegativeLogLikelihood(num_classes=4),
    "adaptive": lambda: M.AdaptiveCalibrationError(num_classes=4),
    "debiased": lambda: M.DebiasedCalibrationError(num_classes=4),
    "sweep": lambda: M.SweepCalibrationError(num_classes=4),
    "smooth": lambda: M.SmoothCalibrationError(num_classes=4),
}
TO_THE_BIT = {"expected", "classwise", "debiased, equal width", "adaptive", "debiased", "sweep"}
SIZE = 300
FIRST_SHARES = [150, 37, SIZE]  # of the first process; with the last, the second has nothing at all


def batch():
    return samples.draw("multiclass", n=SIZE, inputs="probs").values()


def work(rank, folder):
    """One of two processes: for each split, update with a share in two batches, compute, and write the values down."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    probs, targets = batch()
    for first_share in FIRST_SHARES:
        mine = torch.arange(SIZE)[:first_share] if rank == 0 else torch.arange(SIZE)[first_share:]
        values = {}
        for name, make in METRICS.items():
            metric = make()
            for part in torch.tensor_split(mine, 2) if len(mine) else ():
                metric.update(probs[part], targets[part])
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "The ``compute`` method of metric")  # a rank that saw nothing
                values[name] = metric.compute()
        torch.save(values, f"{folder}/values-{first_share}-{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Both processes' values; a split that fails ends the processes and leaves no file."""
    folder = tmp_path_factory.mktemp("ranks")
    with contextlib.suppress(mp.ProcessRaisedException, mp.ProcessExitedException):
        run_together(work, str(folder), processes=2)
    return folder


@pytest.mark.parametrize("first_share", FIRST_SHARES)
@pytest.mark.parametrize("rank", [0, 1])
def test_two_processes_compute_what_one_does(folder, first_share, rank):
    file = folder / f"values-{first_share}-{rank}.pt"
    assert file.exists(), "the processes failed on this split"
    values = torch.load(file, weights_only=True)
    for name, make in METRICS.items():
        expected = make()(*batch())
        if name in TO_THE_BIT:
            assert torch.equal(values[name], expected), name
        else:
            torch.testing.assert_close(values[name], expected, rtol=1e-6, atol=1e-9)
