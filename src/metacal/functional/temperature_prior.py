"""The most probable temperature under a prior: defined for any samples, and found without waiting for the device."""

import torch
from torch import Tensor

from metacal.functional.arguments import check_integer, check_positive
from metacal.functional.boundary import public
from metacal.functional.inputs import class_logits_and_targets

PRIOR_STD = 0.4
"""Standard deviation of log T around 0: a factor of 1.5 either way is ordinary, the data have to show one of 3."""

LARGEST = 7.0
"""Bound of |log T|."""

LOWEST = -1e18
"""Bound of a logit below the largest of its sample; its square is finite in float32."""


@public
@torch.no_grad()
def temperature_with_prior(
    *, logits: Tensor, targets: Tensor, prior_std: float = PRIOR_STD, iterations: int = 8
) -> Tensor:
    r"""T that minimises the summed NLL of ``logits / T`` plus :math:`(\log T)^2 / 2 \sigma^2`.

    Without a prior, samples that are all right by a margin ask for T = 0. With one, T is finite for any samples, and
    many samples outvote it. Newton's method on log T, kept inside a bracket; a fixed number of iterations, all on the
    device.

    Args:
        logits: ``(n, K)``, or one logit per sample. Any float dtype.
        targets: int ``(n,)``. Values are not checked, so that a GPU is never made to wait.
        prior_std: sigma.
        iterations: of Newton's method; 8 give six digits of a T in [0.3, 50], 20 four digits of any, 40 all digits.

    Returns:
        Scalar T > 0, without history, of the (widened) dtype of the logits.

    Examples:
        >>> import torch
        >>> logits, targets = torch.tensor([[9.0, 0.0], [9.0, 0.0]]), torch.tensor([0, 0])
        >>> round(temperature_with_prior(logits=logits, targets=targets).item(), 3)  # separable
        1.0
        >>> targets = torch.tensor([0, 1])
        >>> round(temperature_with_prior(logits=logits, targets=targets).item(), 3)  # over-confident
        2.012
    """
    check_positive("prior_std", prior_std)
    check_integer("iterations", iterations, 1)
    wide, targets = class_logits_and_targets(logits, targets)
    with torch.autocast(wide.device.type, enabled=False):
        # Bounded, so that a logit of -inf (a class that is ruled out) adds nothing instead of 0 times infinity.
        centred = (wide - wide.amax(dim=1, keepdim=True)).clamp(min=LOWEST)
        at_target = centred.gather(1, targets.unsqueeze(1)).sum()
        precision = 1.0 / prior_std**2
        cold = centred.new_zeros(())  # -log T
        low, high = centred.new_full((), -LARGEST), centred.new_full((), LARGEST)
        for _ in range(iterations):
            inverse = torch.exp(cold)
            scaled = centred * inverse
            # A softmax whose largest logit is 0; torch's own takes several times as long for few classes.
            probs = torch.exp(scaled)
            weighted = probs / probs.sum(dim=1, keepdim=True) * scaled
            means = weighted.sum(dim=1)
            flat = (weighted * scaled).sum() - means.square().sum() + precision
            slope = means.sum() - inverse * at_target  # of the NLL
            gradient = torch.add(slope, cold, alpha=precision)
            curvature, safe = flat + slope, flat + slope.clamp(min=0.0)  # the second is never negative
            curvature = torch.where(curvature > 0.1 * safe, curvature, safe)
            low, high = torch.where(gradient < 0.0, cold, low), torch.where(gradient > 0.0, cold, high)
            newton = cold - gradient / curvature
            cold = torch.where(newton == newton.clamp(low, high), newton, torch.lerp(low, high, 0.5))
        return torch.exp(-cold)
