"""Maps ``softmax(W x + b)``: one convex fit that vector, matrix and Dirichlet calibration share."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from metacal.functional.temperature import fit_temperature

RIDGE = 1e-6
"""Pull of the weights towards temperature scaling: too weak to be felt, but it makes the optimum unique and finite."""

MAX_ITERATIONS = 1000
FLAT = 3e-5
"""Largest entry of the gradient of the mean NLL that counts as an optimum."""

Penalty = Callable[[Tensor, Tensor], Tensor]


class LinearFit(NamedTuple):
    """Weights ``(K,)`` or ``(K, K)`` and bias ``(K,)`` in float64, and how the fit went."""

    weight: Tensor
    bias: Tensor
    iterations: int
    converged: bool


def fit_linear(features: Tensor, targets: Tensor, *, is_matrix: bool, penalty: Penalty | None = None) -> LinearFit:
    """Weights with the best penalised likelihood, by L-BFGS in float64 from the best temperature.

    Args:
        features: ``(n, K)``.
        targets: int64 ``(n,)``.
        is_matrix: a full matrix, or a weight for each class.
        penalty: of ``(weight, bias)``, added to the mean NLL.
    """
    wide = features.detach().double()
    num_classes = wide.shape[1]
    start = 1.0 / min(max(fit_temperature(logits=wide, targets=targets, validate=False).temperature, 0.01), 100.0)
    diagonal = torch.full((num_classes,), start, dtype=torch.float64, device=wide.device)
    anchor = torch.diag(diagonal) if is_matrix else diagonal
    weight = anchor.clone().requires_grad_()
    bias = torch.zeros(num_classes, dtype=torch.float64, device=wide.device, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [weight, bias],
        max_iter=MAX_ITERATIONS,
        max_eval=2 * MAX_ITERATIONS,
        tolerance_grad=FLAT / 10.0,
        tolerance_change=1e-12,
        history_size=20,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = torch.nn.functional.cross_entropy(apply_linear(wide, weight, bias), targets)
        value = value + RIDGE * ((weight - anchor).square().sum() + bias.square().sum())
        if penalty is not None:
            value = value + penalty(weight, bias)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    with torch.enable_grad():
        optimizer.step(loss)  # type: ignore[no-untyped-call]
        loss()
    steepest = max(float(values.grad.abs().max()) for values in (weight, bias) if values.grad is not None)
    iterations = int(optimizer.state[weight]["n_iter"])
    return LinearFit(weight.detach(), bias.detach(), iterations, steepest <= FLAT)


def apply_linear(features: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Logits ``(n, K)``."""
    return features * weight + bias if weight.ndim == 1 else features @ weight.T + bias


def off_diagonal_and_bias(off_diagonal: float, bias_strength: float) -> Penalty:
    """ODIR (Kull et al. 2019): mean square of what is off the diagonal, and of the bias, each with its strength."""

    def penalty(weight: Tensor, bias: Tensor) -> Tensor:
        num_classes = len(bias)
        off = weight.square().sum() - weight.diagonal().square().sum()
        return off_diagonal * off / (num_classes * (num_classes - 1)) + bias_strength * bias.square().mean()

    return penalty
