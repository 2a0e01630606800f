"""What temperature scaling would bring, by cross-fitting: each part of the samples is scaled by what the others say."""

from dataclasses import asdict, dataclass, field

import torch
from torch import Tensor

from metacal.errors import InvalidValueError
from metacal.functional.arguments import check_integer
from metacal.functional.boundary import public
from metacal.functional.calibration_errors import expected_calibration_error
from metacal.functional.proper_scores import negative_log_likelihood
from metacal.functional.temperature import fit_temperature

FOLDS = 5


@dataclass(frozen=True)
class TemperatureGain:
    """NLL and ECE before and after, on samples the temperature was not fitted on.

    Attributes:
        temperature: fitted on all samples: the one to use on new ones.
        at_bound: whether the temperature lies at an end of its range: these samples do not determine it.
        temperatures: float64 ``(n,)``: of each sample, fitted on the parts that it is not in.
    """

    temperature: float
    nll_before: float
    nll_after: float
    ece_before: float
    ece_after: float
    at_bound: bool
    temperatures: Tensor = field(repr=False, compare=False)

    @property
    def helps(self) -> bool:
        """Whether both NLL and ECE fall."""
        return self.nll_after < self.nll_before and self.ece_after < self.ece_before

    def scaled(self, logits: Tensor) -> Tensor:
        """The samples' logits ``(n, K)``, each divided by the temperature of the parts that it is not in."""
        return _scaled(logits, self.temperatures)

    def as_dict(self) -> dict[str, float]:
        """Figures by name, for JSON."""
        return {name: value for name, value in asdict(self).items() if name != "temperatures"}


@public
def temperature_gain(
    *, logits: Tensor, targets: Tensor, num_bins: int = 15, folds: int = FOLDS, seed: int = 0
) -> TemperatureGain | None:
    """Cross-fit a temperature: ``folds`` parts, each scaled by the temperature of the others. None with < 2 samples.

    Examples:
        >>> import torch
        >>> generator = torch.Generator().manual_seed(0)
        >>> logits = 2.0 * torch.randn(4000, 3, generator=generator)
        >>> targets = torch.multinomial(torch.softmax(logits, 1), 1, generator=generator).squeeze(1)
        >>> gain = temperature_gain(logits=3.0 * logits, targets=targets)
        >>> round(gain.temperature), gain.ece_after < gain.ece_before / 4
        (3, True)
    """
    check_integer("folds", folds, 2)
    if logits.ndim != 2:
        raise InvalidValueError(f"`logits` must have shape (n, K), got {tuple(logits.shape)}.")
    if len(targets) < 2:
        return None
    temperatures = _cross_fitted(logits, targets, folds, seed)
    figures = {}
    for name, scores in (("before", logits), ("after", _scaled(logits, temperatures))):
        figures[f"nll_{name}"] = negative_log_likelihood(logits=scores, targets=targets, validate=False).item()
        ece = expected_calibration_error(logits=scores, targets=targets, num_bins=num_bins, validate=False)
        figures[f"ece_{name}"] = ece.item()
    whole = fit_temperature(logits=logits, targets=targets, validate=False)
    return TemperatureGain(temperature=whole.temperature, at_bound=whole.at_bound, temperatures=temperatures, **figures)


def _cross_fitted(logits: Tensor, targets: Tensor, folds: int, seed: int) -> Tensor:
    """float64 ``(n,)``: for each sample the temperature of the parts that it is not in."""
    order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(seed)).to(targets.device)
    part = torch.empty_like(order)
    part[order] = torch.arange(len(order), device=targets.device) % min(folds, len(order))
    temperatures = torch.empty(len(order), dtype=torch.float64, device=logits.device)
    for fold in range(min(folds, len(order))):
        held_out = part == fold
        fit = fit_temperature(logits=logits[~held_out], targets=targets[~held_out], validate=False)
        temperatures[held_out] = fit.temperature
    return temperatures


def _scaled(logits: Tensor, temperatures: Tensor) -> Tensor:
    return (logits - logits.amax(dim=1, keepdim=True)) / temperatures.to(logits.dtype).unsqueeze(1)
