"""Multinomial regression ``softmax((d I + U) x + b)`` under Gaussian priors, by L-BFGS that starts from the curvature.

All of vector, matrix, Dirichlet and structured scaling are this one convex problem; they differ in x, in d, in whether
U is diagonal, and in the precisions of the priors that hold U and b near 0. Scores are computed in the dtype of x, sums
over chunks and parameters are float64.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

MAX_ITERATIONS = 500
REFRESH = 12
"""Steps after which the curvature is computed anew."""

MEMORY = 10
CHUNK = 65_536
"""Scores that are worked on at a time: what is made of them stays in the cache."""

CURVATURE_ROWS, CURVATURE_SHARE = 512, 8
"""At least so many rows, at least four a parameter, and one row in eight give the curvature: the optimum stays."""

APART = 10.0
"""Where priors of other weights are so many times as precise, diagonal and bias have a curvature of their own."""

WHOLE = 300
"""Parameters of a matrix up to which its whole curvature is computed."""


@dataclass
class Curvature:
    """Second derivatives of the total NLL.

    Attributes:
        vector: ``(2 K, 2 K)``, of the diagonal of U and of b.
        inputs: ``(K + 1, K + 1)``, second moments of x and 1, weighted by how undecided a row is; weights sum to 1.
        whole: of all parameters, where they are few.
    """

    vector: Tensor
    inputs: Tensor
    whole: Tensor | None

    @cached_property
    def axes(self) -> tuple[Tensor, Tensor, Tensor]:
        """Eigenvectors for outputs and inputs of a full U, and the curvature along each pair of them, ``(K, K + 1)``.

        The curvature is taken for the Kronecker product of that of b with ``inputs``.
        """
        num_classes = len(self.vector) // 2
        sizes, axes = torch.linalg.eigh(self.vector[num_classes:, num_classes:].to(self.inputs))
        input_sizes, input_axes = torch.linalg.eigh(self.inputs)
        return axes, input_axes, torch.outer(sizes.clamp(min=0.0), input_sizes.clamp(min=0.0))


class Fit(NamedTuple):
    """The flat parameters ``(U, b)``, steps, and whether the optimum was reached."""

    parameters: Tensor
    iterations: int
    converged: bool


class Regression:
    """The total NLL as a function of the flat parameters ``(U, b)``; U has ``K`` or ``K * K`` entries."""

    def __init__(self, features: Tensor, targets: Tensor, *, is_matrix: bool, diagonal: float = 1.0) -> None:
        self.features, self.targets, self.is_matrix = features, targets.unsqueeze(1), is_matrix
        self.num_classes = num_classes = features.shape[1]
        self.num_weights = num_classes**2 if is_matrix else num_classes
        of_target = features if is_matrix else features.gather(1, self.targets).squeeze(1)
        sums = of_target.new_zeros(num_classes, *of_target.shape[1:], dtype=torch.float64)
        sums.index_add_(0, targets, of_target.double())
        self.observed = torch.cat((sums.reshape(-1), torch.bincount(targets, minlength=num_classes)))
        one = torch.eye(num_classes).to(sums) if is_matrix else sums.new_ones(num_classes)
        self.anchor, self.is_diagonal = diagonal * one, one.reshape(-1) != 0.0
        self._last: tuple[Tensor, tuple[Tensor, Tensor]] | None = None

    def split(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Weight ``d I + U`` and bias."""
        weight, bias = parameters[: self.num_weights], parameters[self.num_weights :]
        return weight.view_as(self.anchor) + self.anchor, bias

    def precisions(self, diagonal: float, others: float, bias: float) -> Tensor:
        """One for each parameter."""
        weights = torch.where(self.is_diagonal, diagonal, others)
        return torch.cat((weights, torch.full_like(weights[: self.num_classes], bias))).to(self.observed)

    def at(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Total NLL and its gradient; where it was asked for the last time costs nothing."""
        if self._last is not None and self._last[0] is parameters:
            return self._last[1]
        weight, bias = (each.to(self.features) for each in self.split(parameters))
        nll, gradient = parameters.new_zeros(()), -self.observed
        rows = max(1, CHUNK // self.num_classes)
        for x, y in zip(torch.split(self.features, rows), torch.split(self.targets, rows), strict=True):
            probs = torch.softmax(self._scores(x, weight, bias), dim=1)
            nll -= probs.gather(1, y).clamp_(min=torch.finfo(probs.dtype).tiny).double().log_().sum()
            weight_sums = probs.T @ x if self.is_matrix else torch.linalg.vecdot(probs, x, dim=0)
            gradient += torch.cat((weight_sums.reshape(-1), probs.sum(dim=0)))
        self._last = parameters, (nll, gradient)
        return nll, gradient

    def _scores(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return torch.addmm(bias, x, weight.T) if self.is_matrix else torch.addcmul(bias, x, weight)

    def curvature(self, parameters: Tensor) -> Curvature:
        """Of all rows, or of some of them, at equal distances, scaled."""
        weight, bias = (each.to(self.features) for each in self.split(parameters))
        num_classes, samples = self.num_classes, len(self.features)
        is_whole = self.is_matrix and len(parameters) <= WHOLE
        fewest = max(CURVATURE_ROWS, 4 * (len(parameters) if is_whole else num_classes), samples // CURVATURE_SHARE)
        x = self.features[:: max(1, samples // fewest)]
        probs = torch.softmax(self._scores(x, weight, bias), dim=1)
        weighted = probs * x
        both = torch.cat((weighted, probs), dim=1)
        vector = (both.T @ both).double().neg_()
        sums = weighted.sum(dim=0)
        vector[:num_classes, num_classes:].diagonal().add_(sums)
        vector[num_classes:, :num_classes].diagonal().add_(sums)
        vector.diagonal().add_(torch.cat((torch.linalg.vecdot(weighted, x, dim=0), probs.sum(dim=0))))
        inputs, whole, scale = x.new_zeros(()), None, samples / len(x)
        extended = torch.cat((x, torch.ones_like(x[:, :1])), dim=1) if self.is_matrix else x
        if self.is_matrix:
            undecided = 1.0 - torch.linalg.vecdot(probs, probs, dim=1)
            inputs = (extended * undecided.unsqueeze(1)).T @ extended / undecided.sum().clamp(min=1e-30)
        if is_whole:
            pairs = (probs.unsqueeze(2) * extended.unsqueeze(1)).flatten(1)  # (n, K * (K + 1)), one class after another
            blocks = (pairs.T @ extended).view(num_classes, num_classes + 1, num_classes + 1)
            whole = torch.block_diag(*blocks) - pairs.T @ pairs  # type: ignore[no-untyped-call]
            places = torch.arange(len(whole), device=x.device).view(num_classes, num_classes + 1)
            order = torch.cat((places[:, :-1].reshape(-1), places[:, -1]))
            whole = scale * whole[order][:, order].double()
        return Curvature(scale * vector, inputs, whole)


def minimise(
    regression: Regression,
    precisions: Tensor,
    *,
    start: Tensor | None = None,
    curvature: Curvature | None = None,
    tolerance: float,
) -> Fit:
    """Parameters with the least penalised NLL.

    Args:
        regression: the likelihood.
        precisions: of the priors, one for each parameter.
        start: 0 by default.
        curvature: at or near the start, if it is known.
        tolerance: Newton decrement, about twice what the total NLL can still fall by, at which it ends.
    """
    parameters = torch.zeros_like(precisions) if start is None else start

    def at(point: Tensor) -> tuple[Tensor, Tensor]:
        nll, gradient = regression.at(point)
        pull = precisions * point
        return nll + 0.5 * (pull @ point), gradient + pull

    value, gradient = at(parameters)
    pairs: list[tuple[Tensor, Tensor, Tensor]] = []
    for iteration in range(MAX_ITERATIONS):
        if iteration % REFRESH == 0:
            here = regression.curvature(parameters) if iteration or curvature is None else curvature
            precondition, pairs = preconditioner(regression, here, precisions), []
        direction = _direction(gradient, precondition, pairs)
        decrement = float(direction @ gradient)
        if decrement <= tolerance:
            return Fit(parameters, iteration, True)
        length = 1.0
        for _ in range(40):
            moved = parameters - length * direction
            reached, following = at(moved)
            rise = float(reached - value)
            if rise <= -1e-4 * length * decrement:
                break
            # To the lowest point of the parabola through both values and the slope, within bounds.
            length *= min(max(0.5 * length * decrement / (rise + length * decrement), 0.1), 0.5)
        else:
            return Fit(parameters, iteration, decrement <= 1e3 * tolerance)  # as low as rounding lets it
        step, change = moved - parameters, following - gradient
        pairs = [*pairs, (step, change, step @ change)][-MEMORY:]
        parameters, value, gradient = moved, reached, following
    return Fit(parameters, MAX_ITERATIONS, False)


def preconditioner(regression: Regression, curvature: Curvature, precisions: Tensor) -> Callable[[Tensor], Tensor]:
    """A gradient to a step: Newton's where the curvature is known, along the axes of `Curvature` for a large matrix.

    Where priors hold diagonal and bias less than the rest, these are apart.
    """
    num_classes, num_weights = regression.num_classes, regression.num_weights
    if curvature.whole is not None:
        return _solver(curvature.whole, precisions)
    if not regression.is_matrix:
        return _solver(curvature.vector, precisions)
    is_vector = torch.cat((regression.is_diagonal, torch.ones_like(regression.is_diagonal[:num_classes])))
    solve = _solver(curvature.vector, precisions[is_vector])
    axes, input_axes, sizes = curvature.axes
    damped = sizes + precisions[1].to(sizes)  # place 1 of row 0: not on the diagonal
    is_apart = bool(precisions[1] > APART * precisions[0])

    def precondition(gradient: Tensor) -> Tensor:
        narrow = gradient.to(axes)
        rows = torch.cat((narrow[:num_weights].view(num_classes, -1), narrow[num_weights:].unsqueeze(1)), dim=1)
        if is_apart:
            rows[:, -1] = 0.0
            rows.diagonal().zero_()
        turned = axes @ ((axes.T @ rows @ input_axes) / damped) @ input_axes.T
        out = torch.cat((turned[:, :-1].reshape(-1), turned[:, -1])).to(gradient)
        if is_apart:
            out[is_vector] = solve(gradient[is_vector])
        return out

    return precondition


def _solver(curvature: Tensor, precisions: Tensor) -> Callable[[Tensor], Tensor]:
    root, _ = torch.linalg.cholesky_ex(curvature + torch.diag(precisions))
    return lambda gradient: torch.cholesky_solve(gradient.unsqueeze(1), root).squeeze(1)


def _direction(
    gradient: Tensor, precondition: Callable[[Tensor], Tensor], pairs: list[tuple[Tensor, Tensor, Tensor]]
) -> Tensor:
    """The gradient times an estimate of the inverse Hessian (the two loops of L-BFGS); the NLL falls against it."""
    direction, shares = gradient.clone(), []
    for step, change, product in reversed(pairs):
        share = (step @ direction) / product
        direction -= share * change
        shares.append(share)
    direction = precondition(direction)
    for (step, change, product), share in zip(pairs, reversed(shares), strict=True):
        direction += (share - (change @ direction) / product) * step
    return direction
