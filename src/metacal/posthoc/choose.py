"""Chooses the simplest calibrator whose cross-validated likelihood is within noise of the best."""

import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor

from metacal.errors import InvalidValueError, MetacalWarning
from metacal.functional.arguments import check_integer
from metacal.functional.boundary import explained
from metacal.posthoc.arrays import Given, read_scores
from metacal.posthoc.base import Calibrator

FOLDS = 5
NONE = "none"
HELD, FREE = "structured_matrix", ("dirichlet", "matrix")
HOPELESS = 4.0
"""Standard errors behind the best from which a calibrator is not tried on further folds."""


class Trial(NamedTuple):
    """The cross-validated result of one calibrator.

    Attributes:
        name: in `metacal.posthoc.CALIBRATORS`, or ``"none"`` for the scores as they are.
        nll: mean over the samples, each scored by the fit on the other folds; None if it was not tried.
        keeps_predictions: whether every predicted class stays.
        behind: how much higher the NLL is than the best one's on the same samples.
        behind_error: the standard error of that.
        accuracy: share of samples that are right.
        note: why it was not tried on all folds, or what the fits warned of.
    """

    name: str
    nll: float | None
    keeps_predictions: bool
    behind: float | None = None
    behind_error: float | None = None
    accuracy: float | None = None
    note: str = ""


class _Race:
    """The losses of one candidate so far; NaN if not scored yet."""

    def __init__(self, name: str, calibrator: Calibrator | None, targets: Tensor) -> None:
        self.name, self.calibrator = name, calibrator
        self.losses = torch.full(targets.shape, torch.nan, dtype=torch.float64, device=targets.device)
        self.right = torch.zeros_like(targets, dtype=torch.bool)
        self.notes: list[str] = []
        self.is_out = False

    def score(self, given: Given, targets: Tensor, held_out: Tensor) -> None:
        """Fit on all other samples, and store the losses of these."""
        said = held_out_probs(self.calibrator, given, targets, held_out, self.notes)
        labels = targets[held_out]
        self.losses[held_out] = -said.double().gather(1, labels.unsqueeze(1)).squeeze(1).clamp(max=1.0).log()
        self.right[held_out] = said.argmax(dim=1) == labels

    def behind(self, other: "_Race") -> tuple[float, float]:
        """Mean and standard error of the difference in loss, on samples scored by both."""
        differences = self.losses - other.losses
        differences = differences[~differences.isnan()]
        if not bool(differences.isfinite().all()):
            return float("inf"), 0.0
        return float(differences.mean()), float(differences.std() / len(differences) ** 0.5)

    @property
    def mean(self) -> float:
        """NLL so far."""
        return float(self.losses[~self.losses.isnan()].mean())


@explained
def choose_calibrator(
    *, logits: Any = None, probs: Any = None, targets: Any, folds: int = FOLDS, seed: int = 0
) -> tuple[str, list[Trial]]:
    """Return the simplest calibrator with a CV NLL within one standard error of the best, and all trials.

    The standard error is that of the difference in loss, sample by sample. Simplest first: none, then the order of
    `CALIBRATORS`. One that is four standard errors behind after a fold is not tried on the others. Calibrators with a
    parameter for every pair of classes are left out where there are more parameters than samples, and those without
    priors where `StructuredMatrixScaling` is that far behind already.

    The scores and targets are those of `Calibrator.fit`; ``seed`` is of the draw of the folds.

    Examples:
        >>> import numpy as np
        >>> generator = np.random.default_rng(1)
        >>> logits = 2.0 * generator.normal(size=(3000, 3))
        >>> targets = (logits + generator.gumbel(size=(3000, 3))).argmax(axis=1)  # drawn from softmax(logits)
        >>> name, trials = choose_calibrator(logits=3.0 * logits, targets=targets)
        >>> name, len(trials)
        ('temperature', 10)
    """
    from metacal.posthoc import CALIBRATORS

    check_integer("folds", folds, 2)
    given, labels = read_scores(logits, probs, targets)
    assert labels is not None
    parts = draw_folds(labels, folds, seed)
    num_classes = given.scores.shape[1]
    parameters = num_classes * (num_classes + 1)
    untried = {
        name for name, kind in CALIBRATORS.items() if kind.parameters_grow_as_square and parameters > len(labels)
    }
    races = [_Race(NONE, None, labels)]
    races += [_Race(name, kind(), labels) for name, kind in CALIBRATORS.items() if name not in untried]
    for number, held_out in enumerate(parts, start=1):
        running: list[_Race] = []
        for race in races:
            held = next((other for other in running if other.name == HELD), None)
            if race.name in FREE and held is not None and _is_hopeless(held, running):
                race.is_out, race.notes = True, [f"not tried: {HELD}, the same under priors, is far behind"]
            if not race.is_out:
                race.score(given, labels, held_out)
                running.append(race)
        for race in running:
            if number < folds and race.calibrator is not None and _is_hopeless(race, running):
                race.is_out = True
                race.notes.insert(0, f"dropped after {number} of {folds} folds")
    best = min((race for race in races if not race.is_out), key=lambda race: race.mean)
    behind = {race.name: race.behind(best) for race in races if not race.is_out}
    chosen = next(name for name, (difference, error) in behind.items() if difference <= error)
    found = {race.name: _trial(race, best) for race in races}
    note = f"not tried: {parameters:,} parameters for {len(labels):,} samples"
    for name in untried:
        found[name] = Trial(name, None, CALIBRATORS[name].keeps_predictions, note=note)
    return chosen, [found[name] for name in (NONE, *CALIBRATORS)]


def draw_folds(targets: Tensor, folds: int = FOLDS, seed: int = 0) -> list[Tensor]:
    """Draw the sample numbers of each fold."""
    if len(targets) < 2 * folds:
        raise InvalidValueError(f"`targets` must hold at least {2 * folds} samples to choose by, got {len(targets)}.")
    order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(seed)).to(targets.device)
    return [order[first::folds] for first in range(folds)]


def held_out_probs(
    calibrator: Calibrator | None, given: Given, targets: Tensor, held_out: Tensor, notes: list[str] | None = None
) -> Tensor:
    """Return probabilities of some samples by a fit on all others; new warnings are added to the notes."""
    if calibrator is None:
        return Given(given.scores[held_out], given.is_logits, is_tensor=True, is_flat=False).probs
    is_used = torch.ones_like(targets, dtype=torch.bool)
    is_used[held_out] = False
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", MetacalWarning)
        scores: dict[str, Any] = {given.name: given.scores[is_used]}
        calibrator.fit(**scores, targets=targets[is_used])
    if notes is not None:
        notes += [text for each in caught if (text := str(each.message)) not in notes]
    said: Tensor = calibrator.predict_proba(**{given.name: given.scores[held_out]})
    return said


def _is_hopeless(race: _Race, running: list[_Race]) -> bool:
    difference, error = race.behind(min(running, key=lambda other: other.mean))
    return difference > HOPELESS * error


def _trial(race: _Race, best: _Race) -> Trial:
    is_scored = ~race.losses.isnan()
    if not bool(is_scored.any()):
        return Trial(race.name, None, False, note="; ".join(race.notes))
    difference, error = race.behind(best)
    return Trial(
        race.name,
        race.mean,
        race.calibrator is None or race.calibrator.keeps_predictions,
        difference,
        error,
        float(race.right[is_scored].double().mean()),
        "; ".join(race.notes),
    )
