"""The published code's deviations: each switch does what it says, against the iteration written out by hand."""

import copy

import pytest
import torch
from torch.nn.functional import log_softmax, one_hot

from metacal.errors import InvalidValueError
from metacal.functional import cross_entropy, dece
from metacal.lab.training import (
    Hardware,
    RunFolder,
    build_model,
    build_spec,
    load_data,
    make_fabric,
    read_assignments,
    run,
)
from metacal.lab.training.build import Job
from metacal.lab.training.pipeline import prepare

SMALL = {
    "dataset": "digits",
    "model": "resnet8",
    "model_options": {"width": 4},
    "method": "mc-v",
    "outer": "paper",
    "meta": "split",
    "train_size": 96,
    "meta_size": 40,
    "batch_size": 16,
    "epochs": 2,
    "lr": 0.05,
    "reduction": "sum",
    "precision": "64",
}
STRENGTH = 0.1


def prepared(tmp_path, **changes):
    """A run before its first step, and the first batch of each part."""
    spec = build_spec({**SMALL, **changes})
    dataset, splits = load_data(spec, None)
    job = Job(spec, RunFolder(tmp_path), dataset, splits, make_fabric(spec, Hardware()))
    torch.manual_seed(0)
    training = prepare(job, build_model(spec, dataset))
    training.phases[0].loss.hyperparameters.strength.data.fill_(STRENGTH)
    (x, y), calibrator = next(iter(training.phases[0].batches.epoch(0))), training.phases[0].loss.calibrator
    x_meta, y_meta = next(iter(calibrator.stream.meta.epoch(0)))
    return training, (x.double(), y), (x_meta.double(), y_meta)


def features_of(net, x):
    return net.pool(net.stages(net.stem(x))).flatten(1)


def leaked(net, batch, meta, lr):
    """Gradient of the meta-loss with respect to the whole network, and the running statistics left behind."""
    (x, y), (x_meta, y_meta) = batch, meta
    net.train()
    labels = one_hot(y, 10) * (1 - STRENGTH) + STRENGTH / 10
    logits = net.head(features_of(net, x))
    inner = -(labels * log_softmax(logits, 1)).sum()
    by_weight, by_bias = torch.autograd.grad(inner, (net.head.weight, net.head.bias), create_graph=True)
    weight, bias = net.head.weight - lr * by_weight, net.head.bias - lr * by_bias
    judged = features_of(net, x_meta) @ weight.T + bias
    objective = cross_entropy(logits=judged, targets=y_meta) + 0.5 * dece(logits=judged, targets=y_meta)
    return dict(zip(dict(net.named_parameters()), torch.autograd.grad(objective, tuple(net.parameters()))))


def step(training, batch):
    """The gradient of one step's loss, its value, and the running statistics after it."""
    training.model.train()
    loss, _ = training.phases[0].loss(*batch, boundary=True)
    training.fabric.backward(loss)
    net = training.model.module
    gradients = {name: parameter.grad.clone() for name, parameter in net.named_parameters()}
    return gradients, loss.item(), {name: value.clone() for name, value in net.named_buffers()}


@pytest.mark.parametrize("switches", [["leak"], ["leak", "statistics"], ["leak", "replay"], ["leak", "frozen"]])
def test_leak_adds_the_gradient_of_the_meta_loss_to_all_of_the_network(switches, tmp_path):
    training, batch, meta = prepared(tmp_path, published=switches)
    plain, *_ = prepared(tmp_path, published=["frozen"] if "frozen" in switches else [])
    lr = 0.0 if "frozen" in switches else 0.05  # without the simulated step
    expected = leaked(copy.deepcopy(training.model.module), batch, meta, lr)
    found, value, _ = step(training, batch)
    without, same_value, _ = step(plain, batch)
    assert value == pytest.approx(same_value, rel=1e-12)
    for name, gradient in found.items():
        torch.testing.assert_close(gradient - without[name], expected[name], rtol=1e-4, atol=1e-7)
        assert expected[name].abs().max() > 1e-6


@pytest.mark.parametrize("switches", [[], ["leak"], ["statistics"], ["leak", "statistics"]])
def test_statistics_take_the_held_out_batch_in(switches, tmp_path):
    training, (x, y), (x_meta, _) = prepared(tmp_path, published=switches)
    twin = copy.deepcopy(training.model.module).train()
    for inputs in (x, x_meta) if "statistics" in switches else (x,):
        twin(inputs)
    _, _, buffers = step(training, (x, y))
    for name, value in twin.named_buffers():
        torch.testing.assert_close(buffers[name], value)


def test_replay_repeats_the_pass_of_an_epoch_with_its_short_batch(tmp_path):
    training, *_ = prepared(tmp_path, published=["replay"])
    stream = training.phases[0].loss.calibrator.stream
    assert len(training.phases[0].batches) == 6
    first, second = ([next(stream) for _ in range(6)] for _ in range(2))
    assert [len(y) for _, y in first] == [16, 16, 8, 16, 16, 8]
    for one, again in zip(first[:3], first[3:], strict=True):
        assert torch.equal(one[0], again[0])
    assert not torch.equal(first[0][0], second[0][0])  # another epoch, another shuffle
    stream.go_to(8)
    assert torch.equal(next(stream)[0], second[2][0])
    plain, *_ = prepared(tmp_path, published=["leak"])
    drawn = [next(plain.phases[0].loss.calibrator.stream)[0] for _ in range(6)]
    assert not torch.equal(drawn[0], drawn[3])


@pytest.mark.parametrize("switches", [["frozen"], ["frozen", "leak", "replay", "statistics"]])
def test_frozen_omega_stays_while_the_rest_goes_on(switches, tmp_path):
    folders = [RunFolder(tmp_path / str(len(each))) for each in ([], switches)]
    small = {**SMALL, "precision": "32", "milestones": [1]}
    run(build_spec(small), folders[0])
    run(build_spec({**small, "published": switches}), folders[1])
    moved, frozen = (folder.read_epoch(2)["omega.strength"] for folder in folders)
    assert moved.abs().max() > 0
    assert frozen.abs().max() == 0


def test_switches_are_words_of_the_command_and_the_order_does_not_matter():
    words = ["dataset=cifar10", "method=mc"]
    spec, _ = read_assignments([*words, "published=replay,leak,leak"])
    assert spec.published == ("leak", "replay")
    assert spec.hash == read_assignments([*words, "published=leak,replay"])[0].hash
    assert read_assignments([*words, "published=leak"])[0].published == ("leak",)
    assert read_assignments(words)[0].hash == "e3493365b2575bca"  # as ever


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["method=meta", "published=leak"], "published needs outer=paper, through=head and a method that learns"),
        (["method=ce", "published=leak"], "`published` needs a method that learns, such as meta, got method=ce"),
        (["method=mc", "published=leek"], "`published.0`: Input should be 'leak'"),
        (["method=mc", "published=leak", "accumulate=2"], "published must be used without accumulate"),
    ],
)
def test_bad_switches(words, message):
    with pytest.raises(InvalidValueError, match=message):
        read_assignments(["dataset=cifar10", *words])
