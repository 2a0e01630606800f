"""Multinomial regression ``softmax((d I + U) x + b)`` under Gaussian priors, by L-BFGS that starts from the curvature.

All of vector, matrix, Dirichlet and structured scaling are this one convex problem; they differ in x, in d, in whether
U is diagonal, and in the precisions of the priors that hold U and b near 0. Scores are computed in the dtype of x, sums
over chunks and parameters are float64. Features and probabilities are kept as ``(K, n)``: a softmax over the first
dimension is vectorised over samples, many times as fast as one over short rows.
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
CHUNK = 131_072
"""Scores that are worked on at a time: what is made of them stays in the cache."""

CURVATURE_ROWS, CURVATURE_SHARE = 256, 8
"""At least so many samples, four a parameter, and one sample in eight give the curvature: the optimum stays."""

APART = 10.0
"""Where priors of other weights are so many times as precise, diagonal and bias have a curvature of their own."""

WHOLE = 300
"""Parameters of a matrix up to which its whole curvature is computed."""

Step = Callable[[Tensor], Tensor]
"""A gradient to a step."""


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


class OwnCurvature(NamedTuple):
    """Second derivatives of the total NLL by the parameters of one class; samples count by ``p * (1 - p)`` for it.

    Attributes:
        vector: ``(2, K)``, by the diagonal of U and by b; the second is the sum of these weights.
        both: ``(K,)``, by the diagonal and b.
        means: ``(K, K)``, of a full U: the mean features for each class.
        variances: ``(K, K)``, sums of their squared deviations from that.
    """

    vector: Tensor
    both: Tensor
    means: Tensor | None = None
    variances: Tensor | None = None


class Fit(NamedTuple):
    """The flat parameters ``(U, b)``, steps, and whether the optimum was reached."""

    parameters: Tensor
    iterations: int
    converged: bool


class Regression:
    """The total NLL as a function of the flat parameters ``(U, b)``; U has ``K`` or ``K * K`` entries.

    Args:
        features: x, ``(n, K)``.
        targets: int64 ``(n,)``.
        is_matrix: whether U is full; otherwise it is its diagonal.
        diagonal: d.
    """

    def __init__(self, features: Tensor, targets: Tensor, *, is_matrix: bool, diagonal: float = 1.0) -> None:
        self.is_matrix, self.diagonal = is_matrix, diagonal
        self.num_classes = num_classes = features.shape[1]
        self.num_weights = num_classes**2 if is_matrix else num_classes
        self.targets = targets.unsqueeze(0)
        self.features = features.T.contiguous()
        counts = torch.bincount(targets, minlength=num_classes).double()
        of_target = features if is_matrix else self.features.gather(0, self.targets).squeeze(0)
        sums = counts.new_zeros(num_classes, *of_target.shape[1:]).index_add_(0, targets, of_target.double())
        self.observed = torch.cat((sums.reshape(-1), counts))
        columns = max(1, CHUNK // num_classes)
        self.chunks = tuple(
            zip(*(torch.split(each, columns, dim=1) for each in (self.features, self.targets)), strict=True)
        )
        self._last: tuple[Tensor, tuple[Tensor, Tensor]] | None = None

    @property
    def is_vector(self) -> Tensor:
        """Which of the parameters are the diagonal of U or b."""
        is_bias = torch.ones(self.num_classes, dtype=torch.bool, device=self.observed.device)
        return torch.cat((torch.diag(is_bias).reshape(-1) if self.is_matrix else is_bias, is_bias))

    def split(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Weight and bias of x."""
        weight, bias = parameters[: self.num_weights], parameters[self.num_weights :]
        if not self.is_matrix:
            return weight + self.diagonal, bias
        weight = weight.view(self.num_classes, -1).clone()
        weight.diagonal().add_(self.diagonal)
        return weight, bias

    def precisions(self, diagonal: Tensor | float, others: Tensor | float, bias: Tensor | float) -> Tensor:
        """One for each parameter."""
        found = torch.empty_like(self.observed)
        found[: self.num_weights] = others if self.is_matrix else diagonal
        if self.is_matrix:
            found[: self.num_weights].view(self.num_classes, -1).diagonal().fill_(diagonal)
        found[self.num_weights :] = bias
        return found

    def at(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Total NLL and its gradient; where it was asked for the last time costs nothing."""
        if self._last is not None and self._last[0] is parameters:
            return self._last[1]
        weight, bias = (each.to(self.features) for each in self.split(parameters))
        nll, gradient = parameters.new_zeros(()), -self.observed
        for x, y in self.chunks:
            probs = self._probs(x, weight, bias)
            nll -= probs.gather(0, y).clamp_(min=torch.finfo(probs.dtype).tiny).double().log_().sum()
            weight_sums = probs @ x.T if self.is_matrix else torch.linalg.vecdot(probs, x, dim=1)
            gradient += torch.cat((weight_sums.reshape(-1), probs.sum(dim=1)))
        self._last = parameters, (nll, gradient)
        return nll, gradient

    def _probs(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        if self.is_matrix:
            return torch.softmax(torch.addmm(bias.unsqueeze(1), weight, x), dim=0)
        return torch.softmax((x * weight.unsqueeze(1)).add_(bias.unsqueeze(1)), dim=0)

    def _some(self, parameters: Tensor, fewest: int) -> tuple[Tensor, Tensor, float]:
        """Features of all samples, or of some at equal distances, what is predicted, and how many each stands for."""
        weight, bias = (each.to(self.features) for each in self.split(parameters))
        samples = self.features.shape[1]
        x = self.features[:, :: max(1, samples // max(CURVATURE_ROWS, fewest, samples // CURVATURE_SHARE))]
        return x, self._probs(x, weight, bias), samples / x.shape[1]

    def own_curvature(self, parameters: Tensor) -> OwnCurvature:
        """Of all samples; that of a matrix of some of them, scaled."""
        if not self.is_matrix:
            weight, bias = (each.to(self.features) for each in self.split(parameters))
            found = self.observed.new_zeros(3, self.num_classes)
            for x, _ in self.chunks:
                probs = self._probs(x, weight, bias)
                spread = torch.addcmul(probs, probs, probs, value=-1.0)
                weighted = spread * x
                found += torch.stack((torch.linalg.vecdot(weighted, x), spread.sum(dim=1), weighted.sum(dim=1)))
            return OwnCurvature(found[:2], found[2])
        x, probs, scale = self._some(parameters, 4 * self.num_classes)
        spread = torch.addcmul(probs, probs, probs, value=-1.0).mul_(scale)
        sums, squares = (spread @ x.T).double(), (spread @ x.square().T).double()
        vector = torch.stack((squares.diagonal(), spread.sum(dim=1).double()))
        means = sums / vector[1].clamp(min=1e-30).unsqueeze(1)
        variances = torch.addcmul(squares, sums, means, value=-1.0).clamp_(min=0.0)
        return OwnCurvature(vector, sums.diagonal(), means, variances)

    def curvature(self, parameters: Tensor) -> Curvature:
        """Of all samples, or of some of them, scaled."""
        num_classes, is_whole = self.num_classes, self.is_matrix and len(parameters) <= WHOLE
        x, probs, scale = self._some(parameters, 4 * (len(parameters) if is_whole else num_classes))
        weighted = probs * x
        both = torch.cat((weighted, probs))
        vector = (both @ both.T).double().neg_()
        sums = weighted.sum(dim=1)
        vector[:num_classes, num_classes:].diagonal().add_(sums)
        vector[num_classes:, :num_classes].diagonal().add_(sums)
        vector.diagonal().add_(torch.cat((torch.linalg.vecdot(weighted, x, dim=1), probs.sum(dim=1))))
        inputs, whole = x.new_zeros(()), None
        extended = torch.cat((x, torch.ones_like(x[:1]))) if self.is_matrix else x
        if self.is_matrix:
            undecided = 1.0 - torch.linalg.vecdot(probs, probs, dim=0)
            inputs = (extended * undecided) @ extended.T / undecided.sum().clamp(min=1e-30)
        if is_whole:
            pairs = (probs.unsqueeze(1) * extended).flatten(0, 1)  # (K * (K + 1), n), one class after another
            blocks = (pairs @ extended.T).view(num_classes, num_classes + 1, num_classes + 1)
            whole = (pairs @ pairs.T).neg_()
            split = whole.view(num_classes, num_classes + 1, num_classes, num_classes + 1)
            split.diagonal(dim1=0, dim2=2).add_(blocks.permute(1, 2, 0))
            places = torch.arange(len(whole), device=x.device).view(num_classes, num_classes + 1)
            order = torch.cat((places[:, :-1].reshape(-1), places[:, -1]))
            whole = scale * whole[order][:, order].double()
        return Curvature(scale * vector, inputs, whole)


def minimise(
    regression: Regression,
    precisions: Tensor,
    *,
    start: Tensor | None = None,
    precondition: Step | None = None,
    refresh: int = REFRESH,
    tolerance: float,
) -> Fit:
    """Parameters with the least penalised NLL.

    Args:
        regression: the likelihood.
        precisions: of the priors, one for each parameter.
        start: 0 by default.
        precondition: the first steps' estimate of the inverse Hessian; `preconditioner` by default.
        refresh: steps after which it is computed anew by `preconditioner`.
        tolerance: Newton decrement, about twice what the total NLL can still fall by, at which a last step ends it.
    """
    parameters = torch.zeros_like(precisions) if start is None else start

    def at(point: Tensor) -> tuple[Tensor, Tensor]:
        nll, gradient = regression.at(point)
        pull = precisions * point
        return nll + 0.5 * (pull @ point), gradient + pull

    value, gradient = at(parameters)
    pairs: list[tuple[Tensor, Tensor, Tensor]] = []
    for iteration in range(MAX_ITERATIONS):
        if precondition is None or (iteration and iteration % refresh == 0):
            precondition, pairs = preconditioner(regression, regression.curvature(parameters), precisions), []
        direction = _direction(gradient, precondition, pairs)
        decrement = float(direction @ gradient)
        if decrement <= tolerance:
            return Fit(parameters - direction, iteration, True)  # so short a step needs no check
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


def preconditioner(regression: Regression, curvature: Curvature, precisions: Tensor) -> Step:
    """A gradient to a step: Newton's where the curvature is known, along the axes of `Curvature` for a large matrix.

    Where priors hold diagonal and bias less than the rest, these are apart.
    """
    num_classes, num_weights = regression.num_classes, regression.num_weights
    if curvature.whole is not None:
        return _solver(curvature.whole, precisions)
    if not regression.is_matrix:
        return _solver(curvature.vector, precisions)
    is_vector = regression.is_vector
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


def own_preconditioner(regression: Regression, curvature: OwnCurvature, precisions: Tensor) -> Step:
    """As `preconditioner`, at next to no cost: classes are taken for independent, and so are a class's weights.

    The weights off the diagonal are so but for their sum with the mean features, along which they are a bias.
    """
    num_classes, num_weights = regression.num_classes, regression.num_weights
    is_vector = regression.is_vector if regression.is_matrix else None
    vector = curvature.vector + (precisions if is_vector is None else precisions[is_vector]).view(2, num_classes)
    crossed, both = vector.flip(0), curvature.both
    determinant = vector[0] * vector[1] - both.square()

    def solve(gradient: Tensor) -> Tensor:
        pair = gradient.view(2, num_classes)
        return ((crossed * pair - both * pair.flip(0)) / determinant).view(-1)

    if is_vector is None:
        return solve
    assert curvature.means is not None and curvature.variances is not None
    widths = (curvature.variances + precisions[:num_weights].view(num_classes, -1)).reciprocal_()
    widths.diagonal().zero_()
    along = curvature.means * widths
    sizes = curvature.vector[1].reciprocal() + torch.linalg.vecdot(along, curvature.means)
    along_sizes = along / sizes.unsqueeze(1)

    def precondition(gradient: Tensor) -> Tensor:
        rows = gradient[:num_weights].view(num_classes, -1)
        weights = torch.addcmul(rows * widths, along_sizes, torch.linalg.vecdot(along, rows).unsqueeze(1), value=-1.0)
        out = torch.cat((weights.view(-1), gradient[num_weights:]))
        out[is_vector] = solve(gradient[is_vector])
        return out

    return precondition


def _solver(curvature: Tensor, precisions: Tensor) -> Step:
    root, _ = torch.linalg.cholesky_ex(curvature + torch.diag(precisions))
    return lambda gradient: torch.cholesky_solve(gradient.unsqueeze(1), root).squeeze(1)


def _direction(gradient: Tensor, precondition: Step, pairs: list[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
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
