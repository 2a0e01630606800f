"""Temperature by a few L-BFGS iterations: a popular recipe, kept for comparison only (see `fit_temperature`)."""

import torch
from torch import Tensor

from metacal.functional.arguments import check_integer
from metacal.functional.boundary import public
from metacal.functional.inputs import at_least_float32, read_inputs
from metacal.functional.temperature import HIGHEST, LOWEST, TemperatureFit

START, LEARNING_RATE = 1.5, 0.01


@public
def fit_temperature_by_lbfgs(
    *, logits: Tensor, targets: Tensor, max_iterations: int = 50, validate: bool = True
) -> TemperatureFit:
    """Temperature after L-BFGS on the NLL from T = 1.5 with learning rate 0.01 (Guo et al. 2017, as it is mostly run).

    It often stops far from the optimum: with a learning rate of 0.01 fifty iterations do not get far. It is here to
    reproduce figures that were made with it. ``converged`` says whether the slope at the end is flat.

    Args:
        logits: ``(n, K)``, any float dtype.
        targets: int ``(n,)``.
        max_iterations: 50, or 10.
        validate: check values too.

    Examples:
        >>> import torch
        >>> logits = 10 * torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
        >>> fit = fit_temperature_by_lbfgs(logits=logits, targets=torch.tensor([0, 0, 0, 1]))
        >>> round(fit.temperature, 1), fit.converged  # the optimum is 9.1
        (1.9, False)
    """
    check_integer("max_iterations", max_iterations, 1)
    inputs = read_inputs(logits=logits, targets=targets, classes_only=True, validate=validate)
    for _ in inputs.chunks():  # checks values
        pass
    scores = at_least_float32(inputs.scores)
    temperature = torch.full((), START, dtype=scores.dtype, device=scores.device, requires_grad=True)
    optimizer = torch.optim.LBFGS([temperature], lr=LEARNING_RATE, max_iter=max_iterations)

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = torch.nn.functional.cross_entropy(scores / temperature, inputs.targets)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    with torch.enable_grad():
        optimizer.step(loss)  # type: ignore[no-untyped-call]
        loss()
    slope = float(temperature.grad) if temperature.grad is not None else 0.0
    found = float(temperature.detach())
    iterations = int(optimizer.state[temperature]["n_iter"])
    bounded = min(max(found, LOWEST), HIGHEST) if found == found else START
    return TemperatureFit(bounded, iterations, converged=abs(slope) <= 1e-5, at_bound=bounded != found)
