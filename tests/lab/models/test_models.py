"""Models by name: sizes as published, a head each, a user's own by import path."""

import sys
import textwrap

import pytest
import torch
from torch import nn

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.lab.models import create_model

PARAMETERS = {  # for 10 classes of 32 x 32 colour images
    "resnet8": 78_042,
    "resnet18": 11_173_962,
    "resnet20": 272_474,
    "resnet50": 23_520_842,
    "resnet110": 45_864_522,
    "wideresnet-26-10": 36_481_434,
    "logistic": 30_730,
    "mlp": 855_050,
}


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", PARAMETERS)
def test_sizes(name):
    with torch.device("meta"):
        assert count(create_model(name, num_classes=10)) == PARAMETERS[name]


def test_the_head_grows_with_the_classes():
    with torch.device("meta"):
        assert count(create_model("resnet18", num_classes=100)) == PARAMETERS["resnet18"] + 90 * (512 + 1)


@pytest.mark.parametrize("name", ["resnet8", "resnet20", "mlp", "logistic"])
@pytest.mark.parametrize("channels", [1, 3])
def test_logits_come_from_the_head(name, channels):
    model = create_model(name, num_classes=7, input_shape=(channels, 32, 32))
    seen = []
    model.head.register_forward_hook(lambda module, inputs, output: seen.append(output))
    logits = model(torch.zeros(2, channels, 32, 32))
    assert logits.shape == (2, 7)
    assert torch.equal(seen[0], logits)


def test_options_are_passed_on():
    assert create_model("mlp", num_classes=3, input_shape=(5,), hidden=(4,)).head.in_features == 4


def test_an_unknown_name():
    with pytest.raises(InvalidValueError, match="got 'resnet19'; nearest: resnet1"):
        create_model("resnet19", num_classes=10)


def test_an_unknown_option():
    with pytest.raises(InvalidTypeError, match=r"must be arguments of mlp, got \{'depth': 3\}"):
        create_model("mlp", num_classes=10, depth=3)


def test_images_are_needed():
    with pytest.raises(InvalidValueError, match=r"must fit inputs of shape \(64,\), got resnet8"):
        create_model("resnet8", num_classes=10, input_shape=(64,))


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    text = """
    from torch import nn
    class Net(nn.Module):
        def __init__(self, num_classes, width=3):
            super().__init__()
            self.head = nn.Linear(width, num_classes)
    class Headless(nn.Module):
        def __init__(self, num_classes):
            super().__init__()
    number = 3
    """
    (tmp_path / "own_nets.py").write_text(textwrap.dedent(text))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("own_nets", None)


@pytest.mark.usefixtures("own_module")
def test_a_model_of_ones_own():
    model = create_model("own_nets:Net", num_classes=4, width=2)
    assert isinstance(model.head, nn.Linear)
    assert model.head.out_features == 4


@pytest.mark.usefixtures("own_module")
@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("own_nets:Missing", "must be importable as 'module:Class'"),
        ("no_such_module:Net", "must be importable as 'module:Class'"),
        ("own_nets:number", "must name a class or function"),
        ("own_nets:Headless", "with a submodule `head`, got Headless"),
    ],
)
def test_import_paths_that_lead_nowhere(path, message):
    with pytest.raises((InvalidValueError, InvalidTypeError), match=message):
        create_model(path, num_classes=4)
