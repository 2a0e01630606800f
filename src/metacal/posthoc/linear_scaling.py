"""Calibrators of the form ``softmax(W x + b)``: vector, matrix and Dirichlet calibration, by one convex fit."""

from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metacal.functional.arguments import check_not_negative
from metacal.functional.temperature import fit_temperature
from metacal.posthoc.base import Calibrator, FitReport, check_fitted, like, to_array
from metacal.posthoc.regression import Regression, minimise

RIDGE = 1e-6
"""Pull of the weights towards temperature scaling: too weak to be felt, but it makes the optimum unique and finite."""

TOLERANCE = 1e-7
"""How much the mean NLL may still fall by where a fit ends, about."""


class LinearMap:
    """Base of the linear calibrators; each defines the form of ``W``, its features and its penalty."""

    reads: ClassVar[Literal["logits", "probs"]] = "logits"
    fitted: ClassVar[tuple[str, ...]] = ("weight_", "bias_")

    _is_matrix: ClassVar[bool] = True

    num_classes_: int
    weight_: NDArray[np.float64]
    bias_: NDArray[np.float64]

    def _fit(self, scores: Tensor, targets: Tensor) -> FitReport:
        features, samples = self._features(scores).double(), len(targets)
        found = fit_temperature(logits=features, targets=targets, validate=False).temperature
        inverse = 1.0 / min(max(found, 0.01), 100.0)
        regression = Regression(features, targets, is_matrix=self._is_matrix, diagonal=inverse)
        others, bias = self._penalties(scores.shape[1])
        weak = 2.0 * samples * RIDGE
        precisions = regression.precisions(weak, weak + 2.0 * samples * others, weak + 2.0 * samples * bias)
        fit = minimise(regression, precisions, tolerance=TOLERANCE * samples)
        self.weight_, self.bias_ = map(to_array, regression.split(fit.parameters))
        return FitReport.of(fit.iterations, fit.converged)

    def _check_fitted(self) -> None:
        check_fitted("weight", self.weight_, (self.num_classes_,) * (2 if self._is_matrix else 1))
        check_fitted("bias", self.bias_, (self.num_classes_,))

    def _apply(self, scores: Tensor) -> Tensor:
        features = self._features(scores).double()
        return torch.softmax(apply_linear(features, like(self.weight_, scores), like(self.bias_, scores)), dim=1)

    def _features(self, scores: Tensor) -> Tensor:
        return scores

    def _penalties(self, num_classes: int) -> tuple[float, float]:
        """Factors of the squares of each weight off the diagonal and of each bias, beside the mean NLL."""
        return 0.0, 0.0


class VectorScaling(LinearMap, Calibrator):
    """``softmax(w * logits + b)`` with a weight and a bias for each class (Guo et al. 2017).

    Needs logits (of probabilities their logarithms serve) and some dozens of samples of every class. Corrects classes
    that are predicted too often or too rarely, and so may change the predicted class.

    Attributes:
        weight_: ``(K,)``.
        bias_: ``(K,)``.

    Examples:
        >>> import numpy as np
        >>> generator = np.random.default_rng(0)
        >>> logits = generator.normal(size=(2000, 3))
        >>> shifted = (logits + [0.0, 0.0, 2.0]).argmax(axis=1)  # class 2 comes more often than the logits say
        >>> targets = np.where(generator.random(2000) < 0.2, generator.integers(3, size=2000), shifted)
        >>> scaling = VectorScaling().fit(logits=logits, targets=targets)
        >>> bool(scaling.bias_[2] > scaling.bias_[0] + 1.0)
        True
    """

    keeps_predictions = False
    shift_matters = True
    _is_matrix = False


class MatrixScaling(LinearMap, Calibrator):
    """``softmax(W logits + b)`` with a full matrix (Guo et al. 2017), off-diagonal and bias regularised (ODIR).

    Needs logits (of probabilities their logarithms serve) and many samples: it has ``K * (K + 1)`` parameters, and
    beyond some ten classes it overfits unless the penalties hold it. May change the predicted class.

    Args:
        off_diagonal_penalty: strength on the mean square of the off-diagonal weights.
        bias_penalty: strength on the mean square of the bias.

    Attributes:
        weight_: ``(K, K)``; row k makes the new logit of class k.
        bias_: ``(K,)``.

    Examples:
        >>> import numpy as np
        >>> generator = np.random.default_rng(0)
        >>> logits = generator.normal(size=(500, 3))
        >>> targets = (logits + generator.normal(size=(500, 3))).argmax(axis=1)
        >>> MatrixScaling().fit(logits=logits, targets=targets).weight_.shape
        (3, 3)
    """

    keeps_predictions = False
    shift_matters = True
    parameters_grow_as_square = True

    def __init__(self, off_diagonal_penalty: float = 1e-3, bias_penalty: float = 1e-3) -> None:
        self.off_diagonal_penalty = off_diagonal_penalty
        self.bias_penalty = bias_penalty

    def _check_params(self) -> None:
        check_not_negative("off_diagonal_penalty", self.off_diagonal_penalty)
        check_not_negative("bias_penalty", self.bias_penalty)

    def _penalties(self, num_classes: int) -> tuple[float, float]:
        """ODIR (Kull et al. 2019): mean square of what is off the diagonal, and of the bias, each with its strength."""
        return self.off_diagonal_penalty / (num_classes * (num_classes - 1)), self.bias_penalty / num_classes


class DirichletCalibration(MatrixScaling):
    """`MatrixScaling` of log-probabilities (Kull et al. 2019): what Dirichlet distributed probabilities would need.

    Needs probabilities (of logits the softmax is taken) and many samples: it has ``K * (K + 1)`` parameters. May change
    the predicted class.

    Examples:
        >>> import numpy as np
        >>> generator = np.random.default_rng(0)
        >>> probs = generator.dirichlet([1.0, 1.0, 1.0], size=500)
        >>> targets = np.array([generator.choice(3, p=row) for row in probs])
        >>> calibrated = DirichletCalibration().fit(probs=probs, targets=targets).predict_proba(probs=probs)
        >>> bool(abs(calibrated - probs).mean() < 0.05)  # calibrated before: little to change
        True
    """

    shift_matters = False

    def _features(self, scores: Tensor) -> Tensor:
        return torch.log_softmax(scores, dim=1)


def apply_linear(features: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Logits ``(n, K)``."""
    return features * weight + bias if weight.ndim == 1 else features @ weight.T + bias
