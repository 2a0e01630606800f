"""What a user can get wrong with the calibrator, and what is said."""

import math
import warnings

import pytest
import torch
from tests.metalearning.models import K, batch, both_ways, calibrator, make_net, sgd, state_of
from torch import nn

from metacal import (
    HierarchicalLabelSmoothing,
    NonUniformLabelSmoothing,
    ScalarLabelSmoothing,
    UnitwiseL2,
    VectorLabelSmoothing,
)
from metacal.errors import MetacalError
from metacal.losses import BrierLoss, CrossEntropyLoss, FocalLoss, FunctionLoss, LabelSmoothingLoss
from metacal.metalearning import LearnableFocalGamma, LearnableTemperature


class CalledTwice(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, K)

    def forward(self, x):
        return self.fc(x) + self.fc(x)


class NeverCalled(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.other = nn.Linear(5, K), nn.Linear(5, K)

    def forward(self, x):
        return self.other(x)


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Bilinear(5, 5, K)

    def forward(self, x):
        return self.fc(x, x)


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, K)

    def forward(self, x):
        return self.fc(x)


class Map(nn.Module):
    """As many classes as its map is wide and high: no shape tells where the classes are."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Sequential(nn.Conv2d(5, K, 1))

    def forward(self, x):
        return self.fc(x)


class Integers(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, K)

    def forward(self, x):
        return self.fc(x).argmax(1)


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(*(nn.Linear(5, 5) for _ in range(9)))
        self.left, self.right = nn.Linear(5, K), nn.Linear(5, K)

    def forward(self, x):
        return self.left(self.body(x)) + self.right(self.body(x))


lazy = nn.Sequential(nn.LazyLinear(K))


def frozen_head():
    net = make_net()
    net.fc.requires_grad_(False)
    return net


def frozen_omega():
    smoothing = ScalarLabelSmoothing(K)
    return smoothing.requires_grad_(False)


def body_alone():
    net = make_net()
    return dict(net=net, optimizer=sgd(net.backbone), head="fc")


def other_optimizer():
    return sgd(make_net())


def frozen():
    return make_net().requires_grad_(False)


X, Y = batch(8, 1)


CONSTRUCTION = {
    "head of another model": (dict(head=nn.Linear(8, K)), "`head` must be a part of the model.*fc"),
    "head by a wrong path": (dict(head="classifier"), "`head` must be a part of the model, got 'classifier'.*fc"),
    "head without parameters": (dict(head="backbone.2"), "`head` must have parameters"),
    "head of a wrong type": (dict(head=3), "`head` must be a torch.nn.Module or an attribute path, got int"),
    "head called twice": (
        dict(net=CalledTwice(), head="fc"),
        r"called once.*got 2 calls; its last layers are fc \(Lin",
    ),
    "head never called": (
        dict(net=NeverCalled(), head="fc"),
        r"called once.*got 0 calls; .*fc \(Linear\), other \(Lin",
    ),
    "no head to be found": (
        dict(net=CalledTwice(), through="head"),
        r"`head` must name the layer that returns the logits, got none whose output is the model's; "
        r"its last layers are fc \(Linear\)",
    ),
    "model of a wrong type": (dict(net="resnet", optimizer=other_optimizer()), "must be a torch.nn.Module, got str"),
    "model without parameters": (dict(net=nn.ReLU(), optimizer=other_optimizer()), "`model` must have parameters"),
    "optimiser of a wrong type": (dict(optimizer=0.1), "`optimizer` must be the torch.optim.Optimizer.*got float"),
    "optimisers of a wrong type": (dict(optimizer=[0.1]), "`optimizer` must be the torch.optim.Optimizer.*got float"),
    "optimiser of another model": (dict(optimizer=other_optimizer()), "`optimizer` must train parameters of `model`"),
    "nothing is trained": (dict(net=frozen()), "`optimizer` must train a parameter, got none that requires a gradient"),
    "outer step of a wrong type": (dict(outer="paper"), "`outer` must be a metacal.OuterStep, got str"),
    "meta is an iterator": (
        dict(meta=iter([batch(8, 2)])),
        "`meta` must be a loader or another iterable of batches that.*got list_iterator, which ends",
    ),
    "meta is a number": (dict(meta=3), "`meta` must be a loader or an iterable of batches, got int"),
    "meta is a tensor": (dict(meta=X), "`meta` must be a loader or an iterable of batches, got Tensor"),
    "meta is a batch": (dict(meta=(X, Y)), r"`meta` must give batches \(x, y\); a batch is a Tensor"),
    "meta is empty": (dict(meta=[]), "`meta` must give at least one batch per pass, got none"),
    "meta without labels": (dict(meta=[{"x": X}]), "`meta` must give batches with labels; its keys are 'x'"),
    "meta with labels as a list": (dict(meta=[(X, [0] * 8)]), "`meta targets` must be a tensor of class labels"),
    "empty meta batch": (dict(meta=[(X[:0], Y[:0])]), "`meta targets` must hold at least one sample, got none"),
    "a map of logits": (
        dict(net=Map(), meta=[(torch.randn(2, 5, K, K), torch.zeros(2, K, K, dtype=torch.int64))]),
        r"`head` must return logits whose classes come last, got a convolution's of shape \(2, 3, 3, 3\)",
    ),
    "integers for logits": (
        dict(net=Integers()),
        "`model` must return logits, as a tensor or under that name, got torch.int64",
    ),
    "no hyper-parameters": (dict(hyperparameters=[None]), "`hyperparameters` must be Hyperparameters, got NoneType"),
    "hyper-parameters of a wrong type": (
        dict(hyperparameters="smoothing"),
        "`hyperparameters` must be a Hyperparameter",
    ),
    "hyper-parameters that disagree": (
        dict(hyperparameters=[ScalarLabelSmoothing(3), VectorLabelSmoothing(4)]),
        "must agree on num_classes",
    ),
    "objective of a wrong type": (
        dict(objective=nn.CrossEntropyLoss()),
        "`objective` must be a metacal Loss.*FunctionLoss",
    ),
    "base loss of a wrong type": (dict(base_loss=lambda z, y: z), "`base_loss` must be a metacal Loss"),
    "base loss reduced": (dict(base_loss=CrossEntropyLoss()), "`base_loss` must return one value per sample"),
    "base loss without soft labels": (
        dict(base_loss=FocalLoss(reduction="none")),
        "`base_loss` must accept soft labels with these hyper-parameters: CrossEntropyLoss does, got FocalLoss",
    ),
    "base loss without soft labels, of several": (
        dict(
            base_loss=CrossEntropyLoss(reduction="none") + BrierLoss(reduction="none"),
            hyperparameters=[LearnableFocalGamma(K), VectorLabelSmoothing(K)],
        ),
        r"must accept soft labels.*got CrossEntropyLoss\(reduction='none'\) \+ BrierLoss",
    ),
    "base loss of torch's without soft labels": (
        dict(base_loss=FunctionLoss(nn.MultiMarginLoss(reduction="none"))),
        "must accept soft labels.*got FunctionLoss.MultiMarginLoss",
    ),
    "nothing to learn": (dict(hyperparameters=frozen_omega()), "must have a parameter that requires a gradient"),
    "names with dots": (
        dict(hyperparameters={"a.b": ScalarLabelSmoothing(K)}),
        "names without dots or spaces, got 'a.b'",
    ),
    "lazy head": (
        dict(net=lazy, optimizer=torch.optim.SGD(lazy.parameters(), lr=0.1), head="0"),
        "`head` must have been initialised",
    ),
    "reduction": (dict(reduction="none"), "`reduction` must be one of 'mean', 'sum', got 'none'"),
}


@pytest.mark.parametrize("name", CONSTRUCTION)
def test_construction(name):
    options, message = CONSTRUCTION[name]
    with pytest.raises(MetacalError, match=message) as raised:
        calibrator(**options)
    assert isinstance(raised.value, (ValueError, TypeError))


def test_the_last_layers_of_a_long_model_are_listed():
    message = r"its last layers are body.6 \(Linear\), .*, left \(Linear\), right \(Linear\)\."
    with pytest.raises(MetacalError, match=message):
        calibrator(TwoHeads(), through="head")


@pytest.mark.parametrize("base", [FocalLoss, BrierLoss, LabelSmoothingLoss])
@pytest.mark.parametrize("make", [lambda: LearnableFocalGamma(K), LearnableTemperature], ids=["gamma", "temperature"])
def test_base_losses_of_hard_labels_go_with_what_leaves_labels_alone(base, make):
    meta = calibrator(base_loss=base(reduction="none"), hyperparameters=make())
    assert torch.isfinite(meta.step(*batch(8, 1)))


def test_a_base_loss_is_tried_out_without_a_trace():
    """Its random numbers are not the training's; what fails with hard labels too is left to the first step."""
    seen = []

    def noisy(logits, targets):
        seen.append(torch.rand(()))
        return CrossEntropyLoss(reduction="none")(logits, targets)

    torch.manual_seed(0)
    expected = torch.rand(())
    net = make_net()
    torch.manual_seed(0)
    calibrator(net, base_loss=FunctionLoss(noisy))
    assert seen
    assert torch.rand(()) == expected
    calibrator(base_loss=CrossEntropyLoss(torch.ones(K + 1), reduction="none"))


STEPS = {
    "head with two inputs": (dict(net=TwoInputs(), head="fc"), {}, "called with one tensor, got Tensor, Tensor"),
    "num_classes": (dict(hyperparameters=ScalarLabelSmoothing(5)), {}, "must be the head's, 3, got 5"),
    "labels too high": ({}, {"y": Y + K}, r"`targets` must lie in 0\.\.2, got"),
    "labels too low": ({}, {"y": Y - 1}, r"`targets` must lie in 0\.\.2, got -1"),
    "labels as floats": ({}, {"y": Y.float()}, "`targets` must be a tensor of integer class labels, got torch.float32"),
    "labels as a list": ({}, {"y": [0] * 8}, "`targets` must be a tensor of integer class labels, got list"),
    "labels of another order": (
        dict(net=Tokens(), meta=[(torch.randn(2, 6, 5), torch.zeros(2, 6, dtype=torch.int64))]),
        {"x": torch.randn(4, 6, 5), "y": torch.zeros(6, 4, dtype=torch.int64)},
        r"`targets` must be 24 labels.* of shape \(4, 6\) or \(24,\), got \(6, 4\)",
    ),
    "too few labels": ({}, {"y": Y[:3]}, "`targets` must be 8 labels"),
    "meta labels too high": (dict(meta=[(X, Y + K)]), {}, r"`meta targets` must lie in 0\.\.2"),
    "too few meta labels": (dict(meta=[(X, Y[:3])]), {}, "`meta targets` must be 8 labels"),
    "base loss of a wrong shape": (
        dict(base_loss=FunctionLoss(nn.CrossEntropyLoss())),
        {},
        r"`base_loss` must return one value per sample, shape \(8,\), got \(\)",
    ),
    "objective without a reduction": (
        dict(objective=CrossEntropyLoss(reduction="none")),
        {},
        r"`objective` must return one number, got shape \(10,\)",
    ),
    "penalty for another head": (
        dict(hyperparameters=UnitwiseL2(nn.Linear(7, K))),
        {},
        "`UnitwiseL2` must be made for the head in use",
    ),
    "head that is not trained": (
        dict(net=frozen_head(), head="fc"),
        {},
        "`head` must have a parameter that is trained",
    ),
    "head that is not the optimiser's": (body_alone(), {}, "`head` must be trained by `optimizer`"),
}
OF_A_HEAD = ("head with two inputs", "head that is not trained", "head that is not the optimiser's")
THROUGH_MODEL = [(name, "model") for name in STEPS if name not in OF_A_HEAD]


@pytest.mark.filterwarnings("ignore:A meta batch shares samples")
@pytest.mark.parametrize(("name", "through"), [*((name, "head") for name in STEPS), *THROUGH_MODEL])
def test_step(name, through):
    options, changes, message = STEPS[name]
    arguments = {"x": X, "y": Y, **changes}
    meta = calibrator(**options, through=through)
    before = state_of(meta.hyperparameters)
    with pytest.raises(MetacalError, match=message) as raised:
        meta.step(arguments["x"], arguments["y"])
    assert isinstance(raised.value, (ValueError, TypeError))
    assert all(torch.equal(value, before[key]) for key, value in meta.hyperparameters.state_dict().items())


@pytest.mark.parametrize(
    "make",
    [
        ScalarLabelSmoothing,
        VectorLabelSmoothing,
        NonUniformLabelSmoothing,
        HierarchicalLabelSmoothing,
        LearnableFocalGamma,
    ],
)
def test_number_of_classes(make):
    with pytest.raises(MetacalError, match=r"`num_classes` must be an integer >= 2, got 2\.5"):
        make(2.5)
    if make is not LearnableFocalGamma:
        with pytest.raises(MetacalError, match="`num_classes` must be an integer >= 2, got 1"):
            make(1)


def test_other_constructors():
    with pytest.raises(MetacalError, match="`initial` must be one of 'zero', 'uniform'"):
        NonUniformLabelSmoothing(3, initial="random")
    with pytest.raises(MetacalError, match="`head` must have parameters to penalise"):
        UnitwiseL2(nn.ReLU())
    for start in (-0.1, 0.6, math.nan):
        with pytest.raises(MetacalError, match=rf"`start` must be in \[0, 0.5\], got {start}"):
            HierarchicalLabelSmoothing(3, start=start)


@both_ways
def test_shared_samples_are_noticed(through):
    x, y = batch(8, 1)
    wide = torch.cat((x, x), dim=1)
    net = nn.Sequential(nn.Linear(10, K))
    meta = calibrator(net, meta=[(wide.flip(0), y.flip(0))], through=through)
    with pytest.warns(UserWarning, match="shares samples with its training batch"):
        meta.step(wide, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        calibrator(meta=[batch(8, 2)], through=through).step(x, y)


@both_ways
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_meta_gradient_that_is_not_finite_is_skipped_counted_and_warned_about_once(bad, through):
    net = nn.Sequential(nn.Linear(5, K))
    x_meta, y_meta = batch(8, 2)
    broken = x_meta.clone()
    broken[3] = bad
    held_out = [(x_meta, y_meta), (broken, y_meta), (broken, y_meta), (x_meta, y_meta)]
    smoothing = NonUniformLabelSmoothing(K, initial="uniform")
    meta = calibrator(net, smoothing, meta=held_out, through=through)
    weights = state_of(net)
    meta.step(*batch(8, 1))
    before = state_of(meta.hyperparameters)
    with pytest.warns(UserWarning, match="meta-gradient was not finite"):
        loss = meta.step(*batch(8, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        meta.step(*batch(8, 4))
    assert meta.skipped == 2
    assert math.isfinite(loss.item())
    assert all(torch.equal(value, before[key]) for key, value in meta.hyperparameters.state_dict().items())
    assert all(torch.equal(value, weights[key]) for key, value in net.state_dict().items())
    meta.step(*batch(8, 5))
    assert all(torch.isfinite(value).all() for value in meta.hyperparameters.state_dict().values())
    assert "2 of 4 meta steps were skipped" in meta.summary()
