"""The temperature of the best likelihood, and the most probable one under a prior."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from tests.functional import samples

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.functional import fit_temperature, negative_log_likelihood, temperature_with_prior
from metacal.functional import inputs as inputs_module
from metacal.functional.temperature import LARGEST, PRIOR_STD

RIGHT = torch.tensor([0, 1, 0, 1])
SIDES = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])


def drawn(temperature, dtype, n=20_000, num_classes=6):
    """Logits ``temperature`` times those that the labels were drawn from."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(n, num_classes, generator=generator, dtype=torch.float64) * 2.0
    targets = torch.multinomial(torch.softmax(logits, 1), 1, generator=generator).squeeze(1)
    return (logits * temperature).to(dtype), targets


@pytest.mark.parametrize("dtype", samples.DTYPES)
@pytest.mark.parametrize("temperature", [0.3, 1.0, 3.0, 10.0])
def test_recovers_the_temperature(temperature, dtype):
    logits, targets = drawn(temperature, dtype)
    fit = fit_temperature(logits=logits, targets=targets)
    assert fit.converged and not fit.at_bound and fit.iterations < 30
    assert fit.temperature == pytest.approx(temperature, rel=0.03)
    exact = fit_temperature(logits=logits.double(), targets=targets)
    assert fit.temperature == pytest.approx(exact.temperature, rel=1e-5)
    # The slope of the likelihood is 0 there: a step to either side is worse.
    at, below, above = (
        negative_log_likelihood(logits=logits.double() / (exact.temperature * factor), targets=targets)
        for factor in (1.0, 0.999, 1.001)
    )
    assert at < below and at < above


@pytest.mark.parametrize("temperature", [0.01, 100.0])
def test_recovers_temperatures_far_from_the_start(temperature):
    logits, targets = drawn(temperature, torch.float32, n=5000)
    fit = fit_temperature(logits=logits, targets=targets)
    assert fit.converged and not fit.at_bound
    assert fit.temperature == pytest.approx(temperature, rel=0.05)


@pytest.mark.parametrize("dtype", samples.DTYPES)
@pytest.mark.parametrize("scale", [0.01, 2.0, 10.0, 100.0, 10_000.0])
def test_separable_data_end_at_the_lower_bound(scale, dtype):
    fit = fit_temperature(logits=(SIDES * scale).to(dtype), targets=RIGHT)
    assert fit.temperature == pytest.approx(1e-3, rel=1e-4)
    assert fit.at_bound and fit.converged


@pytest.mark.parametrize("dtype", samples.DTYPES)
@pytest.mark.parametrize("scale", [0.01, 2.0, 10.0, 100.0, 10_000.0])
def test_logits_that_are_always_wrong_end_at_the_upper_bound(scale, dtype):
    fit = fit_temperature(logits=(SIDES * scale).to(dtype), targets=1 - RIGHT)
    assert fit.temperature == pytest.approx(1e3, rel=1e-4)
    assert fit.at_bound and fit.converged


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_class_only_is_defined(dtype):
    logits = torch.randn(500, 3, generator=torch.Generator().manual_seed(0), dtype=dtype)
    logits[:, 0] += 1.0
    fit = fit_temperature(logits=logits, targets=torch.zeros(500, dtype=torch.int64))
    assert fit.converged and not fit.at_bound
    scan = np.geomspace(0.1, 10, 400)
    targets = torch.zeros(500, dtype=torch.int64)
    best = min(scan, key=lambda t: negative_log_likelihood(logits=logits.double() / t, targets=targets).item())
    assert fit.temperature == pytest.approx(best, rel=0.02)


def test_logits_without_a_say_keep_temperature_1():
    fit = fit_temperature(logits=torch.full((5, 3), 7.0), targets=torch.tensor([0, 1, 2, 0, 1]))
    assert fit.temperature == 1.0 and fit.converged and not fit.at_bound


def test_a_constant_added_to_every_row_changes_nothing():
    logits, targets = samples.multiclass(500, 4, dtype=torch.float64)
    logits = (logits * 8).round() / 8
    plain = fit_temperature(logits=logits, targets=targets).temperature
    shifted = fit_temperature(logits=logits + 1000.0, targets=targets).temperature
    assert shifted == pytest.approx(plain, rel=1e-9)


def test_chunks_and_maps_change_nothing(monkeypatch):
    keywords = samples.draw("segmentation", n=50)
    whole = fit_temperature(**keywords).temperature
    monkeypatch.setattr(inputs_module, "CHUNK_ELEMENTS", 7)
    assert fit_temperature(**keywords).temperature == pytest.approx(whole, rel=1e-6)


def test_bad_input():
    with pytest.raises(
        InvalidValueError, match=r"`logits` must have shape \(N, K, ...\) for targets \(N, ...\), got \(3,\)"
    ):
        fit_temperature(logits=torch.zeros(3), targets=torch.tensor([0, 1, 0]))
    with pytest.raises(InvalidValueError, match="`logits` must be finite, got nan in row 1, column 0"):
        fit_temperature(logits=torch.tensor([[0.0, 1.0], [torch.nan, 0.0]]), targets=torch.tensor([0, 1]))
    with pytest.raises(InvalidTypeError, match=r"`targets` must be integer class labels, got torch\.float32"):
        fit_temperature(logits=torch.zeros(2, 2), targets=torch.zeros(2))


@pytest.mark.parametrize("gap", [300.0, 500.0, 700.0, 740.0])
def test_a_sure_mistake_by_hundreds_of_nats(gap):
    """The curvature all but vanishes at the start, and Newton's step is beyond the largest float's square root."""
    logits = torch.tensor([[gap, 0.0]] * 4, dtype=torch.float64)
    fit = fit_temperature(logits=logits, targets=torch.tensor([0, 0, 0, 1]))
    assert fit.converged and fit.temperature == pytest.approx(gap / math.log(3.0), rel=1e-6)


def test_hard_answers_of_which_some_are_wrong():
    """Logits of probabilities 0 and 1 in float64: Newton's first step is too large for a float once it is cubed."""
    logits = torch.eye(3, dtype=torch.float64)[torch.arange(300) % 3].clamp(min=torch.finfo(torch.float64).tiny).log()
    targets = (torch.arange(300) + (torch.arange(300) % 10 == 0)) % 3
    fit = fit_temperature(logits=logits, targets=targets)
    assert fit.converged and not fit.at_bound
    said = torch.softmax(logits / fit.temperature, 1).amax(1)
    assert said[0].item() == pytest.approx(0.9, abs=1e-6)  # 9 of 10 are right


def expected(logits, targets, prior_std=PRIOR_STD):
    """The minimum over log T, by bounded search around the best of a fine grid."""
    z, y = logits.double().numpy(), targets.numpy()

    def value(log_t):
        scaled = z / math.exp(log_t)
        scaled = scaled - scaled.max(axis=1, keepdims=True)
        losses = np.log(np.exp(scaled).sum(axis=1)) - scaled[np.arange(len(y)), y]
        return losses.sum() + log_t**2 / (2.0 * prior_std**2)

    grid = np.linspace(-LARGEST, LARGEST, 281)
    best = grid[int(np.argmin([value(log_t) for log_t in grid]))]
    bounds = max(best - 0.1, -LARGEST), min(best + 0.1, LARGEST)
    return math.exp(minimize_scalar(value, bounds=bounds, method="bounded", options={"xatol": 1e-11}).x)


def drawn_float64(scale, n, seed=0, num_classes=5):
    """Logits of some size, and labels that agree with them now and then."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, num_classes, generator=generator)
    targets = torch.multinomial(torch.softmax(2.0 * logits, 1), 1, generator=generator).squeeze(1)
    return scale * logits, targets


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("prior_std", [0.1, 0.4, 2.0])
@pytest.mark.parametrize("n", [1, 10, 500])
@pytest.mark.parametrize("scale", [0.1, 2.0, 30.0, 1000.0])
def test_it_is_the_minimum(scale, n, prior_std, dtype):
    logits, targets = drawn_float64(scale, n)
    wanted = expected(logits, targets, prior_std)
    found = temperature_with_prior(logits=logits.to(dtype), targets=targets, prior_std=prior_std, iterations=60)
    assert found.dtype == dtype and found.ndim == 0 and not found.requires_grad
    assert found.item() == pytest.approx(wanted, rel=1e-5)
    for iterations, rel in ((8, 2e-6 if 0.3 <= wanted <= 50.0 else 0.5), (20, 1e-4)):
        few = temperature_with_prior(
            logits=logits.to(dtype), targets=targets, prior_std=prior_std, iterations=iterations
        )
        assert few.item() == pytest.approx(wanted, rel=rel)


@pytest.mark.parametrize("margin", [1e-3, 1.0, 10.0, 1e4])
@pytest.mark.parametrize("n", [1, 100, 10_000])
def test_samples_that_are_all_right_by_a_margin(margin, n):
    """Without a prior they ask for T = 0; what is saved by going there is weighed against it."""
    targets = torch.arange(n) % 3
    logits = margin * torch.nn.functional.one_hot(targets, 3).float()
    found = temperature_with_prior(logits=logits, targets=targets, iterations=60)
    assert math.exp(-LARGEST) * 0.999 <= found.item() <= 1.0
    assert found.item() == pytest.approx(expected(logits, targets), rel=1e-4)
    if margin >= 10.0 and n <= 100:
        assert found.item() > 0.5, "nothing more to be gained"


def test_samples_that_are_all_wrong():
    targets = torch.zeros(50, dtype=torch.int64)
    logits = torch.tensor([[0.0, 8.0, 1.0]]).repeat(50, 1)
    found = temperature_with_prior(logits=logits, targets=targets, iterations=60).item()
    assert found == pytest.approx(expected(logits, targets), rel=1e-5) and found > 3.0


def test_many_samples_outvote_the_prior():
    logits, targets = drawn_float64(8.0, 20_000)
    exact = fit_temperature(logits=logits, targets=targets).temperature
    gaps = [
        abs(temperature_with_prior(logits=logits[:n], targets=targets[:n], iterations=40).item() / exact - 1.0)
        for n in (2, 20_000)
    ]
    assert gaps[1] < 0.005 < gaps[0]


def test_nothing_known_is_one():
    """Logits that are all the same say nothing about T."""
    found = temperature_with_prior(logits=torch.zeros(4, 3), targets=torch.tensor([0, 1, 2, 0]))
    assert found.item() == 1.0


def test_extreme_logits():
    targets = torch.tensor([0, 1])
    for size in (1e10, 1e18, 3e38):
        right = temperature_with_prior(logits=torch.tensor([[size, 0.0], [0.0, size]]), targets=targets)
        assert right.item() == pytest.approx(1.0)
        wrong = temperature_with_prior(logits=torch.tensor([[0.0, size], [size, 0.0]]), targets=targets, iterations=60)
        assert wrong.item() == pytest.approx(math.exp(LARGEST), rel=1e-3)


@pytest.mark.parametrize("low", [-math.inf, torch.finfo(torch.float32).min])
def test_classes_that_are_ruled_out_change_nothing(low):
    logits, targets = drawn_float64(4.0, 200, num_classes=3)
    masked = torch.cat((logits, torch.full((200, 2), low)), dim=1)
    found = temperature_with_prior(logits=masked, targets=targets)
    assert found.item() == pytest.approx(temperature_with_prior(logits=logits, targets=targets).item(), rel=1e-5)


def test_logits_that_are_not_numbers_leave_it_at_one():
    """Whoever uses it sees that the loss is not a number; the temperature does not hide it."""
    logits = torch.tensor([[math.nan, 1.0], [2.0, 1.0]])
    assert temperature_with_prior(logits=logits, targets=torch.tensor([0, 1])).item() == 1.0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_logits_are_widened(dtype):
    logits, targets = drawn_float64(4.0, 300)
    found = temperature_with_prior(logits=logits.to(dtype), targets=targets)
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(expected(logits.to(dtype), targets), rel=1e-4)


@pytest.mark.parametrize("shape", [(200,), (200, 1)])
def test_one_logit_per_sample(shape):
    logits, targets = drawn_float64(4.0, 200, num_classes=2)
    one = (logits[:, 1] - logits[:, 0]).reshape(shape)
    found = temperature_with_prior(logits=one, targets=targets)
    assert found.item() == pytest.approx(temperature_with_prior(logits=logits, targets=targets).item(), rel=1e-5)


def test_bad_input_of_the_prior():
    logits, targets = drawn_float64(1.0, 4)
    with pytest.raises(InvalidValueError, match="`prior_std` must be a number > 0, got 0"):
        temperature_with_prior(logits=logits, targets=targets, prior_std=0)
    with pytest.raises(InvalidValueError, match="`iterations` must be an integer >= 1, got 0"):
        temperature_with_prior(logits=logits, targets=targets, iterations=0)
    with pytest.raises(InvalidValueError, match=r"`targets` must have shape \(4,\)"):
        temperature_with_prior(logits=logits, targets=targets[:2])
    with pytest.raises(InvalidValueError, match="at least one sample"):
        temperature_with_prior(logits=logits[:0], targets=targets[:0])
    with pytest.raises(InvalidTypeError, match="`targets`"):
        temperature_with_prior(logits=logits, targets=targets.float())
