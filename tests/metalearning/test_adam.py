"""Adam against torch's, skipping on the device, and step sizes that adapt."""

import torch

from metacal.metalearning.adam import LARGEST, SMALLEST, AdamState, adam_step_
from metacal.metalearning.settings import OuterSettings

PLAIN = OuterSettings(adaptive=False, meta_lr=1e-2)
ADAPTIVE = OuterSettings(adaptive=True, meta_lr=1e-4)


def run(settings, gradients, start=0.0):
    parameters = (torch.full(gradients[0].shape, start, dtype=torch.float64),)
    state = AdamState.zeros(parameters)
    for gradient in gradients:
        adam_step_(parameters, (gradient,), state, settings)
    return parameters[0], state


def random_gradients(steps, size=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return list(torch.randn(steps, size, generator=generator, dtype=torch.float64))


def test_is_torchs_adam_when_the_size_is_fixed():
    gradients = random_gradients(20)
    ours, state = run(PLAIN, gradients)
    theirs = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([theirs], lr=1e-2)
    for gradient in gradients:
        theirs.grad = gradient.clone()
        optimizer.step()
    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-10, atol=1e-12)
    assert state.taken == 20 and state.skipped == 0


def test_a_gradient_that_is_not_finite_changes_nothing_but_the_count():
    gradients = random_gradients(6)
    bad = gradients[0].clone()
    bad[2] = torch.nan
    clean, clean_state = run(ADAPTIVE, gradients)
    mixed, mixed_state = run(ADAPTIVE, [bad, *gradients[:3], bad, *gradients[3:]])
    assert torch.equal(clean, mixed) and mixed_state.skipped == 2 and mixed_state.taken == 6
    assert torch.equal(clean_state.sizes[0], mixed_state.sizes[0])


def test_the_size_grows_while_gradients_agree():
    _, state = run(ADAPTIVE, [torch.ones(5, dtype=torch.float64)] * 30)
    assert state.sizes[0] == LARGEST


def test_the_size_shrinks_in_noise():
    _, state = run(OuterSettings(adaptive=True, meta_lr=LARGEST), random_gradients(400, size=50))
    assert state.sizes[0] < 0.1 * LARGEST
    assert state.sizes[0] >= SMALLEST


def test_the_start_hardly_matters():
    gradients = [torch.ones(5, dtype=torch.float64)] * 100
    ends = [run(OuterSettings(adaptive=True, meta_lr=lr), gradients)[0][0].item() for lr in (1e-4, 1e-3, 1e-2)]
    assert max(ends) / min(ends) < 1.1
    fixed = [run(OuterSettings(adaptive=False, meta_lr=lr), gradients)[0][0].item() for lr in (1e-4, 1e-3, 1e-2)]
    assert min(fixed) / max(fixed) > 50


def test_a_change_of_interval_leaves_the_bias_correction_right():
    """With a constant gradient every step is one step size a training step, whatever the intervals were."""
    parameters = (torch.zeros(1, dtype=torch.float64),)
    state = AdamState.zeros(parameters)
    for interval in (1,) * 50 + (16,) * 10 + (4,) * 5:
        before = parameters[0].clone()
        adam_step_(parameters, (torch.ones(1, dtype=torch.float64),), state, PLAIN, interval)
        assert (before - parameters[0]).item() == torch.tensor(1e-2 * interval).item() or torch.isclose(
            before - parameters[0], torch.tensor([1e-2 * interval], dtype=torch.float64), rtol=1e-6
        )


def test_a_gradient_whose_square_overflows_is_skipped():
    parameters = (torch.zeros(2),)
    state = AdamState.zeros(parameters)
    for gradient in (torch.ones(2), torch.full((2,), 3e19), torch.ones(2)):
        adam_step_(parameters, (gradient,), state, PLAIN)
    assert torch.isfinite(parameters[0]).all() and state.skipped == 1 and state.taken == 2
