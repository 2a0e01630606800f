"""Dirichlet calibration: a full linear map of the log-probabilities."""

import torch
from torch import Tensor

from metacal.posthoc.matrix_scaling import MatrixScaling


class DirichletCalibration(MatrixScaling):
    """``softmax(W log(probs) + b)``, off-diagonal and bias regularised: ODIR (Kull et al. 2019).

    What the probabilities of each class would need if they were Dirichlet distributed. Needs probabilities (of logits
    the softmax is taken) and many samples: it has ``K * (K + 1)`` parameters. May change the predicted class.

    Args:
        off_diagonal_penalty: strength on the mean square of the off-diagonal weights.
        bias_penalty: strength on the mean square of the bias.

    Attributes:
        weight: ``(K, K)``; row k makes the new logit of class k.
        bias: ``(K,)``.

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
