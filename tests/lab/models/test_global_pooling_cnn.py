"""The text network against a plain rendering of its description, and chunks against padding to 1,000, in float64."""

import copy

import pytest
import torch
from torch.nn import functional as F

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.lab.models.global_pooling_cnn import RECEPTIVE_FIELD, GlobalPoolingCNN

WORDS = 60


def documents(lengths, width, seed=0):
    """Tokens of documents of these lengths, left-padded; some words have the padding's vector, some are padding."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.zeros(len(lengths), width, dtype=torch.int32)
    for row, length in zip(tokens, lengths):
        if length:
            row[-length:] = torch.randint(1, WORDS, (length,), generator=generator)
            row[-length // 2] = 1 if length > 3 else row[-length // 2]
    return tokens


def network(seed=0, chunk=16, bias=0.0):
    torch.manual_seed(seed)
    vectors = torch.randn(WORDS, 12, dtype=torch.float64)
    vectors[:2] = 0.0  # the padding, and a word without a vector
    model = GlobalPoolingCNN(5, vectors, chunk=chunk).double()
    with torch.no_grad():
        for layer in (model.convolutions[0], model.convolutions[3], model.convolutions[6]):
            layer.bias += bias  # large biases make windows over pure padding win the maximum
    return model


def value_and_gradient(model, tokens, training=False):
    model = copy.deepcopy(model).train(training)
    torch.manual_seed(7)
    logits = model(tokens)
    (logits.softmax(1) * torch.arange(5.0, dtype=torch.float64)).sum().backward()
    return logits.detach(), [parameter.grad for parameter in model.parameters()]


def test_it_is_what_its_description_says():
    model = network(chunk=None).eval()
    tokens = documents([30, 4, 0], 40)
    first, second, third = (model.convolutions[i] for i in (0, 3, 6))
    x = model.embeddings[tokens.long()].transpose(1, 2)
    x = F.max_pool1d(F.relu(F.conv1d(x, first.weight, first.bias)), 5, 1)
    x = F.max_pool1d(F.relu(F.conv1d(x, second.weight, second.bias)), 5, 1)
    x = F.relu(F.conv1d(x, third.weight, third.bias))
    assert x.shape == (3, 128, 40 - RECEPTIVE_FIELD + 1)
    x = F.relu(F.linear(x.max(2).values, model.hidden[0].weight, model.hidden[0].bias))
    wanted = F.linear(x, model.head.weight, model.head.bias)
    torch.testing.assert_close(model(tokens), wanted, rtol=0, atol=1e-12)
    assert model.hidden[2].p == 0.3


def test_number_of_parameters():
    model = GlobalPoolingCNN(20, torch.zeros(20_001, 100))
    counts = [100 * 128 * 5 + 128, 128 * 128 * 5 + 128, 128 * 128 * 5 + 128, 128 * 128 + 128, 128 * 20 + 20]
    assert sum(parameter.numel() for parameter in model.parameters()) == sum(counts) == 247_316
    assert model.head.out_features == 20
    assert "embeddings" in model.state_dict()


@pytest.mark.parametrize("bias", [-0.3, 0.0, 2.0])
def test_chunks_have_value_and_gradient_of_padding_to_1000(bias):
    lengths = [148, 3, 0, 1, 20, 21, 22, 400, 978, 979, 980, 1000, 25, 60]
    tokens = documents(lengths, 1000)
    wanted, wanted_gradients = value_and_gradient(network(chunk=None, bias=bias), tokens)
    for chunk in (1, 3, 16):
        logits, gradients = value_and_gradient(network(chunk=chunk, bias=bias), tokens)
        torch.testing.assert_close(logits, wanted, rtol=0, atol=1e-11)
        for gradient, right in zip(gradients, wanted_gradients):
            torch.testing.assert_close(gradient, right, rtol=1e-10, atol=1e-11)
    assert all(gradient.abs().max() > 0 for gradient in wanted_gradients)


def test_one_word_of_padding_less_would_not_do(monkeypatch):
    """With length + 20 no window sees padding alone: where such a window wins the maximum, the value changes."""
    tokens = documents([5, 9], 1000)
    wanted = network(chunk=None, bias=2.0).eval()(tokens)
    torch.testing.assert_close(network(chunk=1, bias=2.0).eval()(tokens), wanted, rtol=0, atol=1e-11)
    monkeypatch.setattr("metacal.lab.models.global_pooling_cnn.RECEPTIVE_FIELD", RECEPTIVE_FIELD - 1)
    assert (network(chunk=1, bias=2.0).eval()(tokens) - wanted).abs().max() > 1e-6


def test_an_empty_batch():
    assert network()(torch.zeros(0, 100, dtype=torch.int64)).shape == (0, 5)


def test_dropout_falls_on_the_same_units_in_training():
    tokens = documents([50, 3, 700, 20, 90], 1000)
    one, other = (value_and_gradient(network(chunk=chunk), tokens, training=True) for chunk in (2, None))
    torch.testing.assert_close(one[0], other[0], rtol=0, atol=1e-11)
    for gradient, right in zip(one[1], other[1]):
        torch.testing.assert_close(gradient, right, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32, torch.int64])
def test_any_integer_tokens_and_narrow_batches(dtype):
    model = network().eval()
    tokens = documents([5, 21, 0], 21)
    assert torch.equal(model(tokens.to(dtype)), model(tokens))


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (torch.zeros(2, 20, dtype=torch.int64), r"L >= 21, got torch.int64 \(2, 20\)"),
        (torch.zeros(2, 30), "must be integers"),
        (torch.zeros(30, dtype=torch.int64), r"got torch.int64 \(30,\)"),
    ],
)
def test_bad_tokens(tokens, message):
    with pytest.raises(InvalidValueError, match=message):
        network()(tokens)


def test_bad_arguments():
    with pytest.raises(InvalidTypeError, match="`embeddings` must be a float tensor"):
        GlobalPoolingCNN(2, torch.zeros(3, 4, dtype=torch.int64))
    with pytest.raises(InvalidValueError, match="`chunk` must be None or an integer >= 1, got 0"):
        GlobalPoolingCNN(2, torch.zeros(3, 4), chunk=0)
