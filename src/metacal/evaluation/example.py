"""Real predictions that ship with the package, so that everything can be tried without a model or a download."""

from importlib.resources import files

import numpy as np
import torch
from torch import Tensor

EXAMPLE = "wideresnet-16-4-cifar-10.npz"


def example_predictions() -> tuple[Tensor, Tensor]:
    """Test-set probabilities of a WideResNet-16-4 on CIFAR-10.

    Returns:
        float32 probs ``(10000, 10)`` and int64 targets ``(10000,)``.

    Examples:
        >>> from metacal.functional import expected_calibration_error
        >>> probs, targets = example_predictions()
        >>> round(expected_calibration_error(probs=probs, targets=targets).item(), 4)
        0.0537
    """
    resource = files("metacal") / "assets" / EXAMPLE
    with resource.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return torch.from_numpy(arrays["predictions"]), torch.from_numpy(arrays["ground_truth"])
