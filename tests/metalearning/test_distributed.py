"""Two processes on uneven halves take the same meta step as one process on the joint batch."""

from functools import partial

import pytest
import torch
from tests.metalearning.models import K, batch, calibrator, make_net, sgd
from tests.processes import run_together
from torch import distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from metacal import NonUniformLabelSmoothing, UnitwiseL2, bf16
from metacal.errors import MetacalError
from metacal.metalearning.gather import gather_batches
from metacal.metalearning.meta_stream import MetaStream
from metacal.metalearning.model_calls import unwrapped

BF16 = ("bf16-true", "bf16-mixed")
SPLITS = [(slice(0, 9), slice(0, 4)), (slice(9, 12), slice(4, 11))]
WAYS = [(through, reduction) for through in ("head", "model") for reduction in ("mean", "sum")]


def fresh_net():
    return make_net(norm=False, dropout=0.0).double()


def steps(model, net, train_rows, meta_rows, through, reduction, rank=None):
    """Hypergradients, omega after a few steps with a memory, a gradient of the model's, and what `finish` does."""
    hyperparameters = {"smoothing": NonUniformLabelSmoothing(K, initial="uniform"), "l2": UnitwiseL2(net.fc)}
    held_out = [batch(11, 50 + number, dtype=torch.float64) for number in range(3)]
    own = [(x[meta_rows], y[meta_rows]) for x, y in held_out]
    options = dict(meta=own, optimizer=sgd(net, lr=0.3), head=net.fc, through=through, reduction=reduction, memory=16)
    meta = calibrator(model, hyperparameters, **options)
    x, y = batch(12, 0, dtype=torch.float64)
    gradients = meta.hypergradient(x[train_rows], y[train_rows], own[0])
    for number in range(3):
        x, y = batch(12, number, dtype=torch.float64)
        meta.step(x[train_rows], y[train_rows])
    # The penalty is part of every rank's loss, and DDP averages: the joint gradient must be the single process's.
    meta.hyperparameters.members["l2"].weight.data.fill_(0.2)
    x, y = batch(12, 7, dtype=torch.float64)
    rows = slice(6 * rank, 6 * rank + 6) if rank is not None else slice(0, 12)
    loss = meta.loss(x[rows], y[rows])
    net.zero_grad()
    loss.backward()
    gradients["head gradient"] = net.fc.weight.grad.clone()
    omega = {f"omega.{name}": value.clone() for name, value in meta.hyperparameters.state_dict().items()}
    net.fc.weight.data.mul_(9.0)  # over-confident: there is something to fold
    return {**gradients, **omega, **finished(meta, net)}


def finished(meta, net):
    """What the end of a training finds on the samples of all processes, and makes of the last layer."""
    found = meta.finish()
    figures = [found.temperature, found.samples, found.before.nll, found.after.nll, found.before.ece, found.is_folded]
    return {"finish": torch.tensor(figures, dtype=torch.float64), "folded": net.fc.weight.detach().clone()}


def drawn_meta_batches():
    """Which samples a shuffling loader gives to the meta steps of this process, in a pass and a half; and all, once."""
    x = torch.arange(20.0).unsqueeze(1)
    stream = MetaStream(DataLoader(TensorDataset(x, torch.zeros(20, dtype=torch.int64)), batch_size=5, shuffle=True))
    drawn = torch.cat([next(stream)[0].squeeze(1) for _ in range(3)])
    return {"drawn": drawn, "once": torch.cat([part.squeeze(1) for part, _ in stream.once()])}


def worker(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    try:
        for through, reduction in WAYS:
            net = fresh_net()
            found = steps(DistributedDataParallel(net), net, *SPLITS[rank], through, reduction, rank)
            torch.save(found, f"{folder}/{through}-{reduction}-{rank}.pt")
        refused()
        check_gathering(rank)
        torch.save(drawn_meta_batches(), f"{folder}/drawn-{rank}.pt")
        dist.barrier()  # a process that leaves while the other is still talking can take it down
    finally:
        dist.destroy_process_group()


def refused():
    net = fresh_net()
    with pytest.raises(MetacalError, match="static_graph=True"):
        calibrator(DistributedDataParallel(net, static_graph=True))
    for shard in (fully_shard, partial(FullyShardedDataParallel, device_id=torch.device("cpu"))):
        with pytest.raises(MetacalError, match="whole parameters"):
            calibrator(shard(make_net(norm=False)))


def check_gathering(rank):
    features = torch.arange(6.0 * (rank + 1)).view(-1, 2, 3)
    labels = torch.full((rank + 1,), rank)
    joined = gather_batches([(features, labels), (features[:0], labels[:0])])
    assert joined[0][0].shape == (3, 2, 3)
    assert joined[0][1].tolist() == [0, 1, 1]
    assert len(joined[1][0]) == 0
    images, many = torch.full((2, 3), 255, dtype=torch.uint8), torch.tensor([300, 999])
    joined = gather_batches([(images, many)])
    assert joined[0][0].dtype == torch.uint8
    assert (joined[0][0] == 255).all()
    assert joined[0][1].tolist() == [300, 999, 300, 999]


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    """The files that two processes wrote; started once, for that is what takes time."""
    folder = tmp_path_factory.mktemp("processes")
    run_together(worker, str(folder), processes=2)
    return lambda name: [torch.load(folder / f"{name}-{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.mark.parametrize(("through", "reduction"), WAYS)
def test_two_processes_equal_one(two_processes, through, reduction):
    net = fresh_net()
    expected = steps(net, net, slice(0, 12), slice(0, 11), through, reduction)
    ranks = two_processes(f"{through}-{reduction}")
    assert expected["finish"][-1] == 1.0
    assert expected["finish"][1] == 33
    # Differences of losses lose digits: sums in another order move the seventh.
    rtol, atol = (1e-10, 1e-13) if through == "head" else (1e-6, 1e-9)
    for name, value in expected.items():
        assert torch.equal(ranks[0][name], ranks[1][name]), name
        torch.testing.assert_close(ranks[0][name], value.detach(), rtol=rtol, atol=atol, msg=name)
    assert isinstance(net.fc, nn.Linear)


def test_two_processes_share_the_held_out_samples(two_processes):
    first, second = two_processes("drawn")
    a_pass = [set(torch.cat((first["drawn"][i : i + 5], second["drawn"][i : i + 5])).tolist()) for i in (0, 5)]
    assert len(a_pass[0]) == len(a_pass[1]) == 10 and a_pass[0].isdisjoint(a_pass[1]), "every sample once in a pass"
    assert sorted((*first["once"].tolist(), *second["once"].tolist())) == list(range(20))


def fabric_worker(rank, folder, precisions):
    from lightning_fabric import Fabric
    from lightning_fabric.strategies import DDPStrategy

    torch.set_num_threads(1)
    given = {}
    for precision in precisions:
        strategy = DDPStrategy(process_group_backend="gloo")
        fabric = Fabric(accelerator="cpu", devices=1, strategy=strategy, precision=precision)
        fabric.launch()
        net = make_net(norm=False, dropout=0.0)
        model, optimizer = fabric.setup(net, sgd(net))
        for through in ("head", "model") if precision != "bf16-true" else ("head",):
            seen = given[f"{precision} {through}"] = []
            meta = calibrator(model, NonUniformLabelSmoothing(K), optimizer=optimizer, through=through)
            handle = net.fc.register_forward_pre_hook(partial(remember_dtype, seen))
            fabric.backward(meta.step(*batch(12, 1)))
            optimizer.step()
            handle.remove()
    torch.save(given, f"{folder}/given.pt")
    assert unwrapped(torch.compile(model)).module is net
    assert unwrapped(fabric.setup_module(torch.compile(net))).module is net
    model._forward_module.static_graph = True
    with pytest.raises(MetacalError, match="static_graph=True"):
        calibrator(model, optimizer=optimizer)


def remember_dtype(seen, layer, inputs):
    seen.append(inputs[0].dtype)


@pytest.fixture(scope="module")
def given_dtypes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fabric")
    precisions = ("64-true",) if bf16.died_of() else ("64-true", *BF16)
    run_together(fabric_worker, str(folder), precisions, processes=1)
    return torch.load(folder / "given.pt", weights_only=True)


@pytest.mark.parametrize("precision", ["64-true", *(pytest.param(p, marks=pytest.mark.bf16) for p in BF16)])
def test_the_meta_batch_has_the_precision_of_fabric_under_ddp(given_dtypes, precision):
    wanted = torch.float64 if precision.startswith("64") else torch.bfloat16
    assert given_dtypes[f"{precision} head"][:2] == [wanted, wanted], "training and meta batch"
    if precision != "bf16-true":  # through the model: meta batch, two moved passes without autocast, training batch
        moved = torch.float32 if precision == "bf16-mixed" else wanted
        assert given_dtypes[f"{precision} model"] == [wanted, moved, moved, wanted]
