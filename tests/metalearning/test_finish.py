"""The end of a training: a temperature, folded where it helps and can be, and a plain model afterwards."""

import copy
import math
import re

import pytest
import torch
from tests.metalearning.models import K, batch, both_ways, calibrator, make_net, same, state_of
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from metacal import Finish, ScalarLabelSmoothing, TemperatureScaled
from metacal.errors import InvalidValueError
from metacal.functional import negative_log_likelihood, temperature_with_prior
from metacal.metalearning.finish import can_fold


def drawn_from(net, n=300, seed=0, temperature=1.0):
    """Samples whose labels are drawn from the model's own probabilities at a temperature: it is calibrated there."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 5, generator=generator, dtype=next(net.parameters()).dtype)
    net.eval()
    with torch.no_grad():
        probs = torch.softmax(net(x).float() / temperature, dim=1)
    net.train()
    return x, torch.multinomial(probs, 1, generator=generator).squeeze(1)


def sharp_net(**options):
    """One that is confident enough for a temperature to matter."""
    net = make_net(**{"norm": False, "dropout": 0.5, **options})
    net.fc.weight.data *= 10.0
    return net


def loaded(samples, batch_size=64):
    return DataLoader(TensorDataset(*samples), batch_size=batch_size)


@both_ways
def test_an_overconfident_model_is_scaled_and_stays_a_plain_one(through):
    net = sharp_net()
    samples = drawn_from(net, n=3000, temperature=3.0)
    before, keys, kinds = copy.deepcopy(net).eval(), list(net.state_dict()), [type(m) for m in net.modules()]
    meta = calibrator(net, meta=loaded(samples), through=through)
    found = meta.finish()
    assert isinstance(found, Finish)
    assert found.is_folded
    assert found.samples == 3000
    assert found.temperature == pytest.approx(3.0, rel=0.1)
    meta.remove()
    assert list(net.state_dict()) == keys
    assert [type(m) for m in net.modules()] == kinds
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())
    net.eval()
    x = batch(50, 7)[0]
    torch.testing.assert_close(net(x), before(x) / found.temperature, rtol=1e-5, atol=1e-6)
    assert same(state_of(net.backbone), state_of(before.backbone))
    nll = [negative_log_likelihood(logits=each(samples[0]), targets=samples[1]).item() for each in (before, net)]
    assert [found.before.nll, found.after.nll] == pytest.approx(nll, rel=1e-4)
    assert nll[1] < 0.9 * nll[0]
    assert found.after.ece < found.before.ece
    assert found.before.low <= found.before.ece <= found.before.high


def test_the_temperature_is_the_most_probable_one():
    net = sharp_net(dropout=0.0)
    x, y = samples = drawn_from(net, temperature=2.0)
    found = calibrator(net, meta=loaded(samples)).finish(fold=False)
    wanted = temperature_with_prior(logits=net(x).double(), targets=y, iterations=60)
    assert found.temperature == pytest.approx(wanted.item(), rel=1e-5)


@both_ways
def test_a_calibrated_model_is_hardly_changed(through):
    net = sharp_net()
    samples = drawn_from(net, n=2000)
    found = calibrator(net, meta=loaded(samples), through=through).finish()
    assert found.temperature == pytest.approx(1.0, abs=0.1)
    assert not found.helps
    assert found.after.nll <= found.before.nll


def test_a_second_time_there_is_nothing_left_to_do():
    net = sharp_net()
    meta = calibrator(net, meta=loaded(drawn_from(net, n=3000, temperature=3.0)))
    first, second = meta.finish(), meta.finish()
    assert first.helps
    assert not second.helps
    assert second.temperature == pytest.approx(1.0, abs=0.05)


def test_to_fit_without_folding():
    net = sharp_net()
    before = state_of(net)
    found = calibrator(net, meta=loaded(drawn_from(net, temperature=3.0))).finish(fold=False)
    assert found.temperature > 2.0
    assert not found.is_folded
    assert same(state_of(net), before)
    assert "TemperatureScaled" not in found.reason
    assert found.helps


@both_ways
def test_nothing_else_is_touched(through):
    """Batch statistics, modes and random numbers; evaluation mode is used whatever the mode is."""
    net = make_net()
    net.fc.weight.data *= 10.0
    samples = drawn_from(net, temperature=3.0)
    net.backbone[1].eval()
    modes, body = [module.training for module in net.modules()], state_of(net.backbone)
    meta = calibrator(net, meta=DataLoader(TensorDataset(*samples), batch_size=7, shuffle=True), through=through)
    omega, random = state_of(meta.hyperparameters), torch.get_rng_state()
    found = meta.finish()
    assert [module.training for module in net.modules()] == modes
    assert same(state_of(net.backbone), body)
    assert torch.equal(torch.get_rng_state(), random)
    assert same(state_of(meta.hyperparameters), omega)
    assert all(parameter.grad is None for parameter in net.parameters())
    assert meta.stream.drawn == 0
    again = calibrator(net, meta=[samples], through=through).finish(fold=False)
    assert again.before.nll == pytest.approx(found.after.nll, rel=1e-4), "whatever the batches and their order"


class Tied(nn.Module):
    """The output layer shares its weights with the embedding."""

    def __init__(self):
        super().__init__()
        self.embedding, self.fc = nn.Embedding(K, 8), nn.Linear(8, K, bias=False)
        self.body = nn.Linear(8, 8)
        self.fc.weight = self.embedding.weight
        self.fc.weight.data *= 6.0

    def forward(self, x):
        return self.fc(torch.tanh(self.body(self.embedding((x[:, 0] > 0).long()))))


class Cosine(nn.Linear):
    """A linear layer by its type alone."""

    def forward(self, x):
        return 30.0 * nn.functional.linear(nn.functional.normalize(x), nn.functional.normalize(self.weight))


def with_head(head):
    net = make_net(norm=False, dropout=0.0)
    net.fc = head
    return net


class Times(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return self.factor * x


def big(layer):
    layer.weight.data *= 10.0
    return layer


def hooked():
    net = sharp_net(dropout=0.0)
    net.fc.register_forward_hook(lambda layer, args, output: output + 1.0)
    return net


class Scaled(nn.Module):
    """A number multiplies the logits after the last layer."""

    def __init__(self):
        super().__init__()
        self.net, self.scale = sharp_net(dropout=0.0), nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        return self.scale * self.net(x)


NOT_FOLDED = {
    "tied weights": Tied,
    "parametrised": lambda: with_head(nn.utils.parametrizations.weight_norm(big(nn.Linear(8, K)))),
    "spectral norm": lambda: with_head(nn.utils.parametrizations.spectral_norm(nn.Linear(8, K))),
    "a subclass": lambda: with_head(Cosine(8, K)),
    "a hook of somebody's": hooked,
    "scaled afterwards": Scaled,
    "not linear": lambda: with_head(nn.Sequential(big(nn.Linear(8, K)), nn.Softsign(), Times(9))),
    "a convolution": lambda: with_head(nn.Sequential(nn.Unflatten(1, (8, 1)), big(nn.Conv1d(8, K, 1)), nn.Flatten())),
}


@pytest.mark.parametrize("name", NOT_FOLDED)
def test_what_cannot_be_folded_is_left_as_it_is_and_a_wrapper_offered(name):
    torch.manual_seed(0)
    net = NOT_FOLDED[name]()
    samples = drawn_from(net, temperature=4.0)
    before = state_of(net)
    found = calibrator(net, meta=loaded(samples)).finish()
    assert found.temperature > 1.5
    assert not found.is_folded
    assert same(state_of(net), before)
    assert found.reason.endswith("use metacal.TemperatureScaled(model, temperature)")
    scaled = TemperatureScaled(net, found.temperature).eval()
    nll = negative_log_likelihood(logits=scaled(samples[0]).detach(), targets=samples[1])
    assert nll.item() == pytest.approx(found.after.nll, rel=1e-4)


FOLDED = {
    "a bias": lambda: sharp_net(),
    "no bias": lambda: with_head(big(nn.Linear(8, K, bias=False))),
    "the last layer of a head": lambda: with_head(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), big(nn.Linear(8, K)))),
    "double precision": lambda: sharp_net().double(),
}


@pytest.mark.parametrize("name", FOLDED)
@pytest.mark.parametrize("head", [None, "fc"])
def test_what_can_be_folded(name, head):
    """A head that was named may be more than a layer: its last one is scaled."""
    torch.manual_seed(0)
    net = FOLDED[name]()
    samples = drawn_from(net, temperature=3.0)
    before = copy.deepcopy(net).eval()
    found = calibrator(net, meta=loaded(samples), head=head).finish()
    assert found.is_folded
    net.eval()
    torch.testing.assert_close(net(samples[0]), before(samples[0]) / found.temperature, rtol=1e-5, atol=1e-6)


def test_a_layer_that_is_not_trained_is_scaled_too():
    net = sharp_net()
    net.fc.requires_grad_(False)
    meta = calibrator(net, meta=loaded(drawn_from(net, temperature=3.0)))
    assert meta.through == "model"
    assert meta.finish().is_folded


def test_one_logit_per_sample():
    net = make_net(norm=False, dropout=0.0, outputs=1)
    net.fc.weight.data *= 20.0
    x = torch.randn(400, 5, generator=torch.Generator().manual_seed(0))
    y = (torch.rand(400, generator=torch.Generator().manual_seed(1)) < torch.sigmoid(net(x).squeeze(1) / 3.0)).long()
    before = net(x).detach()
    found = calibrator(net, ScalarLabelSmoothing(2), meta=loaded((x, y))).finish()
    assert found.is_folded
    assert found.temperature > 1.5
    torch.testing.assert_close(net(x), before / found.temperature, rtol=1e-5, atol=1e-6)


def test_tokens_are_samples():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), big(nn.Linear(8, K)))
    x = torch.randn(20, 6, 5)
    y = torch.distributions.Categorical(logits=net(x) / 3.0).sample()
    assert calibrator(net, meta=[(x, y)]).finish().samples == 120


def test_separable_held_out_samples_do_no_harm():
    """All of few held-out samples are right by a margin: a likelihood alone would ask for T = 0."""
    net = sharp_net(dropout=0.0)
    x, y = drawn_from(net, n=4000, seed=5, temperature=1.0)
    logits = net(x).detach()
    margins = logits.gather(1, y.unsqueeze(1)).squeeze(1) - logits.scatter(1, y.unsqueeze(1), -math.inf).amax(1)
    easy = (margins > 1.0).nonzero().squeeze(1)[:100]
    found = calibrator(net, meta=loaded((x[easy], y[easy]))).finish()
    assert 0.3 < found.temperature < 1.0
    before, after = (negative_log_likelihood(logits=z, targets=y) for z in (logits, net(x).detach()))
    assert after < 1.5 * before


class RulesOut(nn.Module):
    """The first class cannot be."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, K)

    def forward(self, x):
        return self.fc(x).masked_fill(torch.arange(K) == 0, -torch.inf)


def test_classes_that_are_ruled_out():
    torch.manual_seed(0)
    net = RulesOut()
    x, y = samples = batch(60, 3)[0], 1 + torch.arange(60) % 2
    found = calibrator(net, meta=loaded(samples)).finish()
    both = net(x)[:, 1:]
    wanted = temperature_with_prior(logits=both.double(), targets=y - 1, iterations=60)
    assert found.temperature == pytest.approx(wanted.item(), rel=1e-6)
    assert found.before.nll == pytest.approx(nn.functional.cross_entropy(both, y - 1).item(), rel=1e-5)
    assert 0.0 <= found.before.low <= found.before.ece <= found.before.high <= 1.0


def test_a_model_that_returns_no_numbers_is_left_as_it_is():
    net = sharp_net(dropout=0.0)
    x, y = drawn_from(net)
    x[7] = torch.nan
    before = state_of(net)
    with pytest.raises(InvalidValueError, match="`logits` must be finite, got nan in row 7"):
        calibrator(net, meta=loaded((x, y))).finish()
    assert same(state_of(net), before)


def test_one_sample_shows_little():
    """The prior keeps the temperature near 1, and the summary says that it shows nothing."""
    found = calibrator(sharp_net(), meta=[batch(1, 3)]).finish()
    assert found.samples == 1
    assert not found.helps
    assert 0.5 < found.temperature < 2.0


def test_it_prints_as_a_verdict():
    net = sharp_net()
    meta = calibrator(net, meta=loaded(drawn_from(net, n=1200, temperature=3.0)))
    left, folded = str(meta.finish(fold=False)).splitlines(), str(meta.finish()).splitlines()
    assert re.fullmatch(
        r"temperature \d\.\d{3}, folded into the last layer: it lowers held-out NLL by 0\.\d{4} "
        r"\(s\.e\. 0\.\d{4}\)",
        folded[0],
    )
    assert left[0] == folded[0].replace("folded into the last layer", "not folded")
    assert folded[1].split() == ["NLL", "ECE", "(95", "%", "interval)"]
    row = r"  {} +\d\.\d{{4}}   \d+\.\d\d% \(\d+\.\d\d% to \d+\.\d\d%\)"
    assert re.fullmatch(row.format("before"), folded[2])
    assert re.fullmatch(row.format("after"), folded[3])
    assert folded[4] == (
        "These 1,200 samples were learned from: check on a test set with `metacal evaluate predictions.npz`."
    )
    assert len(folded) == 5


def test_a_scaled_model():
    net = make_net(dropout=0.0)
    scaled = TemperatureScaled(net, 2.5)
    x = batch(6, 1)[0]
    net.eval()
    torch.testing.assert_close(scaled(x), net(x) / 2.5)
    assert set(scaled.state_dict()) == {"temperature", *(f"model.{name}" for name in net.state_dict())}

    class Named(nn.Module):
        def forward(self, x, scale=1.0):
            return {"logits": scale * x, "loss": None}

    torch.testing.assert_close(TemperatureScaled(Named(), 2.0)(x, scale=4.0), 2.0 * x)


def test_which_layers_can_be_folded_into():
    net = sharp_net()
    assert can_fold(net, net.fc)
    assert not can_fold(net, None)
    assert not can_fold(net, net.backbone)
    shared = nn.ModuleDict({"a": net, "b": nn.Linear(8, K)})
    shared["b"].bias = net.fc.bias
    assert not can_fold(shared, net.fc)


def test_after_a_training_run():
    """As in the documentation: train, finish, and the model is calibrated on what it was held out from."""
    net = sharp_net(dropout=0.0)
    samples = drawn_from(net, temperature=2.0)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    meta = calibrator(net, meta=loaded(samples), optimizer=optimizer)
    for seed in range(5):
        optimizer.zero_grad()
        meta.step(*batch(12, seed)).backward()
        optimizer.step()
    found = meta.finish()
    assert found.is_folded
    assert found.after.nll < found.before.nll
