"""Vector scaling: a weight and a bias for each class."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metacal.posthoc.base import Calibrator, FitReport, check_fitted, like, to_array
from metacal.posthoc.linear import apply_linear, fit_linear


class VectorScaling(Calibrator):
    """``softmax(w * logits + b)`` with a weight and a bias for each class (Guo et al. 2017).

    Needs logits (of probabilities their logarithms serve) and some dozens of samples of every class. Can mend classes
    that are named too often or too rarely, and so may change the predicted class.

    Attributes:
        weight: ``(K,)``.
        bias: ``(K,)``.

    Examples:
        >>> import numpy as np
        >>> generator = np.random.default_rng(0)
        >>> logits = generator.normal(size=(2000, 3))
        >>> shifted = (logits + [0.0, 0.0, 2.0]).argmax(axis=1)  # class 2 comes more often than the logits say
        >>> targets = np.where(generator.random(2000) < 0.2, generator.integers(3, size=2000), shifted)
        >>> scaling = VectorScaling().fit(logits=logits, targets=targets)
        >>> bool(scaling.bias[2] > scaling.bias[0] + 1.0)
        True
    """

    keeps_predictions = False
    reads = "logits"
    shift_matters = True
    fitted = ("weight", "bias")

    weight: NDArray[np.float64]
    bias: NDArray[np.float64]

    def _fit(self, scores: Tensor, targets: Tensor) -> FitReport:
        fit = fit_linear(scores, targets, is_matrix=False)
        self.weight, self.bias = to_array(fit.weight), to_array(fit.bias)
        return FitReport(fit.iterations, fit.converged, warning=not_converged(fit.converged, fit.iterations))

    def _check_fitted(self) -> None:
        check_fitted("weight", self.weight, (self.num_classes,))
        check_fitted("bias", self.bias, (self.num_classes,))

    def _apply(self, scores: Tensor) -> Tensor:
        logits = apply_linear(scores.double(), like(self.weight, scores), like(self.bias, scores))
        return torch.softmax(logits, dim=1)


def not_converged(converged: bool, iterations: int) -> str | None:
    """One sentence if the optimiser stopped short."""
    return (
        None if converged else f"The fit did not converge in {iterations} iterations: the weights may be improved on."
    )
