"""Matrix scaling: a full linear map of the logits."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metacal.functional.arguments import check_not_negative
from metacal.posthoc.base import Calibrator, FitReport, check_fitted, like, to_array
from metacal.posthoc.linear import apply_linear, fit_linear, off_diagonal_and_bias
from metacal.posthoc.vector_scaling import not_converged


class MatrixScaling(Calibrator):
    """``softmax(W logits + b)`` with a full matrix (Guo et al. 2017), off-diagonal and bias regularised (ODIR).

    Needs logits (of probabilities their logarithms serve) and many samples: it has ``K * (K + 1)`` parameters, and
    beyond some ten classes it overfits unless the penalties hold it. May change the predicted class.

    Args:
        off_diagonal_penalty: strength on the mean square of the off-diagonal weights.
        bias_penalty: strength on the mean square of the bias.

    Attributes:
        weight: ``(K, K)``; row k makes the new logit of class k.
        bias: ``(K,)``.

    Examples:
        >>> import numpy as np
        >>> generator = np.random.default_rng(0)
        >>> logits = generator.normal(size=(500, 3))
        >>> targets = (logits + generator.normal(size=(500, 3))).argmax(axis=1)
        >>> MatrixScaling().fit(logits=logits, targets=targets).weight.shape
        (3, 3)
    """

    keeps_predictions = False
    reads = "logits"
    shift_matters = True
    fitted = ("weight", "bias")

    weight: NDArray[np.float64]
    bias: NDArray[np.float64]

    def __init__(self, off_diagonal_penalty: float = 1e-3, bias_penalty: float = 1e-3) -> None:
        self.off_diagonal_penalty = off_diagonal_penalty
        self.bias_penalty = bias_penalty

    def _check_params(self) -> None:
        check_not_negative("off_diagonal_penalty", self.off_diagonal_penalty)
        check_not_negative("bias_penalty", self.bias_penalty)

    def _fit(self, scores: Tensor, targets: Tensor) -> FitReport:
        penalty = off_diagonal_and_bias(self.off_diagonal_penalty, self.bias_penalty)
        fit = fit_linear(self._features(scores), targets, is_matrix=True, penalty=penalty)
        self.weight, self.bias = to_array(fit.weight), to_array(fit.bias)
        return FitReport(fit.iterations, fit.converged, warning=not_converged(fit.converged, fit.iterations))

    def _check_fitted(self) -> None:
        check_fitted("weight", self.weight, (self.num_classes, self.num_classes))
        check_fitted("bias", self.bias, (self.num_classes,))

    def _apply(self, scores: Tensor) -> Tensor:
        features = self._features(scores).double()
        return torch.softmax(apply_linear(features, like(self.weight, scores), like(self.bias, scores)), dim=1)

    def _features(self, scores: Tensor) -> Tensor:
        return scores
