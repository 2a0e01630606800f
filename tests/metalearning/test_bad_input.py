"""What a user can get wrong with the calibrator, and what is said."""

import math
import warnings

import pytest
import torch
from tests.metalearning.models import K, batch, make_net
from torch import nn

import metacal
from metacal import MetaCalibrator, NonUniformLabelSmoothing, ScalarLabelSmoothing, UnitwiseL2, VectorLabelSmoothing
from metacal.errors import MetacalError
from metacal.losses import BrierLoss, CrossEntropy, FocalLoss, FunctionLoss, LabelSmoothing
from metacal.metalearning import LearnableFocalGamma, LearnableTemperature

NET = make_net()


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


def frozen_head():
    net = make_net()
    net.fc.requires_grad_(False)
    return net


def frozen_omega():
    smoothing = ScalarLabelSmoothing(K)
    return smoothing.requires_grad_(False)


def calibrator(model=None, head="fc", hyperparameters=None, **options):
    return MetaCalibrator(
        model or make_net(), head, hyperparameters or ScalarLabelSmoothing(K), **{"every": 1, **options}
    )


CONSTRUCTION = {
    "head of another model": (dict(head=nn.Linear(8, K)), "`head` must be a part of the model.*fc"),
    "head by a wrong path": (dict(head="classifier"), "`head` must be a part of the model, got 'classifier'.*fc"),
    "head without parameters": (dict(head="backbone.2"), "`head` must have parameters"),
    "head of a wrong type": (dict(head=3), "`head` must be a torch.nn.Module or an attribute path, got int"),
    "model of a wrong type": (dict(model="resnet"), "`model` must be a torch.nn.Module, got str"),
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
    "base loss reduced": (dict(base_loss=CrossEntropy()), "`base_loss` must return one value per sample"),
    "base loss without soft labels": (
        dict(base_loss=FocalLoss(reduction="none")),
        "`base_loss` must accept soft labels with these hyper-parameters: CrossEntropy does, got FocalLoss",
    ),
    "base loss without soft labels, of several": (
        dict(
            base_loss=CrossEntropy(reduction="none") + BrierLoss(reduction="none"),
            hyperparameters=[LearnableFocalGamma(K), VectorLabelSmoothing(K)],
        ),
        r"must accept soft labels.*got CrossEntropy\(reduction='none'\) \+ BrierLoss",
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
    "lazy head": (dict(model=nn.Sequential(nn.LazyLinear(K)), head="0"), "`head` must have been initialised"),
    "every 0": (dict(every=0), "`every` must be an integer >= 1 or math.inf, got 0"),
    "every 2.5": (dict(every=2.5), "`every` must be an integer >= 1 or math.inf, got 2.5"),
    "every True": (dict(every=True), "`every` must be an integer >= 1 or math.inf, got True"),
    "meta_lr 0": (dict(meta_lr=0.0), "`meta_lr` must be a number > 0, got 0.0"),
    "inner_reduction": (dict(inner_reduction="none"), "`inner_reduction` must be one of 'mean', 'sum', got 'none'"),
    "estimator by a wrong name": (dict(estimator="two_step"), "`estimator` must be one of 'one_step', 'small_step'"),
    "estimator of a wrong type": (dict(estimator=3), "`estimator` must be a name or a function, got int"),
    "meta_forward": (dict(meta_forward="test"), "`meta_forward` must be one of 'train', 'eval', got 'test'"),
    "preset": (dict(preset="published"), "`preset` must be None or one of 'paper', 'steady', got 'published'"),
}


@pytest.mark.parametrize("name", CONSTRUCTION)
def test_construction(name):
    options, message = CONSTRUCTION[name]
    with pytest.raises(MetacalError, match=message) as raised:
        calibrator(**options)
    assert isinstance(raised.value, (ValueError, TypeError))


@pytest.mark.parametrize("base", [FocalLoss, BrierLoss, LabelSmoothing])
@pytest.mark.parametrize("make", [lambda: LearnableFocalGamma(K), LearnableTemperature], ids=["gamma", "temperature"])
def test_base_losses_of_hard_labels_go_with_what_leaves_labels_alone(base, make):
    meta = calibrator(base_loss=base(reduction="none"), hyperparameters=make())
    assert torch.isfinite(meta.step(*batch(8, 1), meta=batch(8, 2), lr=0.1))


def test_a_base_loss_is_tried_out_without_a_trace():
    """Its random numbers are not the training's; what fails with hard labels too is left to the first step."""
    seen = []

    def noisy(logits, targets):
        seen.append(torch.rand(()))
        return CrossEntropy(reduction="none")(logits, targets)

    torch.manual_seed(0)
    expected = torch.rand(())
    net = make_net()
    torch.manual_seed(0)
    calibrator(net, base_loss=FunctionLoss(noisy))
    assert seen and torch.rand(()) == expected
    calibrator(base_loss=CrossEntropy(torch.ones(K + 1), reduction="none"))


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


X, Y = batch(8, 1)
STEPS = {
    "head called twice": (
        lambda: calibrator(CalledTwice()),
        {},
        "called once in the model's forward pass, got 2 calls",
    ),
    "head never called": (
        lambda: calibrator(NeverCalled()),
        {},
        "called once in the model's forward pass, got 0 calls",
    ),
    "head with two inputs": (lambda: calibrator(TwoInputs()), {}, "called with one tensor, got Tensor, Tensor"),
    "num_classes": (lambda: calibrator(hyperparameters=ScalarLabelSmoothing(5)), {}, "must be the head's, 3, got 5"),
    "labels too high": (calibrator, {"y": Y + K}, r"`targets` must lie in 0\.\.2, got"),
    "labels too low": (calibrator, {"y": Y - 1}, r"`targets` must lie in 0\.\.2, got -1"),
    "labels as floats": (
        calibrator,
        {"y": Y.float()},
        "`targets` must be a tensor of integer class labels, got torch.float32",
    ),
    "labels as a list": (calibrator, {"y": [0] * 8}, "`targets` must be a tensor of integer class labels, got list"),
    "labels of another order": (
        lambda: calibrator(Tokens(), hyperparameters=ScalarLabelSmoothing(K)),
        {"x": torch.randn(4, 6, 5), "y": torch.zeros(6, 4, dtype=torch.int64)},
        r"`targets` must be 24 labels.* of shape \(4, 6\) or \(24,\), got \(6, 4\)",
    ),
    "a map of logits": (
        lambda: calibrator(Map(), hyperparameters=ScalarLabelSmoothing(K)),
        {"x": torch.randn(2, 5, K, K), "y": torch.zeros(2, K, K, dtype=torch.int64)},
        r"`head` must return logits whose classes come last, got a convolution's of shape \(2, 3, 3, 3\)",
    ),
    "too few labels": (calibrator, {"y": Y[:3]}, "`targets` must be 8 labels"),
    "empty meta batch": (
        calibrator,
        {"meta": (X[:0], Y[:0])},
        "`meta targets` must hold at least one sample, got none",
    ),
    "meta labels too high": (calibrator, {"meta": (X, Y + K)}, r"`meta targets` must lie in 0\.\.2"),
    "meta runs out": (calibrator, {"meta": iter([])}, "must not run out of batches; metacal.data.cycle"),
    "meta is a loader": (
        calibrator,
        {"meta": torch.utils.data.DataLoader([1, 2])},
        "must be a batch .x, y. or an iterator of them, got DataLoader; metacal.data.cycle",
    ),
    "meta is not pairs": (calibrator, {"meta": (X, Y, Y)}, "`meta` must give pairs"),
    "lr negative": (calibrator, {"lr": -0.1}, "`lr` must be a number >= 0, got -0.1"),
    "lr nan": (calibrator, {"lr": math.nan}, "`lr` must be a number >= 0, got nan"),
    "lr a string": (calibrator, {"lr": "0.1"}, "`lr` must be a number >= 0, got '0.1'"),
    "base loss of a wrong shape": (
        lambda: calibrator(base_loss=FunctionLoss(nn.CrossEntropyLoss())),
        {},
        r"`base_loss` must return one value per sample, shape \(8,\), got \(\)",
    ),
    "objective without a reduction": (
        lambda: calibrator(objective=CrossEntropy(reduction="none")),
        {},
        r"`objective` must return one number, got shape \(8,\)",
    ),
    "penalty for another head": (
        lambda: calibrator(hyperparameters=UnitwiseL2(nn.Linear(7, K))),
        {},
        "`UnitwiseL2` must be made for the head in use",
    ),
    "lr of two": (calibrator, {"lr": torch.ones(2)}, "`lr` must be a number >= 0"),
    "head that is not trained": (lambda: calibrator(frozen_head()), {}, "`head` must have a parameter that is trained"),
}


@pytest.mark.filterwarnings("ignore:A meta batch shares samples")
@pytest.mark.parametrize("name", STEPS)
def test_step(name):
    make, changes, message = STEPS[name]
    arguments = {"x": X, "y": Y, "meta": batch(8, 2), "lr": 0.1, **changes}
    meta = make()
    before = {key: value.clone() for key, value in meta.hyperparameters.state_dict().items()}
    with pytest.raises(MetacalError, match=message) as raised:
        meta.step(arguments.pop("x"), arguments.pop("y"), **arguments)
    assert isinstance(raised.value, (ValueError, TypeError))
    assert all(torch.equal(value, before[key]) for key, value in meta.hyperparameters.state_dict().items())


@pytest.mark.parametrize(
    "make", [ScalarLabelSmoothing, VectorLabelSmoothing, NonUniformLabelSmoothing, LearnableFocalGamma]
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
    with pytest.raises(MetacalError, match=r"`state` must be what state_dict.. returned"):
        calibrator().load_state_dict({})
    with pytest.raises(MetacalError, match="`loader` must give at least one batch per pass"):
        next(metacal.data.cycle([]))


def test_shared_samples_are_noticed():
    meta = calibrator()
    x, y = batch(8, 1)
    wide = torch.cat((x, x), dim=1)
    net = nn.Sequential(nn.Linear(10, K))
    with pytest.warns(UserWarning, match="shares samples with its training batch"):
        MetaCalibrator(net, "0", ScalarLabelSmoothing(K), every=1).step(wide, y, meta=(wide.flip(0), y.flip(0)), lr=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        meta.step(x, y, meta=batch(8, 2), lr=0.1)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_meta_gradient_that_is_not_finite_is_skipped_counted_and_warned_about_once(bad):
    net = nn.Sequential(nn.Linear(5, K))
    meta = MetaCalibrator(net, "0", NonUniformLabelSmoothing(K, initial="uniform"), every=1)
    x_meta, y_meta = batch(8, 2)
    broken = x_meta.clone()
    broken[3] = bad
    meta.step(*batch(8, 1), meta=(x_meta, y_meta), lr=0.1)
    before = {key: value.clone() for key, value in meta.hyperparameters.state_dict().items()}
    with pytest.warns(UserWarning, match="meta-gradient was not finite"):
        loss = meta.step(*batch(8, 3), meta=(broken, y_meta), lr=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        meta.step(*batch(8, 4), meta=(broken, y_meta), lr=0.1)
    assert meta.skipped == 2 and math.isfinite(loss.item())
    assert all(torch.equal(value, before[key]) for key, value in meta.hyperparameters.state_dict().items())
    meta.step(*batch(8, 5), meta=(x_meta, y_meta), lr=0.1)
    assert all(torch.isfinite(value).all() for value in meta.hyperparameters.state_dict().values())
    assert "2 skipped" in meta.summary()
