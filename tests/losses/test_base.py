"""Losses: each is its function; they add, scale, nest, print and pass gradients as sums do."""

import pytest
import torch
from tests.functional import samples
from torch import nn

from metacal import functional as F
from metacal import losses as L
from metacal.errors import InvalidTypeError, InvalidValueError, MetacalError
from metacal.losses import base

# loss, function, arguments of the function, repr
SHELLS = [
    (L.CrossEntropyLoss(), F.cross_entropy, {}, "CrossEntropyLoss(reduction='mean')"),
    (L.CrossEntropyLoss(reduction="sum"), F.cross_entropy, {"reduction": "sum"}, "CrossEntropyLoss(reduction='sum')"),
    (L.LabelSmoothingLoss(), F.label_smoothing_loss, {}, "LabelSmoothingLoss(strength=0.05, reduction='mean')"),
    (
        L.LabelSmoothingLoss(0.2, reduction="none"),
        F.label_smoothing_loss,
        {"strength": 0.2, "reduction": "none"},
        "LabelSmoothingLoss(strength=0.2, reduction='none')",
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
    (L.DualFocalLoss(), F.dual_focal_loss, {}, "DualFocalLoss(gamma=5.0, reduction='mean')"),
    (L.DualFocalLoss(2.0), F.dual_focal_loss, {"gamma": 2.0}, "DualFocalLoss(gamma=2.0, reduction='mean')"),
    (L.MbLSLoss(), F.mbls_loss, {}, "MbLSLoss(margin=10.0, weight=0.1, reduction='mean')"),
    (
        L.MbLSLoss(1.0, 0.5, reduction="sum"),
        F.mbls_loss,
        {"margin": 1.0, "weight": 0.5, "reduction": "sum"},
        "MbLSLoss(margin=1.0, weight=0.5, reduction='sum')",
    ),
    (L.ACLSLoss(), F.acls_loss, {}, "ACLSLoss(margin=10.0, weight=0.1, top=1.0, rest=0.1, reduction='mean')"),
    (
        L.ACLSLoss(0.5, top=2.0, rest=3.0),
        F.acls_loss,
        {"margin": 0.5, "top": 2.0, "rest": 3.0},
        "ACLSLoss(margin=0.5, weight=0.1, top=2.0, rest=3.0, reduction='mean')",
    ),
    (L.LogitNormLoss(), F.logit_norm_loss, {}, "LogitNormLoss(temperature=0.04, reduction='mean')"),
    (
        L.LogitNormLoss(1.0, "none"),
        F.logit_norm_loss,
        {"temperature": 1.0, "reduction": "none"},
        "LogitNormLoss(temperature=1.0, reduction='none')",
    ),
    (L.BrierLoss(), F.brier_loss, {}, "BrierLoss(reduction='mean')"),
    (L.BrierLoss("sum"), F.brier_loss, {"reduction": "sum"}, "BrierLoss(reduction='sum')"),
    (L.DECELoss(), F.dece, {}, "DECELoss(num_bins=15, tau_a=100.0, tau_b=0.01, gradient='full')"),
    (
        L.DECELoss(10, tau_a=50.0, tau_b=0.02),
        F.dece,
        {"num_bins": 10, "tau_a": 50.0, "tau_b": 0.02},
        "DECELoss(num_bins=10, tau_a=50.0, tau_b=0.02, gradient='full')",
    ),
    (L.SBECELoss(), F.soft_binned_ece, {}, "SBECELoss(num_bins=15, temperature=0.01, power=2.0)"),
    (
        L.SBECELoss(5, temperature=0.1, power=1.0),
        F.soft_binned_ece,
        {"num_bins": 5, "temperature": 0.1, "power": 1.0},
        "SBECELoss(num_bins=5, temperature=0.1, power=1.0)",
    ),
    (L.SAvUCLoss(), F.soft_avuc, {}, "SAvUCLoss(kappa=0.5, temperature=0.1)"),
    (
        L.SAvUCLoss(0.3, temperature=1.0),
        F.soft_avuc,
        {"kappa": 0.3, "temperature": 1.0},
        "SAvUCLoss(kappa=0.3, temperature=1.0)",
    ),
    (L.MMCELoss(), F.mmce, {}, "MMCELoss()"),
    (L.MMCEWeightedLoss(), F.mmce_weighted, {}, "MMCEWeightedLoss()"),
    (L.MDCALoss(), F.mdca, {}, "MDCALoss()"),
    (L.SmoothECELoss(), F.smooth_ece, {}, "SmoothECELoss()"),
]
BATCH = samples.multiclass(40, 5)


@pytest.mark.parametrize(("loss", "function", "arguments", "text"), SHELLS, ids=[text for *_, text in SHELLS])
def test_a_loss_is_its_function(loss, function, arguments, text):
    logits, targets = BATCH
    assert torch.equal(loss(logits, targets), function(logits=logits, targets=targets, **arguments))
    one, labels = samples.events((30,))
    assert torch.equal(loss(one, labels), function(logits=one, targets=labels, **arguments))
    assert repr(loss) == text


def test_every_shell_is_in_the_table():
    public = [getattr(L, name) for name in L.__all__]
    shells = {kind for kind in public if isinstance(kind, type) and issubclass(kind, base.ShellLoss)}
    assert shells | {L.CrossEntropyLoss} == {type(loss) for loss, *_ in SHELLS}


def test_the_registry_has_the_names_of_stored_specs():
    stored = {
        "cross_entropy": "CrossEntropyLoss",
        "label_smoothing": "LabelSmoothingLoss",
        "brier": "BrierLoss",
        "focal": "FocalLoss",
        "flsd": "FLSDLoss",
        "dece": "DECELoss",
        "mmce": "MMCELoss",
        "mmce_weighted": "MMCEWeightedLoss",
        "sb_ece": "SBECELoss",
        "s_avuc": "SAvUCLoss",
        "dual_focal": "DualFocalLoss",
        "mbls": "MbLSLoss",
        "acls": "ACLSLoss",
        "logit_norm": "LogitNormLoss",
        "adafocal": "AdaFocalLoss",
        "mdca": "MDCALoss",
        "smooth_ece": "SmoothECELoss",
    }
    assert {name: L.LOSSES[name].__name__ for name in stored} == stored


def test_a_loss_of_ones_own_is_registered_and_may_be_defined_again(monkeypatch):
    monkeypatch.setattr(base, "LOSSES", {"dece": L.DECELoss})
    first, second = (type("MineLoss", (L.Loss,), {}, name="mine") for _ in range(2))
    assert first is not second
    assert base.LOSSES["mine"] is second
    with pytest.raises(InvalidValueError, match="`name` must be of one loss, got 'dece', the name of DECELoss"):
        type("MineLoss", (L.Loss,), {}, name="dece")
    assert base.LOSSES["dece"] is L.DECELoss


def test_options_can_be_changed_after_construction():
    loss = L.FocalLoss(gamma=2.0)
    loss.gamma = 1.0
    assert torch.equal(loss(*BATCH), L.FocalLoss(gamma=1.0)(*BATCH))
    assert repr(loss) == "FocalLoss(gamma=1.0, reduction='mean')"


def test_sums_and_multiples():
    logits, targets = BATCH
    ce, dece, brier = (loss(logits, targets).item() for loss in (L.CrossEntropyLoss(), L.DECELoss(), L.BrierLoss()))
    table = {
        L.CrossEntropyLoss() + L.DECELoss(): ce + dece,
        L.CrossEntropyLoss() + 0.5 * L.DECELoss(): ce + 0.5 * dece,
        L.CrossEntropyLoss() + L.DECELoss() * 0.5: ce + 0.5 * dece,
        2 * (L.CrossEntropyLoss() + 0.5 * L.DECELoss()) + L.BrierLoss(): 2 * ce + dece + brier,
        (L.CrossEntropyLoss() + L.DECELoss()) + (L.BrierLoss() + L.DECELoss()): ce + 2 * dece + brier,
        -1 * L.DECELoss(): -dece,
        0 * L.DECELoss(): 0.0,
    }
    for loss, expected in table.items():
        assert loss(logits, targets).item() == pytest.approx(expected, rel=1e-6), repr(loss)


def test_nested_sums_are_flat_and_print_as_written():
    objective = 0.5 * (L.CrossEntropyLoss() + 2.0 * (L.MMCELoss() + 3 * L.FLSDLoss())) + L.BrierLoss()
    assert [weight for weight, _ in objective.terms()] == [0.5, 1.0, 3.0, 1.0]
    assert not any(isinstance(loss, L.WeightedSum) for _, loss in objective.terms())
    assert repr(objective) == (
        "0.5 * CrossEntropyLoss(reduction='mean') + MMCELoss() + 3 * FLSDLoss(reduction='mean')"
        " + BrierLoss(reduction='mean')"
    )


def test_one_loss_of_weight_one_is_that_loss():
    """What depends on a loss's type (a closed form) must see it through ``1.0 *`` and ``sum()``."""
    loss = L.CrossEntropyLoss()
    for same in (1.0 * loss, loss * 1, loss / 1, 2.0 * (0.5 * loss), sum([loss])):
        assert same is loss
    assert isinstance(2.0 * loss, L.WeightedSum)


def test_adding_leaves_the_parts_alone():
    ce, dece = L.CrossEntropyLoss(), L.DECELoss()
    before = repr(ce), repr(dece)
    total = ce + dece
    assert 3 * total is not total and repr(total) == f"{before[0]} + {before[1]}"
    assert (repr(ce), repr(dece)) == before


def test_unreduced_losses_add_a_sample_at_a_time():
    logits, targets = BATCH
    total = L.CrossEntropyLoss(reduction="none") + 2 * L.BrierLoss("none")
    expected = L.CrossEntropyLoss(reduction="none")(logits, targets) + 2 * L.BrierLoss("none")(logits, targets)
    assert torch.equal(total(logits, targets), expected) and expected.shape == (40,)


def test_gradient_of_a_sum_is_the_sum_of_gradients():
    logits, targets = samples.multiclass(40, 5, dtype=torch.float64)
    logits.requires_grad_()
    parts = [(1.0, L.CrossEntropyLoss()), (0.5, L.DECELoss()), (2.0, L.MMCEWeightedLoss()), (-0.1, L.SAvUCLoss())]
    total = parts[0][1] + 0.5 * parts[1][1] + 2.0 * parts[2][1] + -0.1 * parts[3][1]
    (ours,) = torch.autograd.grad(total(logits, targets), logits)
    expected = sum(weight * torch.autograd.grad(loss(logits, targets), logits)[0] for weight, loss in parts)
    torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-14)


def test_any_callable_is_a_loss():
    logits, targets = BATCH
    wrapped = L.FunctionLoss(nn.CrossEntropyLoss(label_smoothing=0.1))
    torch.testing.assert_close(wrapped(logits, targets), L.LabelSmoothingLoss(0.1)(logits, targets))
    total = wrapped + 0.5 * L.FunctionLoss(nn.functional.cross_entropy)
    expected = wrapped(logits, targets) + 0.5 * nn.functional.cross_entropy(logits, targets)
    torch.testing.assert_close(total(logits, targets), expected)
    assert repr(total) == "FunctionLoss(CrossEntropyLoss()) + 0.5 * FunctionLoss(cross_entropy)"
    weighted = L.FunctionLoss(nn.CrossEntropyLoss(weight=torch.ones(5)))
    assert list((weighted + L.DECELoss()).state_dict()) == ["losses.0.function.weight"]


@pytest.mark.parametrize("other", [1.0, None, nn.CrossEntropyLoss(), "DECE", torch.tensor(1.0)])
def test_adding_what_is_not_a_loss(other):
    with pytest.raises(InvalidTypeError, match=f"A Loss can be added to another Loss, got {type(other).__name__}"):
        L.CrossEntropyLoss() + other


@pytest.mark.parametrize("weight", ["2", None, True, [1.0], torch.tensor(2.0)])
def test_multiplying_by_what_is_not_a_number(weight):
    with pytest.raises(InvalidTypeError, match=f"A Loss can be multiplied by a number, got {type(weight).__name__}"):
        L.CrossEntropyLoss() * weight
    with pytest.raises((InvalidTypeError, TypeError)):
        weight * L.CrossEntropyLoss()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: L.FunctionLoss(3), InvalidTypeError, "`function` must be callable as .logits, targets., got int"),
        (lambda: L.CrossEntropyLoss(reduction="avg"), InvalidValueError, "`reduction` must be one of.*got 'avg'"),
        (lambda: L.BrierLoss("avg"), InvalidValueError, "`reduction` must be one of.*got 'avg'"),
        (lambda: L.FLSDLoss("avg"), InvalidValueError, "`reduction` must be one of.*got 'avg'"),
        (lambda: L.FocalLoss(reduction="avg"), InvalidValueError, "`reduction` must be one of.*got 'avg'"),
        (lambda: L.LabelSmoothingLoss(reduction="avg"), InvalidValueError, "`reduction` must be one of.*got 'avg'"),
        (lambda: L.FocalLoss(-1.0), InvalidValueError, r"`gamma` must be >= 0, got -1\.0"),
        (lambda: L.FocalLoss(float("nan")), InvalidValueError, "`gamma` must be >= 0, got nan"),
        (lambda: L.LabelSmoothingLoss(1.5), InvalidValueError, r"`strength` must be in \[0, 1\], got 1\.5"),
        (lambda: L.DECELoss(0), InvalidValueError, "`num_bins` must be an integer >= 1, got 0"),
        (lambda: L.DECELoss(2.5), InvalidTypeError, r"`num_bins` must be an integer >= 1, got 2\.5"),
        (lambda: L.DECELoss(tau_a=0.0), InvalidValueError, r"`tau_a` must be a number > 0, got 0\.0"),
        (lambda: L.DECELoss(tau_b=-1.0), InvalidValueError, r"`tau_b` must be a number > 0, got -1\.0"),
        (lambda: L.SBECELoss(temperature=0.0), InvalidValueError, r"`temperature` must be a number > 0, got 0\.0"),
        (lambda: L.SBECELoss(power="2"), InvalidTypeError, "`power` must be a number > 0, got '2'"),
        (lambda: L.SAvUCLoss(kappa=1.0), InvalidValueError, r"`kappa` must be in \(0, 1\), got 1\.0"),
        (lambda: L.SAvUCLoss(temperature=-1.0), InvalidValueError, r"`temperature` must be a number > 0, got -1\.0"),
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
