"""Figures of a model on several domains: of each, and their average and worst values."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from metacal.functional import brier_score, expected_calibration_error, negative_log_likelihood
from metacal.functional.inputs import at_least_float32

FIGURES = ("error", "ece", "ece_after_temperature", "nll", "nll_after_temperature", "brier")


def score_domain(name: str, logits: Tensor, targets: Tensor, temperature: float = 1.0) -> dict[str, Any]:
    """Return the figures of logits ``(n, K)`` on one domain, some of them also after temperature scaling.

    Examples:
        >>> import torch
        >>> scores = score_domain("fog:3", torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0]))
        >>> scores["samples"], scores["error"]
        (2, 0.5)
    """
    wide = at_least_float32(logits)
    confidences, predicted = wide.softmax(dim=1).max(dim=1)
    scaled = wide / temperature
    return {
        "name": name,
        "samples": len(targets),
        "error": float((predicted != targets).double().mean()),
        "ece": float(expected_calibration_error(logits=wide, targets=targets)),
        "ece_after_temperature": float(expected_calibration_error(logits=scaled, targets=targets)),
        "nll": float(negative_log_likelihood(logits=wide, targets=targets)),
        "nll_after_temperature": float(negative_log_likelihood(logits=scaled, targets=targets)),
        "brier": float(brier_score(logits=wide, targets=targets)),
        "confidence": float(confidences.double().mean()),
    }


def score_domains(
    logits: Tensor, targets: Tensor, domains: Tensor, names: Sequence[str], temperature: float = 1.0
) -> list[dict[str, Any]]:
    """Return the figures of every domain; ``domains`` ``(n,)`` is the domain number of each sample."""
    rows = ((name, domains == number) for number, name in enumerate(names))
    return [score_domain(name, logits[chosen], targets[chosen], temperature) for name, chosen in rows]


def summarise(scores: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the ``average`` and the ``worst`` (largest) value of every figure over domains."""
    values = {figure: [each[figure] for each in scores] for figure in FIGURES}
    return {
        "average": {figure: sum(listed) / len(listed) for figure, listed in values.items()},
        "worst": {figure: max(listed) for figure, listed in values.items()},
    }
