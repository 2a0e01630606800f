"""Losses: each is its function; they add, scale, nest, print and pass gradients as sums do."""

import pytest
import torch
from tests.functional import samples
from torch import nn

from metacal import functional as F
from metacal import losses as L
from metacal.errors import InvalidTypeError, InvalidValueError, MetacalError

# loss, function, arguments of the function, repr
SHELLS = [
    (L.CrossEntropy(), F.cross_entropy, {}, "CrossEntropy(reduction='mean')"),
    (L.CrossEntropy(reduction="sum"), F.cross_entropy, {"reduction": "sum"}, "CrossEntropy(reduction='sum')"),
    (L.LabelSmoothing(), F.label_smoothing_loss, {}, "LabelSmoothing(strength=0.05, reduction='mean')"),
    (
        L.LabelSmoothing(0.2, reduction="none"),
        F.label_smoothing_loss,
        {"strength": 0.2, "reduction": "none"},
        "LabelSmoothing(strength=0.2, reduction='none')",
    ),
    (L.FocalLoss(), F.focal_loss, {}, "FocalLoss(gamma=3.0, reduction='mean')"),
    (
        L.FocalLoss(1.5, reduction="sum"),
        F.focal_loss,
        {"gamma": 1.5, "reduction": "sum"},
        "FocalLoss(gamma=1.5, reduction='sum')",
    ),
    (L.FLSDLoss(), F.flsd_loss, {}, "FLSDLoss(reduction='mean')"),
    (L.FLSDLoss("none"), F.flsd_loss, {"reduction": "none"}, "FLSDLoss(reduction='none')"),
    (L.BrierLoss(), F.brier_loss, {}, "BrierLoss(reduction='mean')"),
    (L.BrierLoss("sum"), F.brier_loss, {"reduction": "sum"}, "BrierLoss(reduction='sum')"),
    (L.DECE(), F.dece, {}, "DECE(num_bins=15, tau_a=100.0, tau_b=0.01, gradient='full')"),
    (
        L.DECE(10, tau_a=50.0, tau_b=0.02),
        F.dece,
        {"num_bins": 10, "tau_a": 50.0, "tau_b": 0.02},
        "DECE(num_bins=10, tau_a=50.0, tau_b=0.02, gradient='full')",
    ),
    (L.SBECE(), F.soft_binned_ece, {}, "SBECE(num_bins=15, temperature=0.01, power=2.0)"),
    (
        L.SBECE(5, temperature=0.1, power=1.0),
        F.soft_binned_ece,
        {"num_bins": 5, "temperature": 0.1, "power": 1.0},
        "SBECE(num_bins=5, temperature=0.1, power=1.0)",
    ),
    (L.SAvUC(), F.soft_avuc, {}, "SAvUC(kappa=0.5, temperature=0.1)"),
    (
        L.SAvUC(0.3, temperature=1.0),
        F.soft_avuc,
        {"kappa": 0.3, "temperature": 1.0},
        "SAvUC(kappa=0.3, temperature=1.0)",
    ),
    (L.MMCE(), F.mmce, {}, "MMCE()"),
    (L.MMCEWeighted(), F.mmce_weighted, {}, "MMCEWeighted()"),
]
BATCH = samples.multiclass(40, 5)


@pytest.mark.parametrize(("loss", "function", "arguments", "text"), SHELLS, ids=[text for *_, text in SHELLS])
def test_a_loss_is_its_function(loss, function, arguments, text):
    logits, targets = BATCH
    assert torch.equal(loss(logits, targets), function(logits=logits, targets=targets, **arguments))
    one, labels = samples.events((30,))
    assert torch.equal(loss(one, labels), function(logits=one, targets=labels, **arguments))
    assert repr(loss) == text


def test_every_public_loss_is_in_the_table():
    shells = {type(loss).__name__ for loss, *_ in SHELLS}
    assert shells | {"Loss", "WeightedSum", "FunctionLoss", "AfterTemperature"} == set(L.__all__)


def test_sums_and_multiples():
    logits, targets = BATCH
    ce, dece, brier = (loss(logits, targets).item() for loss in (L.CrossEntropy(), L.DECE(), L.BrierLoss()))
    table = {
        L.CrossEntropy() + L.DECE(): ce + dece,
        L.CrossEntropy() + 0.5 * L.DECE(): ce + 0.5 * dece,
        L.CrossEntropy() + L.DECE() * 0.5: ce + 0.5 * dece,
        2 * (L.CrossEntropy() + 0.5 * L.DECE()) + L.BrierLoss(): 2 * ce + dece + brier,
        (L.CrossEntropy() + L.DECE()) + (L.BrierLoss() + L.DECE()): ce + 2 * dece + brier,
        -1 * L.DECE(): -dece,
        0 * L.DECE(): 0.0,
    }
    for loss, expected in table.items():
        assert loss(logits, targets).item() == pytest.approx(expected, rel=1e-6), repr(loss)


def test_nested_sums_are_flat_and_print_as_written():
    objective = 0.5 * (L.CrossEntropy() + 2.0 * (L.MMCE() + 3 * L.FLSDLoss())) + L.BrierLoss()
    assert [weight for weight, _ in objective.terms()] == [0.5, 1.0, 3.0, 1.0]
    assert not any(isinstance(loss, L.WeightedSum) for _, loss in objective.terms())
    assert repr(objective) == (
        "0.5 * CrossEntropy(reduction='mean') + MMCE() + 3 * FLSDLoss(reduction='mean') + BrierLoss(reduction='mean')"
    )


def test_one_loss_of_weight_one_is_that_loss():
    """What depends on a loss's type (a closed form) must see it through ``1.0 *`` and ``sum()``."""
    loss = L.CrossEntropy()
    for same in (1.0 * loss, loss * 1, loss / 1, 2.0 * (0.5 * loss), sum([loss])):
        assert same is loss
    assert isinstance(2.0 * loss, L.WeightedSum)


def test_adding_leaves_the_parts_alone():
    ce, dece = L.CrossEntropy(), L.DECE()
    before = repr(ce), repr(dece)
    total = ce + dece
    assert 3 * total is not total and repr(total) == f"{before[0]} + {before[1]}"
    assert (repr(ce), repr(dece)) == before


def test_unreduced_losses_add_a_sample_at_a_time():
    logits, targets = BATCH
    total = L.CrossEntropy(reduction="none") + 2 * L.BrierLoss("none")
    expected = L.CrossEntropy(reduction="none")(logits, targets) + 2 * L.BrierLoss("none")(logits, targets)
    assert torch.equal(total(logits, targets), expected) and expected.shape == (40,)


def test_gradient_of_a_sum_is_the_sum_of_gradients():
    logits, targets = samples.multiclass(40, 5, dtype=torch.float64)
    logits.requires_grad_()
    parts = [(1.0, L.CrossEntropy()), (0.5, L.DECE()), (2.0, L.MMCEWeighted()), (-0.1, L.SAvUC())]
    total = parts[0][1] + 0.5 * parts[1][1] + 2.0 * parts[2][1] + -0.1 * parts[3][1]
    (ours,) = torch.autograd.grad(total(logits, targets), logits)
    expected = sum(weight * torch.autograd.grad(loss(logits, targets), logits)[0] for weight, loss in parts)
    torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-14)


def test_any_callable_is_a_loss():
    logits, targets = BATCH
    wrapped = L.FunctionLoss(nn.CrossEntropyLoss(label_smoothing=0.1))
    torch.testing.assert_close(wrapped(logits, targets), L.LabelSmoothing(0.1)(logits, targets))
    total = wrapped + 0.5 * L.FunctionLoss(nn.functional.cross_entropy)
    expected = wrapped(logits, targets) + 0.5 * nn.functional.cross_entropy(logits, targets)
    torch.testing.assert_close(total(logits, targets), expected)
    assert repr(total) == "FunctionLoss(CrossEntropyLoss()) + 0.5 * FunctionLoss(cross_entropy)"
    weighted = L.FunctionLoss(nn.CrossEntropyLoss(weight=torch.ones(5)))
    assert list((weighted + L.DECE()).state_dict()) == ["losses.0.function.weight"]


@pytest.mark.parametrize("other", [1.0, None, nn.CrossEntropyLoss(), "DECE", torch.tensor(1.0)])
def test_adding_what_is_not_a_loss(other):
    with pytest.raises(InvalidTypeError, match=f"A Loss can be added to another Loss, got {type(other).__name__}"):
        L.CrossEntropy() + other


@pytest.mark.parametrize("weight", ["2", None, True, [1.0], torch.tensor(2.0)])
def test_multiplying_by_what_is_not_a_number(weight):
    with pytest.raises(InvalidTypeError, match=f"A Loss can be multiplied by a number, got {type(weight).__name__}"):
        L.CrossEntropy() * weight
    with pytest.raises((InvalidTypeError, TypeError)):
        weight * L.CrossEntropy()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: L.FunctionLoss(3), InvalidTypeError, "`function` must be callable as .logits, targets., got int"),
        (lambda: L.CrossEntropy(reduction="avg"), InvalidValueError, "`reduction` must be one of.*got 'avg'"),
        (lambda: L.BrierLoss("avg"), InvalidValueError, "`reduction` must be one of.*got 'avg'"),
        (lambda: L.FLSDLoss("avg"), InvalidValueError, "`reduction` must be one of.*got 'avg'"),
        (lambda: L.FocalLoss(reduction="avg"), InvalidValueError, "`reduction` must be one of.*got 'avg'"),
        (lambda: L.LabelSmoothing(reduction="avg"), InvalidValueError, "`reduction` must be one of.*got 'avg'"),
        (lambda: L.FocalLoss(-1.0), InvalidValueError, r"`gamma` must be >= 0, got -1\.0"),
        (lambda: L.FocalLoss(float("nan")), InvalidValueError, "`gamma` must be >= 0, got nan"),
        (lambda: L.LabelSmoothing(1.5), InvalidValueError, r"`strength` must be in \[0, 1\], got 1\.5"),
        (lambda: L.DECE(0), InvalidValueError, "`num_bins` must be an integer >= 1, got 0"),
        (lambda: L.DECE(2.5), InvalidTypeError, r"`num_bins` must be an integer >= 1, got 2\.5"),
        (lambda: L.DECE(tau_a=0.0), InvalidValueError, r"`tau_a` must be a number > 0, got 0\.0"),
        (lambda: L.DECE(tau_b=-1.0), InvalidValueError, r"`tau_b` must be a number > 0, got -1\.0"),
        (lambda: L.SBECE(temperature=0.0), InvalidValueError, r"`temperature` must be a number > 0, got 0\.0"),
        (lambda: L.SBECE(power="2"), InvalidTypeError, "`power` must be a number > 0, got '2'"),
        (lambda: L.SAvUC(kappa=1.0), InvalidValueError, r"`kappa` must be in \(0, 1\), got 1\.0"),
        (lambda: L.SAvUC(temperature=-1.0), InvalidValueError, r"`temperature` must be a number > 0, got -1\.0"),
    ],
)
def test_bad_constructions(make, error, message):
    with pytest.raises(error, match=message) as caught:
        make()
    assert isinstance(caught.value, MetacalError)


def test_a_loss_without_forward_says_so():
    class Nothing(L.Loss):
        pass

    with pytest.raises(NotImplementedError, match=r"Nothing must define forward\(logits, targets\)"):
        Nothing()(*BATCH)
