"""Two processes on uneven halves take the same meta step as one process on the joint batch."""

from functools import partial

import pytest
import torch
from tests.metalearning.models import K, batch, make_net
from tests.processes import run_together
from torch import distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from metacal import MetaCalibrator, NonUniformLabelSmoothing, UnitwiseL2
from metacal.data import cycle
from metacal.errors import MetacalError
from metacal.metalearning.batches import unwrapped
from metacal.metalearning.gather import gather_batches

REDUCTIONS = ("mean", "sum")
SPLITS = [(slice(0, 9), slice(0, 4)), (slice(9, 12), slice(4, 11))]


def steps(model, net, train_rows, meta_rows, reduction, rank=None):
    hyperparameters = {"smoothing": NonUniformLabelSmoothing(K, initial="uniform"), "l2": UnitwiseL2(net.fc)}
    meta = MetaCalibrator(model, net.fc, hyperparameters, every=1, inner_reduction=reduction)
    gradients = None
    for number in range(3):
        x, y = batch(12, number, dtype=torch.float64)
        x_meta, y_meta = batch(11, 50 + number, dtype=torch.float64)
        pair = (x_meta[meta_rows], y_meta[meta_rows])
        if gradients is None:
            gradients = meta.hypergradient(x[train_rows], y[train_rows], meta=pair, lr=0.3)
        meta.step(x[train_rows], y[train_rows], meta=pair, lr=0.3)
    # The penalty is part of every rank's loss, and DDP averages: the joint gradient must be the single process's.
    meta.hyperparameters.members["l2"].weight.data.fill_(0.2)
    x, y = batch(12, 7, dtype=torch.float64)
    rows = slice(6 * rank, 6 * rank + 6) if rank is not None else slice(0, 12)
    loss = meta.loss(x[rows], y[rows])
    net.zero_grad()
    loss.backward()
    gradients["head gradient"] = net.fc.weight.grad.clone()
    return {**gradients, **{f"omega.{name}": value for name, value in meta.hyperparameters.state_dict().items()}}


def drawn_meta_batches(net, rank):
    """Which samples a shuffling loader gives to the meta steps of this process."""
    drawn = []

    def remembering(batches):
        for x, y in batches:
            drawn.append(x[:, 0].clone())
            yield x, y

    x, y = batch(100, 3, dtype=torch.float64)
    loader = DataLoader(TensorDataset(x, y), batch_size=5, shuffle=True)
    meta = MetaCalibrator(DistributedDataParallel(net), net.fc, NonUniformLabelSmoothing(K), every=1)
    batches = remembering(cycle(loader))
    for number in range(3):
        meta.step(*batch(12, number, dtype=torch.float64), meta=batches, lr=0.3)
    return torch.cat(drawn)


def worker(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    try:
        for reduction in REDUCTIONS:
            net = make_net(norm=False, dropout=0.0).double()
            found = steps(DistributedDataParallel(net), net, *SPLITS[rank], reduction, rank)
            torch.save(found, f"{folder}/{reduction}-{rank}.pt")
        with pytest.raises(MetacalError, match="static_graph=True"):
            MetaCalibrator(DistributedDataParallel(net, static_graph=True), net.fc, NonUniformLabelSmoothing(K))
        for shard in (fully_shard, partial(FullyShardedDataParallel, device_id=torch.device("cpu"))):
            with pytest.raises(MetacalError, match="whole parameters"):
                MetaCalibrator(shard(make_net(norm=False)), "fc", NonUniformLabelSmoothing(K))
        features = torch.arange(6.0 * (rank + 1)).view(-1, 2, 3)
        labels = torch.full((rank + 1,), rank)
        joined = gather_batches([(features, labels), (features[:0], labels[:0])])
        assert joined[0][0].shape == (3, 2, 3) and joined[0][1].tolist() == [0, 1, 1] and len(joined[1][0]) == 0
        images, many = torch.full((2, 3), 255, dtype=torch.uint8), torch.tensor([300, 999])
        joined = gather_batches([(images, many)])
        assert joined[0][0].dtype == torch.uint8 and (joined[0][0] == 255).all()
        assert joined[0][1].tolist() == [300, 999, 300, 999]
        torch.save(drawn_meta_batches(net, rank), f"{folder}/drawn-{rank}.pt")
        dist.barrier()  # a process that leaves while the other is still talking can take it down
    finally:
        dist.destroy_process_group()


def test_two_processes_equal_one(tmp_path):
    run_together(worker, str(tmp_path), processes=2)
    for reduction in REDUCTIONS:
        net = make_net(norm=False, dropout=0.0).double()
        expected = steps(net, net, slice(0, 12), slice(0, 11), reduction)
        ranks = [torch.load(tmp_path / f"{reduction}-{rank}.pt", weights_only=True) for rank in range(2)]
        for name, value in expected.items():
            assert torch.equal(ranks[0][name], ranks[1][name]), (reduction, name)
            torch.testing.assert_close(ranks[0][name], value.detach(), rtol=1e-10, atol=1e-13)
        assert isinstance(net.fc, nn.Linear)
    drawn = [torch.load(tmp_path / f"drawn-{rank}.pt", weights_only=True) for rank in range(2)]
    assert not torch.equal(*drawn), "the joint meta batch would hold every sample twice"


def fabric_worker(rank, folder, precisions):
    torch.set_num_threads(1)
    for precision in precisions:
        torch.save(dtypes_under_fabric(precision), f"{folder}/{precision}.pt")


def dtypes_under_fabric(precision):
    """Of what the head is given in training and in the meta step."""
    from lightning_fabric import Fabric
    from lightning_fabric.strategies import DDPStrategy

    fabric = Fabric(
        accelerator="cpu", devices=1, strategy=DDPStrategy(process_group_backend="gloo"), precision=precision
    )
    fabric.launch()
    net = make_net(norm=False, dropout=0.0)
    model, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.1))
    meta = MetaCalibrator(model, net.fc, NonUniformLabelSmoothing(K), every=1)
    given = []
    net.fc.register_forward_pre_hook(lambda layer, inputs: given.append(inputs[0].dtype))
    loss = meta.step(*batch(12, 1), meta=batch(10, 2), lr=0.1)
    fabric.backward(loss)
    optimizer.step()
    assert unwrapped(torch.compile(model)).module is net
    assert unwrapped(fabric.setup_module(torch.compile(net))).module is net
    other, _ = fabric.setup(make_net(norm=False), torch.optim.SGD(net.parameters(), lr=0.1))
    other._forward_module.static_graph = True
    with pytest.raises(MetacalError, match="static_graph=True"):
        MetaCalibrator(other, "fc", NonUniformLabelSmoothing(K))
    return given[:2]


@pytest.mark.bf16
def test_the_meta_batch_has_the_precision_of_fabric_under_ddp(tmp_path):
    expected = {"64-true": torch.float64, "bf16-true": torch.bfloat16, "bf16-mixed": torch.bfloat16}
    run_together(fabric_worker, str(tmp_path), list(expected), processes=1)
    for precision, dtype in expected.items():
        of_training, of_meta = torch.load(tmp_path / f"{precision}.pt", weights_only=True)
        assert of_training == of_meta == dtype, precision
