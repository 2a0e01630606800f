"""Differentiable calibration of a batch against loops over the definitions."""

import itertools
import math

import pytest
import torch
from tests import oracles
from tests.functional import samples

from metacal.errors import InvalidValueError
from metacal.functional import (
    dece,
    expected_calibration_error,
    mdca,
    mmce,
    mmce_weighted,
    smooth_calibration_error,
    smooth_ece,
    soft_avuc,
    soft_binned_ece,
)
from metacal.functional.batch_losses import soft_accuracies, soft_bin_memberships


@pytest.mark.parametrize(("n", "num_classes"), [(1, 2), (2, 5), (30, 3), (64, 10), (20, 100)])
@pytest.mark.parametrize(
    "arguments",
    [{}, {"num_bins": 1}, {"num_bins": 10, "tau_a": 50.0, "tau_b": 0.02}, {"num_bins": 40, "tau_a": 500.0}],
)
def test_equals_the_definition(n, num_classes, arguments):
    logits, targets = samples.multiclass(n, num_classes, dtype=torch.float64)
    expected = oracles.pairwise_dece(logits.numpy(), targets.numpy(), **arguments)
    assert dece(logits=logits, targets=targets, **arguments).item() == pytest.approx(expected, abs=1e-10)
    narrow = dece(logits=logits.float(), targets=targets, **arguments).item()
    assert narrow == pytest.approx(expected, abs=2e-4)


def test_sharp_dece_is_ece():
    logits, targets = samples.multiclass(500, 5, dtype=torch.float64)
    sharp = dece(logits=logits, targets=targets, tau_a=1e6, tau_b=1e-6).item()
    assert sharp == pytest.approx(expected_calibration_error(logits=logits, targets=targets).item(), abs=1e-3)


def test_soft_accuracies_of_known_ranks():
    probs = torch.tensor([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2], [0.4, 0.4, 0.2]])
    values = soft_accuracies(probs, torch.tensor([0, 1, 0]), tau_a=1000.0)
    assert values.tolist() == pytest.approx([1.0, 0.0, 0.5], abs=1e-6)


def test_memberships_sum_to_1_and_cross_at_the_edges():
    edges = torch.arange(1, 10, dtype=torch.float64) / 10
    members = soft_bin_memberships(edges, 10, tau_b=0.01)
    torch.testing.assert_close(members.sum(1), torch.ones(9, dtype=torch.float64))
    rows = torch.arange(9)
    torch.testing.assert_close(members[rows, rows], members[rows, rows + 1], rtol=1e-9, atol=0.0)
    assert torch.equal(soft_bin_memberships(edges - 0.05, 10, tau_b=0.001).argmax(1), rows)


def test_the_gradient_through_confidences_moves_them_against_the_gap_of_their_bin():
    logits, targets = samples.multiclass(200, 4, dtype=torch.float64)
    leaf = logits.clone().requires_grad_()
    value = dece(logits=leaf, targets=targets, gradient="confidence")
    value.backward()
    probs = logits.softmax(1).requires_grad_()
    confidences = probs.amax(1)
    members = soft_bin_memberships(confidences, 15, 0.01).detach() + 1e-6
    gaps = (members * (soft_accuracies(probs, targets, 100.0) - confidences).unsqueeze(1)).sum(0).detach()
    slopes = -(members * gaps.sign()).sum(1) / len(targets)  # of DECE by each confidence
    top = torch.nn.functional.one_hot(probs.argmax(1), 4)
    by_hand = (slopes * confidences).unsqueeze(1) * (top - probs)  # of a softmax's largest entry by its logits
    torch.testing.assert_close(leaf.grad, by_hand.detach())
    assert value.item() == dece(logits=logits, targets=targets).item()


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # torch's own, inside jvp
def test_forward_mode_holds_the_same_parts():
    logits, targets = samples.multiclass(50, 4, dtype=torch.float64)
    tangent = torch.randn_like(logits)

    def value(z):
        return dece(logits=z, targets=targets, gradient="confidence")

    _, slope = torch.func.jvp(value, (logits,), (tangent,))
    torch.testing.assert_close(slope, (torch.func.grad(value)(logits) * tangent).sum())


def test_the_full_gradient_is_another_one():
    logits, targets = samples.multiclass(200, 4, dtype=torch.float64)
    found = []
    for gradient in ("full", "confidence"):
        leaf = logits.clone().requires_grad_()
        dece(logits=leaf, targets=targets, gradient=gradient).backward()
        found.append(leaf.grad)
    assert (found[0] - found[1]).norm() > 3 * found[1].norm()


def test_unknown_gradients_are_refused():
    logits, targets = samples.multiclass(8, 3)
    with pytest.raises(InvalidValueError, match="`gradient` must be one of 'full', 'confidence', got 'soft'"):
        dece(logits=logits, targets=targets, gradient="soft")


def test_memory_is_linear_in_the_number_of_classes():
    """All pairs of 20,000 classes would be 50 GB."""
    logits, targets = samples.multiclass(32, 20_000)
    value = dece(logits=logits.requires_grad_(), targets=targets)
    value.backward()
    assert 0.0 < value.item() < 1.0 and torch.isfinite(logits.grad).all()


@pytest.mark.parametrize(("n", "num_classes"), [(1, 2), (2, 5), (30, 3), (64, 10)])
def test_equals_the_loop(n, num_classes):
    logits, targets = samples.multiclass(n, num_classes, dtype=torch.float64)
    for num_bins, temperature, power in itertools.product((1, 2, 15), (0.01, 0.1), (1.0, 2.0, 3.0)):
        arguments = {"num_bins": num_bins, "temperature": temperature, "power": power}
        expected = oracles.soft_binned_ece(logits.numpy(), targets.numpy(), **arguments)
        ours = soft_binned_ece(logits=logits, targets=targets, **arguments).item()
        assert ours == pytest.approx(expected, abs=1e-10), arguments
        narrow = soft_binned_ece(logits=logits.float(), targets=targets, **arguments).item()
        assert narrow == pytest.approx(expected, abs=1e-5), arguments


@pytest.mark.parametrize("power", [0.5, 1.0, 1.5, 2.0, 3.0])
def test_zero_has_a_zero_gradient(power):
    for rows, targets in (([[1e4, 0.0], [0.0, 1e4]], [0, 1]), ([[0.0, 0.0], [0.0, 0.0]], [0, 1])):
        logits = torch.tensor(rows, requires_grad=True)
        value = soft_binned_ece(logits=logits, targets=torch.tensor(targets), power=power)
        value.backward()
        assert value.item() == pytest.approx(0.0, abs=1e-6)
        assert torch.isfinite(logits.grad).all()


def test_sharp_value_is_ece():
    logits, targets = samples.multiclass(500, 5, dtype=torch.float64)
    sharp = soft_binned_ece(logits=logits, targets=targets, temperature=1e-7, power=1).item()
    assert sharp == pytest.approx(expected_calibration_error(logits=logits, targets=targets).item(), abs=1e-6)


def test_correctness_carries_no_gradient():
    """One bin: the value is |accuracy - mean confidence|, whose gradient is that of the mean confidence."""
    logits, targets = samples.multiclass(30, 4, dtype=torch.float64)
    logits.requires_grad_()
    (ours,) = torch.autograd.grad(soft_binned_ece(logits=logits, targets=targets, num_bins=1), logits)
    confidences = torch.softmax(logits, 1).amax(1)
    accuracy = (logits.argmax(1) == targets).double().mean()
    (expected,) = torch.autograd.grad((confidences.mean() - accuracy).abs(), logits)
    torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize(("n", "num_classes"), [(1, 2), (2, 5), (30, 3), (64, 10)])
def test_soft_avuc_equals_the_loop(n, num_classes):
    logits, targets = samples.multiclass(n, num_classes, dtype=torch.float64)
    for kappa, temperature in itertools.product((0.1, 0.5, 0.9), (0.01, 0.1, 1.0)):
        expected = oracles.soft_avuc(logits.numpy(), targets.numpy(), kappa, temperature)
        ours = soft_avuc(logits=logits, targets=targets, kappa=kappa, temperature=temperature).item()
        assert ours == pytest.approx(expected, rel=1e-9, abs=1e-12)
        narrow = soft_avuc(logits=logits.float(), targets=targets, kappa=kappa, temperature=temperature).item()
        assert narrow == pytest.approx(expected, rel=2e-3, abs=1e-4)


@pytest.mark.parametrize(("target", "sign"), [(0, -1), (1, 1)])
def test_right_predictions_are_pulled_to_certainty_and_wrong_ones_from_it(target, sign):
    logits = torch.tensor([[1.0, 0.0], [1.5, 0.0]], requires_grad=True)
    soft_avuc(logits=logits, targets=torch.tensor([target, target])).backward()
    assert (logits.grad[:, 0].sign() == sign).all()


def loops(logits, targets):
    confidences, correct = oracles.top_label(oracles.softmax(logits.numpy()), targets.numpy())
    n, rights = len(correct), int(correct.sum())
    plain = weighted = 0.0
    for ci, ri in zip(confidences, correct):
        for cj, rj in zip(confidences, correct):
            kernel = math.exp(-abs(ci - cj) / 0.4)
            plain += (ri - ci) * (rj - cj) * kernel / n**2
            sizes = [rights if right else n - rights for right in (ri, rj)]
            weighted += (ri - ci) * (rj - cj) * kernel / (sizes[0] ** 2 * sizes[1] ** 2)
    return plain, math.sqrt(weighted)


@pytest.mark.parametrize(("n", "num_classes"), [(2, 2), (9, 5), (30, 3), (64, 10)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_the_loops(n, num_classes, dtype):
    logits, targets = samples.multiclass(n, num_classes, dtype=dtype)
    targets[0], targets[1] = logits[0].argmax(), logits[1].argmin()  # at least one right and one wrong
    plain, weighted = loops(logits, targets)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    assert mmce(logits=logits, targets=targets).item() == pytest.approx(plain, abs=tolerance)
    assert mmce_weighted(logits=logits, targets=targets).item() == pytest.approx(weighted, abs=tolerance)


@pytest.mark.parametrize("n", [1, 2, 20])
def test_weighted_form_is_0_without_right_or_without_wrong_predictions(n):
    logits = torch.randn(n, 3, generator=torch.Generator().manual_seed(0))
    for targets in (logits.argmax(1), logits.argmin(1)):
        leaf = logits.clone().requires_grad_()
        value = mmce_weighted(logits=leaf, targets=targets)
        value.backward()
        assert value.item() == 0.0 and not leaf.grad.any()


def test_calibrated_pairs_have_no_mmce():
    assert mmce(logits=torch.zeros(2, 2), targets=torch.tensor([0, 1])).item() == 0.0


def test_mdca_equals_a_loop():
    logits, targets = samples.multiclass(50, 4, dtype=torch.float64)
    probs = logits.softmax(1).numpy()
    gaps = [abs(sum(p[k] for p in probs) - sum(t == k for t in targets.tolist())) / 50 for k in range(4)]
    assert mdca(logits=logits, targets=targets).item() == pytest.approx(sum(gaps) / 4, rel=1e-9)


@pytest.mark.parametrize("n", [1, 2, 64, 500])
def test_smooth_ece_is_the_measure(n):
    logits, targets = samples.multiclass(n, 5)
    expected = smooth_calibration_error(logits=logits, targets=targets).item()
    assert smooth_ece(logits=logits, targets=targets).item() == pytest.approx(expected, rel=1e-6)


def test_the_gradient_of_smooth_ece_is_that_of_the_measure():
    """The bandwidth is the error: held fixed, the gradient would be too large, by half and more here."""
    logits, targets = samples.multiclass(80, 4, dtype=torch.float64)
    leaf = logits.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(smooth_ece(logits=leaf, targets=targets), leaf)
    direction = torch.randn(80, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def value(step):
        return smooth_calibration_error(logits=logits + step * direction, targets=targets).item()

    numeric = (value(1e-4) - value(-1e-4)) / 2e-4
    assert (gradient * direction).sum().item() == pytest.approx(numeric, rel=0.01)
