"""Choosing a calibrator: by the likelihood of samples that it was not fitted on."""

import math
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


class Trial(NamedTuple):
    """How one calibrator did on held-out folds."""

    name: str  # in `metacal.posthoc.CALIBRATORS`, or "none" for the scores as they are
    nll: float | None  # mean over all samples, each scored by the fit on the other folds; None if it was not tried
    keeps_predictions: bool
    note: str = ""  # why it was not tried, or what the fits warned of


@explained
def choose_calibrator(
    *, logits: Any = None, probs: Any = None, targets: Any, folds: int = FOLDS, seed: int = 0
) -> tuple[str, list[Trial]]:
    """Name of the calibrator with the best cross-validated NLL, and what all of them reached.

    Calibrators with a parameter for every pair of classes are left out where there are more parameters than samples; of
    equal likelihoods the first is taken.

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
    if len(labels) < 2 * folds:
        raise InvalidValueError(f"`targets` must hold at least {2 * folds} samples to choose by, got {len(labels)}.")
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed)).to(labels.device)
    parts = [order[first::folds] for first in range(folds)]
    trials = [Trial(NONE, float(_losses(given.probs, labels).mean()), True)]
    num_classes = given.scores.shape[1]
    for name, kind in CALIBRATORS.items():
        if kind.parameters_grow_as_square and num_classes * (num_classes + 1) > len(labels):
            note = f"not tried: {num_classes * (num_classes + 1):,} parameters for {len(labels):,} samples"
            trials.append(Trial(name, None, kind.keeps_predictions, note))
        else:
            trials.append(_try(name, kind(), given, labels, parts))
    best = min((trial for trial in trials if trial.nll is not None), key=lambda trial: trial.nll or 0.0)
    return best.name, trials


def _try(name: str, calibrator: Calibrator, given: Given, targets: Tensor, parts: list[Tensor]) -> Trial:
    losses = torch.zeros(len(targets), dtype=torch.float64, device=targets.device)
    notes: list[str] = []
    for held_out in parts:
        is_used = torch.ones_like(targets, dtype=torch.bool)
        is_used[held_out] = False
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", MetacalWarning)
            scores: dict[str, Any] = {given.name: given.scores[is_used]}
            calibrator.fit(**scores, targets=targets[is_used])
        notes += [str(warning.message) for warning in caught if str(warning.message) not in notes]
        said = calibrator.predict_proba(**{given.name: given.scores[held_out]})
        losses[held_out] = _losses(said, targets[held_out])
    nll = float(losses.mean())
    if math.isinf(nll):
        notes.insert(0, "gave a probability of 0 to a class that came")
    return Trial(name, nll, calibrator.keeps_predictions, "; ".join(notes))


def _losses(probs: Tensor, targets: Tensor) -> Tensor:
    return -probs.double().gather(1, targets.unsqueeze(1)).squeeze(1).clamp(max=1.0).log()
