"""Finding the logits of a model, and the layer that returns them."""

from dataclasses import dataclass

import pytest
import torch
from tests.metalearning.models import K, batch, calibrator, make_net
from torch import nn

from metacal import PAPER, VectorLabelSmoothing
from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.metalearning.head_tap import find_output_layer, logits_of, named_layers


class Residual(nn.Module):
    """Blocks with a sum around them, then a layer, as residual networks have."""

    def __init__(self):
        super().__init__()
        self.stem, self.block, self.norm = nn.Linear(5, 8), nn.Linear(8, 8), nn.BatchNorm1d(8)
        self.fc = nn.Linear(8, K)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        return self.fc(torch.relu(self.norm(x + self.block(x))))


@dataclass
class Output:
    """What models of Transformers return."""

    loss: object
    logits: torch.Tensor
    hidden_states: object = None


class Returns(nn.Module):
    """The logits of a net, in some form."""

    def __init__(self, form):
        super().__init__()
        self.form, self.net = form, make_net(dropout=0.0)

    def forward(self, x):
        return self.form(self.net(x))


class Shared(nn.Module):
    """One layer under two names, called once."""

    def __init__(self):
        super().__init__()
        self.body, self.first = nn.Linear(5, 8), nn.Linear(8, K)
        self.second = self.first

    def forward(self, x):
        return self.second(self.body(x))


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.fc = nn.Linear(5, 8), nn.Linear(8, K)

    def forward(self, x):
        features = self.body(x)
        return self.fc(features) + self.fc(-features)


class LastOfTwo(Twice):
    """Calls the layer twice, and returns what it returned last."""

    def forward(self, x):
        self.fc(self.body(-x))
        return self.fc(self.body(x))


class OwnWeights(nn.Module):
    """No layer but itself."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, K))

    def forward(self, x):
        return x @ self.weight


def sequential(*after):
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, K), *after)


FOUND = {
    "sequential": (sequential, lambda net: net[2]),
    "nested": (lambda: nn.Sequential(nn.Sequential(sequential())), lambda net: net[0][0][2]),
    "a layer that does nothing after it": (lambda: sequential(nn.Identity()), lambda net: net[2]),
    "a layer": (lambda: nn.Linear(5, K), lambda net: net),
    "residual": (Residual, lambda net: net.fc),
    "an output object": (lambda: Returns(lambda z: Output(None, z)), lambda net: net.net.fc),
    "a dictionary": (lambda: Returns(lambda z: {"logits": z, "loss": None}), lambda net: net.net.fc),
    "a layer with two names": (Shared, lambda net: net.first),
    "a module of its own": (lambda: nn.Sequential(nn.Linear(5, 5), OwnWeights()), lambda net: net[1]),
    "itself": (OwnWeights, lambda net: net),
}
NOT_FOUND = {
    "a scale after it": lambda: Returns(lambda z: 2.0 * z),
    "log-softmax after it": lambda: sequential(nn.LogSoftmax(dim=1)),
    "squeezed": lambda: Returns(lambda z: z.unsqueeze(0).squeeze(0)),
    "called twice": Twice,
    "called twice, one returned": LastOfTwo,
}
X = batch(6, 1)[0]


@pytest.mark.parametrize("name", FOUND)
def test_the_layer_that_returns_the_logits(name):
    make, layer = FOUND[name]
    net = make()
    logits, found = find_output_layer(net, X, None)
    assert found is layer(net)
    assert torch.equal(logits, logits_of(net(X)))
    assert not any(module._forward_hooks for module in net.modules())


@pytest.mark.parametrize("name", NOT_FOUND)
def test_no_single_layer_returns_them(name):
    net = NOT_FOUND[name]()
    logits, found = find_output_layer(net, X, None)
    assert found is None
    assert logits.shape == (6, K)
    meta = calibrator(net, VectorLabelSmoothing(K))
    assert meta.through == "model"
    assert meta.output_layer is None
    assert torch.isfinite(meta.step(*batch(12, 1)))
    assert meta.history[0]["gradient_norm"] > 0
    with pytest.raises(InvalidValueError, match=r"`head` must name the layer.*its last layers are .* \(Linear\)\.$"):
        calibrator(NOT_FOUND[name](), through="head")


@pytest.mark.parametrize("name", FOUND)
def test_the_default_steps_the_model_and_finds_its_last_layer(name):
    make, layer = FOUND[name]
    net = make()
    meta = calibrator(net, VectorLabelSmoothing(K))
    assert meta.through == "model"
    assert meta.output_layer is layer(net)
    assert calibrator(make(), VectorLabelSmoothing(K), through="head").through == "head"


def test_what_is_said_about_the_head_steps_the_head():
    """Its name, the paper's outer step, or parameters too coarse for all of them to be moved."""
    assert calibrator(make_net(), head="fc").through == "head"
    assert calibrator(make_net(), outer=PAPER).through == "head"
    coarse = make_net(norm=False).to(torch.float16)
    assert calibrator(coarse, meta=[batch(10, 2, dtype=torch.float16)]).through == "head"


def test_a_head_that_is_given_says_what_the_logits_are():
    """Its innermost layer that returns them is where a temperature can be folded into."""
    net = Returns(lambda z: (None, 2.0 * z))
    with pytest.raises(InvalidTypeError, match="`model` must return logits, as a tensor or under that name, got tuple"):
        find_output_layer(net, X, None)
    logits, found = find_output_layer(net, X, net.net)
    assert found is net.net.fc
    assert torch.equal(2.0 * logits, net(X)[1])
    assert find_output_layer(net, X, net.net.fc)[1] is net.net.fc


@pytest.mark.parametrize(("make", "calls"), [(Twice, 2), (LastOfTwo, 2)])
def test_a_head_that_is_given_is_called_once(make, calls):
    net = make()
    message = rf"called once in the model's forward pass, got {calls} calls; its last layers are body .*, fc \(Linear\)"
    with pytest.raises(InvalidValueError, match=message):
        find_output_layer(net, X, net.fc)


def test_hooks_are_taken_off_when_the_model_fails():
    net = sequential()
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        find_output_layer(net, X[:, :3], None)
    assert not any(module._forward_hooks for module in net.modules())


def test_models_of_transformers():
    from transformers import BertConfig, BertForSequenceClassification, GPT2Config, GPT2ForSequenceClassification

    tiny = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, vocab_size=20)
    bert = BertForSequenceClassification(BertConfig(**tiny, num_labels=K))
    tokens = {"input_ids": torch.randint(1, 20, (4, 6)), "attention_mask": torch.ones(4, 6, dtype=torch.int64)}
    assert find_output_layer(bert, tokens, None)[1] is bert.classifier
    config = GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=20, n_positions=8, num_labels=K, pad_token_id=0)
    logits, found = find_output_layer(GPT2ForSequenceClassification(config), tokens, None)
    assert found is None and logits.shape == (4, K), "the logits of the last token are picked after the layer"


def test_probabilities_are_not_logits():
    net = sequential(nn.Softmax(dim=1))
    with pytest.raises(InvalidValueError, match=r"return logits, got probabilities .*the layer before softmax"):
        calibrator(net)
    assert calibrator(net, head="2").through == "head"


@pytest.mark.parametrize(
    ("output", "kind"),
    [((1, 2), "tuple"), (None, "NoneType"), ({"scores": torch.ones(2)}, "dict"), (torch.ones(2).long(), "torch.int64")],
)
def test_what_has_no_logits(output, kind):
    with pytest.raises(InvalidTypeError, match=f"must return logits, as a tensor or under that name, got {kind}"):
        logits_of(output)


def test_names_of_layers():
    assert named_layers(sequential()) == "its last layers are 0 (Linear), 2 (Linear)."
    assert named_layers(nn.Linear(2, 2)) == "its last layers are (the model itself) (Linear)."
    assert named_layers(nn.ReLU()) == "it has no layer with parameters."


def test_a_model_is_not_compiled_to_look_for_its_layer():
    """With hooks and for two samples, which would be of no use later."""
    compiled = []

    def backend(graph, inputs):
        compiled.append(graph)
        return graph.forward

    net = Residual()
    assert find_output_layer(torch.compile(net, backend=backend), X, None)[1] is net.fc
    assert not compiled
    torch.compile(net, backend=backend)(X)
    assert compiled
