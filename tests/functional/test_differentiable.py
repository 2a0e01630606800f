"""What every differentiable measure owes: right gradients, finite ones everywhere, any dtype, one logit or two."""

import pytest
import torch
from tests.functional import samples

from metacal import functional as F

MEASURES = {
    "dece": F.dece,
    "dece, 10 soft bins": lambda **batch: F.dece(**batch, num_bins=10, tau_a=20.0, tau_b=0.05),
    "soft_binned_ece": F.soft_binned_ece,
    "soft_binned_ece, p = 1": lambda **batch: F.soft_binned_ece(**batch, power=1.0),
    "soft_binned_ece, p = 3": lambda **batch: F.soft_binned_ece(**batch, power=3),
    "soft_avuc": F.soft_avuc,
    "soft_avuc, soft": lambda **batch: F.soft_avuc(**batch, kappa=0.3, temperature=1.0),
    "mmce": F.mmce,
    "mmce_weighted": F.mmce_weighted,
    "brier_loss": F.brier_loss,
    "focal_loss": F.focal_loss,
    "focal_loss, gamma 0": lambda **batch: F.focal_loss(**batch, gamma=0),
    "focal_loss, gamma 1/2": lambda **batch: F.focal_loss(**batch, gamma=0.5),
    "focal_loss, gamma 1": lambda **batch: F.focal_loss(**batch, gamma=1.0),
    "focal_loss, gamma tensor": lambda **batch: F.focal_loss(**batch, gamma=torch.tensor(2.0)),
    "focal_loss, gamma a sample": lambda **batch: F.focal_loss(
        **batch, gamma=torch.linspace(0, 5, len(batch["targets"]))
    ),
    "flsd_loss": F.flsd_loss,
    "dual_focal_loss": F.dual_focal_loss,
    "dual_focal_loss, gamma 1/2": lambda **batch: F.dual_focal_loss(**batch, gamma=0.5),
    "mbls_loss": F.mbls_loss,
    "mbls_loss, no margin": lambda **batch: F.mbls_loss(**batch, margin=0.0, weight=1.0),
    "acls_loss": F.acls_loss,
    "logit_norm_loss": F.logit_norm_loss,
    "mdca": F.mdca,
    "smooth_ece": F.smooth_ece,
    "cross_entropy": F.cross_entropy,
    "label_smoothing_loss": F.label_smoothing_loss,
}
OF_LOGITS = ("acls_loss", "logit_norm_loss")
"""They judge the logits themselves, and not their differences."""
SURE = 1e4


def corner(rows, targets):
    return torch.tensor(rows, dtype=torch.float64), torch.tensor(targets)


CORNERS = {
    "all right": corner([[2.0, 0.0, 1.0], [0.0, 3.0, 1.0], [0.5, 0.0, 1.0]], [0, 1, 2]),
    "all wrong": corner([[2.0, 0.0, 1.0], [0.0, 3.0, 1.0], [0.5, 0.0, 1.0]], [1, 2, 0]),
    "certain and right": corner([[SURE, -SURE, -SURE], [-SURE, SURE, -SURE]], [0, 1]),
    "certain and wrong": corner([[SURE, -SURE, -SURE], [-SURE, SURE, -SURE]], [1, 0]),
    "certain, right and wrong": corner([[SURE, -SURE, 0.0], [-SURE, SURE, 0.0]], [0, 0]),
    "all 0": corner([[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]], [0, 2]),
    "uniform": corner([[7.0, 7.0, 7.0], [-3.0, -3.0, -3.0], [0.1, 0.1, 0.1]], [0, 1, 2]),
    "tied tops": corner([[1.0, 1.0, 0.0], [2.0, 0.0, 2.0]], [1, 0]),
    "one sample, right": corner([[1.0, 0.0]], [0]),
    "one sample, wrong": corner([[1.0, 0.0]], [1]),
    "one sample, certain": corner([[SURE, 0.0]], [0]),
    "two samples, one right": corner([[1.0, 0.0], [1.0, 0.0]], [0, 1]),
    "two samples, both right": corner([[1.0, 0.0], [1.0, 0.0]], [0, 0]),
    "two samples, both wrong": corner([[1.0, 0.0], [1.0, 0.0]], [1, 1]),
    "nearly certain": corner([[17.0, 0.0], [0.0, 90.0]], [0, 1]),
    "same bin, opposite gaps": corner([[0.0, 0.0], [0.0, 0.0]], [0, 1]),
}


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("where", CORNERS)
def test_value_and_gradient_are_finite_everywhere(name, where):
    rows, targets = CORNERS[where]
    for dtype in samples.DTYPES:
        logits = rows.to(dtype).requires_grad_()
        value = MEASURES[name](logits=logits, targets=targets)
        (gradient,) = torch.autograd.grad(value, logits)
        assert value.shape == () and torch.isfinite(value) and value >= -1e-6, dtype
        assert torch.isfinite(gradient).all() and gradient.dtype == dtype, dtype


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("seed", range(3))
def test_gradients_are_those_of_finite_differences(name, seed):
    logits, targets = samples.multiclass(7, 4, seed, torch.float64, scale=1.0)
    assert torch.autograd.gradcheck(
        lambda x: MEASURES[name](logits=x, targets=targets), (logits.requires_grad_(),), eps=1e-7, atol=1e-5, rtol=1e-4
    )


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_input_is_computed_in_float32(name, dtype):
    logits, targets = samples.multiclass(64, 10, dtype=dtype)
    value = MEASURES[name](logits=logits, targets=targets)
    assert value.dtype == torch.float32
    assert torch.equal(value, MEASURES[name](logits=logits.float(), targets=targets))


@pytest.mark.parametrize("name", MEASURES)
def test_autocast_changes_nothing(name):
    logits, targets = samples.multiclass(64, 10)
    plain = MEASURES[name](logits=logits, targets=targets)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = MEASURES[name](logits=logits, targets=targets)
    assert value.dtype == torch.float32 and torch.equal(value, plain)


@pytest.mark.parametrize("name", MEASURES)
def test_one_logit_is_the_pair_of_0_and_it(name):
    one, targets = samples.events((50,), dtype=torch.float64)
    pair = torch.stack((torch.zeros_like(one), one), 1)
    expected = MEASURES[name](logits=pair, targets=targets)
    for logits, labels in ((one, targets), (one[:, None], targets), (one[:, None], targets[:, None])):
        assert torch.equal(MEASURES[name](logits=logits, targets=labels), expected)
    if name in OF_LOGITS:
        return
    halves = torch.stack((-one / 2, one / 2), 1)
    torch.testing.assert_close(MEASURES[name](logits=halves, targets=targets), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", MEASURES)
def test_order_of_samples_and_names_of_classes_do_not_matter(name):
    logits, targets = samples.multiclass(40, 5, dtype=torch.float64)
    expected = MEASURES[name](logits=logits, targets=targets)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    if "a sample" not in name:
        shuffled = MEASURES[name](logits=logits[order], targets=targets[order])
        torch.testing.assert_close(shuffled, expected, rtol=1e-9, atol=1e-12)
    names = torch.randperm(5, generator=torch.Generator().manual_seed(1))
    renamed = MEASURES[name](logits=logits[:, names], targets=torch.argsort(names)[targets])
    torch.testing.assert_close(renamed, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in MEASURES if name not in OF_LOGITS])
def test_a_constant_added_to_the_logits_changes_nothing(name):
    logits, targets = samples.multiclass(40, 5, dtype=torch.float64)
    expected = MEASURES[name](logits=logits, targets=targets)
    shifted = MEASURES[name](logits=logits + 100.0, targets=targets)
    torch.testing.assert_close(shifted, expected, rtol=1e-9, atol=1e-9)
