"""Every public measure, metric and loss as a function of a batch, with the properties it is exempt from and why.

A batch is what functions take: ``logits`` or ``probs``, ``targets``, and ``multilabel=True`` where columns are labels.
`SUBJECTS` and `EXEMPT` together name all that `metacal.functional`, `metacal.metrics` and `metacal.losses` export.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from metacal import functional as F
from metacal import losses as L
from metacal import metrics as M

PROPERTIES = ("order", "duplication", "classes", "batches", "dtype", "extremes", "arrays", "events")

SCORES = ("probs", "logits", "labels")
CLASSES = ("probs", "logits")
BATCH = ("logits", "single")


@dataclass(frozen=True)
class Subject:
    """One public name in one setting.

    Attributes:
        name: the public name.
        call: result of a batch, given by keywords.
        takes: what it is given: ``probs`` and ``logits`` of classes, ``labels`` (probabilities of a multilabel model),
            a ``single`` logit per sample.
        exempt: properties that do not hold, with the reason.
        most: no figure is larger; none is below 0 or NaN.
        tolerance: to which figures of equal samples agree; 0 means to the bit.
        is_pooled: whether L labels of n samples are measured as n L samples of one label.
        is_binned: whether it jumps where rounding takes a confidence over an edge, or makes two of them equal.
        new: of a metric, one that is ready for such a batch.
    """

    name: str
    call: Callable[..., Any]
    takes: tuple[str, ...]
    exempt: dict[str, str] = field(default_factory=dict)
    most: float = 1.0 + 1e-9
    tolerance: float = 0.0
    is_pooled: bool = True
    is_binned: bool = False
    new: Callable[[dict[str, Any]], Any] | None = None

    def figures(self, **batch: Any) -> torch.Tensor:
        """Its result as float64 ``(m,)``."""
        return figures(self.call(**batch))


def figures(result: Any) -> torch.Tensor:
    """Whatever a public function returns as one row of float64 numbers."""
    if isinstance(result, F.BinStatistics):
        result = (result.counts, result.correct_sums, result.confidence_units)
    if isinstance(result, F.TemperatureFit):
        result = result.temperature
    parts = result if isinstance(result, tuple) else (result,)
    return torch.cat([torch.as_tensor(part, dtype=torch.float64).reshape(-1) for part in parts])


def score_name(batch: dict[str, Any]) -> str:
    return "logits" if "logits" in batch else "probs"


STATELESS = {"batches": "has no state to add batches to"}
OF_CLASSES = {"events": "is defined for classes alone"}
JUMPS = {"dtype": "jumps where rounding takes a confidence over an edge, and takes no probabilities, which are exact"}
ADAPTS = {"duplication": "its bins depend on how many samples there are"}
CORRECTS = {"duplication": "corrects for the number of samples"}
SHARP = {"dtype": "is as sharp as tau_a = 100: float32 is too coarse for it"}
LEAST_MASS = {"duplication": "divides by at least 1e-5 samples"}
AS_PUBLISHED = {"duplication": "divides by the fourth power of the number, as published"}
STOPS_SHORT = dict.fromkeys(("order", "duplication", "classes", "dtype"), "fifty steps of L-BFGS magnify rounding")
FLSD = {"dtype": "jumps where p = 0.2"}
DUAL_FOCAL = {"dtype": "jumps where another probability overtakes the true class's"}
WEIGHS_A_PRIOR = {"duplication": "more samples outvote the prior"}


def measure(function, exempt=None, *, takes=SCORES, most=1.0 + 1e-9, tolerance=0.0, is_pooled=True, **own) -> Subject:
    """A function of scores; what agrees to the bit, or nearly so, is made of bins."""
    reasons = STATELESS | ({} if "labels" in takes else OF_CLASSES) | (exempt or {})
    call = lambda **batch: function(**batch, **own)  # noqa: E731
    return Subject(function.__name__, call, takes, reasons, most, tolerance, is_pooled, tolerance <= 1e-12)


def metric(kind, exempt=None, *, most=1.0 + 1e-9, tolerance=0.0, is_pooled=True, **own) -> Subject:
    """A metric."""

    def new(batch):
        scores = np.asarray(batch[score_name(batch)])
        is_events = scores.shape == np.shape(batch["targets"])
        size = {"num_labels" if is_events else "num_classes": scores.shape[1] if scores.ndim > 1 else 1}
        return kind(**size, inputs=score_name(batch), **own)

    def call(**batch):
        made = new(batch)
        made.update(batch[score_name(batch)], batch["targets"])
        return made.compute()

    return Subject(kind.__name__, call, SCORES, exempt or {}, most, tolerance, is_pooled, tolerance <= 1e-12, new)


def loss(function, exempt=None, *, name=None, most=math.inf, **own) -> Subject:
    """A differentiable function of a training batch."""
    call = lambda **batch: function(**batch, **own)  # noqa: E731
    return Subject(name or function.__name__, call, BATCH, STATELESS | (exempt or {}), most, tolerance=2e-5)


def module(made: L.Loss, exempt=None, *, most=math.inf) -> Subject:
    """A loss module."""
    call = lambda logits, targets: made(logits, targets)  # noqa: E731
    return Subject(type(made).__name__, call, BATCH, STATELESS | (exempt or {}), most, tolerance=2e-5)


def of_columns(name, read, exempt=None) -> Subject:
    """A function of confidences and correctness, or of their statistics, given the top label of probabilities."""

    def call(probs, targets):
        confidences, predicted = probs.max(dim=1)
        return read(confidences, predicted == targets)

    reasons = STATELESS | {"events": "takes confidences", "extremes": "takes confidences", "arrays": "test_boundary.py"}
    return Subject(name, call, ("probs",), reasons | (exempt or {}))


def soft_cross_entropy(logits, targets):
    """Of smoothed labels."""
    num_classes = max(2, logits.shape[1]) if logits.ndim > 1 else 2
    labels = F.smooth_labels(targets=targets, num_classes=num_classes, strength=0.25)
    return F.soft_cross_entropy(logits=logits, targets=labels)


SUBJECTS = [
    measure(F.expected_calibration_error),
    measure(F.expected_calibration_error, norm="l2"),
    measure(F.expected_calibration_error, norm="max"),
    measure(F.bin_statistics, {"duplication": "counts samples"}, most=math.inf),
    measure(F.adaptive_calibration_error, ADAPTS),
    measure(F.classwise_calibration_error, tolerance=1e-12, is_pooled=False),
    measure(F.classwise_calibration_error, tolerance=1e-12, is_pooled=False, threshold=0.1),
    measure(F.debiased_calibration_error, CORRECTS),
    measure(F.sweep_calibration_error, ADAPTS),
    measure(F.smooth_calibration_error, tolerance=1e-9),
    measure(F.brier_score, most=2.0 + 1e-6, tolerance=1e-6),
    measure(F.brier_decomposition, most=2.0 + 1e-6, tolerance=1e-6, is_pooled=False),
    measure(F.negative_log_likelihood, most=math.inf, tolerance=1e-6),
    measure(F.likelihood_decomposition, takes=CLASSES, most=math.inf, tolerance=1e-5),
    measure(F.fit_temperature, takes=("logits",), most=1e3, tolerance=1e-3),
    measure(F.fit_temperature_by_lbfgs, STOPS_SHORT, takes=("logits",), most=1e3, tolerance=1e-3),
    measure(
        F.fit_temperature_by_grid,
        JUMPS | {"classes": "takes the first of equal errors, which rounding makes unequal"},
        takes=("logits",),
        most=10.0,
    ),
    measure(F.temperature_grid_errors, JUMPS, takes=("logits",)),
    of_columns("equal_width_statistics", lambda *columns: F.calibration_error(F.equal_width_statistics(*columns))),
    of_columns(
        "equal_mass_statistics", lambda *columns: F.calibration_error(F.equal_mass_statistics(*columns)), ADAPTS
    ),
    of_columns("calibration_error", lambda *columns: F.calibration_error(F.equal_width_statistics(*columns, 7), "l2")),
    of_columns(
        "noise_floor",
        lambda *columns: F.noise_floor(F.equal_width_statistics(*columns)),
        {"duplication": "falls as the number of samples grows"},
    ),
    loss(F.temperature_with_prior, WEIGHS_A_PRIOR, most=math.exp(7.0) + 1e-3, iterations=40),
    loss(F.cross_entropy),
    loss(F.cross_entropy, {"duplication": "is a sum"}, reduction="sum"),
    loss(soft_cross_entropy),
    loss(F.label_smoothing_loss),
    loss(F.focal_loss),
    loss(F.flsd_loss, FLSD),
    loss(F.dual_focal_loss, DUAL_FOCAL),
    loss(F.mbls_loss, margin=1.0),
    loss(F.acls_loss, margin=1.0),
    loss(F.logit_norm_loss),
    loss(F.brier_loss, most=2.0 + 1e-6),
    loss(F.dece, SHARP, most=1.0 + 1e-4),
    loss(F.soft_binned_ece, LEAST_MASS, most=1.0 + 1e-4),
    loss(F.soft_avuc, LEAST_MASS),
    loss(F.mmce, most=1.0 + 1e-4),
    loss(F.mmce_weighted, AS_PUBLISHED),
    loss(F.mdca, most=1.0 + 1e-4),
    loss(F.smooth_ece, most=1.0 + 1e-4),
    metric(M.ExpectedCalibrationError),
    metric(M.AdaptiveCalibrationError, ADAPTS),
    metric(M.ClasswiseCalibrationError, tolerance=1e-12, is_pooled=False),
    metric(M.DebiasedCalibrationError, CORRECTS),
    metric(M.DebiasedCalibrationError, CORRECTS, binning="equal_width"),
    metric(M.SweepCalibrationError, ADAPTS),
    metric(M.SmoothCalibrationError, tolerance=1e-9),
    metric(M.BrierScore, most=2.0 + 1e-6, tolerance=1e-6),
    metric(M.NegativeLogLikelihood, most=math.inf, tolerance=1e-6),
    module(L.CrossEntropyLoss()),
    module(L.LabelSmoothingLoss()),
    module(L.FocalLoss(gamma=2.0)),
    module(L.FLSDLoss(), FLSD),
    module(L.DualFocalLoss(), DUAL_FOCAL),
    module(L.MbLSLoss(margin=1.0)),
    module(L.ACLSLoss(margin=1.0)),
    module(L.LogitNormLoss()),
    module(L.AdaFocalLoss()),
    module(L.BrierLoss(), most=2.0 + 1e-6),
    module(L.DECELoss(), SHARP, most=1.0 + 1e-4),
    module(L.SBECELoss(), LEAST_MASS, most=1.0 + 1e-4),
    module(L.SAvUCLoss(), LEAST_MASS),
    module(L.MMCELoss(), most=1.0 + 1e-4),
    module(L.MMCEWeightedLoss(), AS_PUBLISHED),
    module(L.MDCALoss(), most=1.0 + 1e-4),
    module(L.SmoothECELoss(), most=1.0 + 1e-4),
    module(L.FunctionLoss(torch.nn.functional.cross_entropy), {"events": "knows classes alone"}),
    module(L.CrossEntropyLoss() + 0.5 * L.MMCELoss()),
    module(L.AfterTemperature(L.BrierLoss()), WEIGHS_A_PRIOR, most=2.0 + 1e-6),
]

EXEMPT = {
    "BinStatistics": "a type",
    "Decomposition": "a type",
    "Interval": "a type",
    "TemperatureFit": "a type",
    "bootstrap_interval": "draws rows by their place: test_intervals.py",
    "calibration_error_interval": "draws rows by their place: test_intervals.py",
    "sample_size_warning": "a sentence: test_binning.py",
    "smooth_labels": "labels, not a figure: test_sample_losses.py",
    "LOSSES": "a registry",
    "Loss": "the base of losses: tests/losses/test_base.py",
}
