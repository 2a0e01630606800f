"""Figures of one model on several domains: each on its own, their average, and the worst of them."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from metacal.errors import InvalidValueError
from metacal.functional import brier_score, expected_calibration_error, negative_log_likelihood
from metacal.functional.inputs import at_least_float32

FIGURES = ("error", "ece", "ece_after_temperature", "nll", "nll_after_temperature", "brier")


@dataclass(frozen=True)
class DomainScores:
    """Figures on one domain.

    Attributes:
        name: of the domain.
        samples: how many.
        error: share wrong.
        ece: expected calibration error, 15 bins.
        ece_after_temperature: the same with logits divided by a temperature that was fitted elsewhere.
        nll: negative log-likelihood, nats.
        nll_after_temperature: likewise.
        brier: Brier score.
        confidence: mean confidence.
    """

    name: str
    samples: int
    error: float
    ece: float
    ece_after_temperature: float
    nll: float
    nll_after_temperature: float
    brier: float
    confidence: float

    def as_dict(self) -> dict[str, float | str]:
        """For JSON."""
        return asdict(self)


def score_domain(name: str, logits: Tensor, targets: Tensor, temperature: float = 1.0) -> DomainScores:
    """Figures of logits ``(n, K)`` on one domain.

    Examples:
        >>> import torch
        >>> scores = score_domain("fog:3", torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0]))
        >>> scores.samples, scores.error
        (2, 0.5)
    """
    wide = at_least_float32(logits)
    confidences, predicted = wide.softmax(dim=1).max(dim=1)
    scaled = wide / temperature
    return DomainScores(
        name,
        len(targets),
        float((predicted != targets).double().mean()),
        float(expected_calibration_error(logits=wide, targets=targets)),
        float(expected_calibration_error(logits=scaled, targets=targets)),
        float(negative_log_likelihood(logits=wide, targets=targets)),
        float(negative_log_likelihood(logits=scaled, targets=targets)),
        float(brier_score(logits=wide, targets=targets)),
        float(confidences.double().mean()),
    )


def score_domains(
    logits: Tensor, targets: Tensor, domains: Tensor, names: Sequence[str], temperature: float = 1.0
) -> list[DomainScores]:
    """Figures of every domain, where ``domains`` ``(n,)`` says by number which sample is of which."""
    if domains.shape != targets.shape:
        raise InvalidValueError(
            f"`domains` must hold a number for each of {len(targets)} samples, got shape {tuple(domains.shape)}."
        )
    rows = ((name, domains == number) for number, name in enumerate(names))
    return [score_domain(name, logits[chosen], targets[chosen], temperature) for name, chosen in rows]


def average(scores: Iterable[DomainScores]) -> dict[str, float]:
    """The mean of every figure over domains."""
    every = list(scores)
    return {figure: sum(getattr(each, figure) for each in every) / len(every) for figure in FIGURES}


def worst(scores: Iterable[DomainScores]) -> dict[str, float]:
    """The largest of every figure, each on the domain where it is largest."""
    every = list(scores)
    return {figure: max(getattr(each, figure) for each in every) for figure in FIGURES}


def summarise(scores: Iterable[DomainScores]) -> dict[str, Any]:
    """Average, worst and each, for JSON."""
    every = list(scores)
    return {"average": average(every), "worst": worst(every), "each": [score.as_dict() for score in every]}
