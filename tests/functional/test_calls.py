"""Wrong calls: every public function says what does not fit and shows how it is called."""

import inspect
import re

import pytest
import torch

from metacal import functional as F
from metacal import losses as L
from metacal import metrics as M
from metacal.errors import InvalidTypeError
from metacal.functional.boundary import explained
from metacal.posthoc import CALIBRATORS, TemperatureScaling, choose_calibrator

LOGITS, TARGETS = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1])
PUBLIC = [name for name in F.__all__ if inspect.isfunction(getattr(F, name))]
MODULES = [*(getattr(L, name) for name in L.__all__), *CALIBRATORS.values()]
WITH_ARGUMENTS = [kind for kind in MODULES if isinstance(kind, type) and "__init__" in vars(kind)]
ECE = (
    "call it as expected_calibration_error(logits=... or probs=..., targets=..., num_bins=15, norm='l1', "
    "multilabel=False, ignore_index=None, validate=True)."
)
FIT = "call it as fit(logits=... or probs=..., targets=..., class_names=None)."


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: F.expected_calibration_error(LOGITS, TARGETS),
            f"`expected_calibration_error` takes no positional arguments, got 2; {ECE}",
        ),
        (
            lambda: F.expected_calibration_error(
                preds=LOGITS, target=TARGETS, task="multiclass", num_classes=2, n_bins=9
            ),
            "`expected_calibration_error` has no argument `preds` (here `probs` or `logits`), `target` (here "
            f"`targets`), `task` (not needed here), `num_classes` (not needed here), `n_bins` (here `num_bins`); {ECE}",
        ),
        (lambda: F.expected_calibration_error(logits=LOGITS), f"`expected_calibration_error` needs `targets`; {ECE}"),
        (
            lambda: F.expected_calibration_error(logits=LOGITS, targets=TARGETS, num_bin=9),
            f"`expected_calibration_error` has no argument `num_bin` (here `num_bins`); {ECE}",
        ),
        (
            lambda: F.expected_calibration_error(logits=LOGITS, targets=TARGETS, colour=9),
            f"`expected_calibration_error` has no argument `colour`; {ECE}",
        ),
        (
            lambda: F.equal_width_statistics(LOGITS, TARGETS, 9, 10),
            "`equal_width_statistics` takes 3 positional arguments, got 4; call it as "
            "equal_width_statistics(confidences, correct, num_bins=15).",
        ),
        (
            lambda: F.equal_width_statistics(LOGITS, confidences=LOGITS),
            "`equal_width_statistics` got `confidences` twice; call it as",
        ),
        (lambda: F.equal_width_statistics(), "`equal_width_statistics` needs `confidences` and `correct`; call it as"),
        (lambda: TemperatureScaling().fit(LOGITS, TARGETS), f"`fit` takes no positional arguments, got 2; {FIT}"),
        (
            lambda: TemperatureScaling().fit(X=LOGITS, y=TARGETS),
            f"`fit` has no argument `X` (here `logits` or `probs`), `y` (here `targets`); {FIT}",
        ),
        (
            lambda: TemperatureScaling().predict_proba(LOGITS),
            "`predict_proba` takes no positional arguments, got 1; call it as predict_proba(logits=... or probs=...).",
        ),
        (
            lambda: L.DECELoss(n_bins=9),
            "`DECELoss` has no argument `n_bins` (here `num_bins`); "
            "call it as DECELoss(num_bins=15, tau_a=100.0, tau_b=0.01, gradient='full').",
        ),
        (
            lambda: L.CrossEntropyLoss(label_smoothing=0.1),
            "`CrossEntropyLoss` has no argument `label_smoothing`; call it as CrossEntropyLoss(",
        ),
        (
            lambda: TemperatureScaling(n_bins=9),
            "`TemperatureScaling` has no argument `n_bins` (here `num_bins`); call it as TemperatureScaling(method=",
        ),
        (lambda: choose_calibrator(LOGITS, TARGETS), "`choose_calibrator` takes no positional arguments, got 2; call"),
        (
            lambda: M.ExpectedCalibrationError(task="multiclass", num_classes=2, n_bins=9),
            "`ExpectedCalibrationError` has no argument `n_bins` (here `num_bins`), `task` (here `num_classes` or "
            "`num_labels`); call it as ExpectedCalibrationError(num_classes=None, num_bins=15, norm='l1', ...).",
        ),
        (
            lambda: M.BrierScore(2, 9),
            "`BrierScore` takes 1 positional argument, got 2; call it as BrierScore(num_classes=None, ...).",
        ),
        (
            lambda: M.BrierScore(2)(preds=LOGITS, target=TARGETS),
            "`update` has no argument `preds` (here `scores`), `target` (here `targets`); call it as "
            "update(scores, targets).",
        ),
        (lambda: M.BrierScore(2).update(LOGITS), "`update` needs `targets`; call it as update(scores, targets)."),
    ],
)
def test_a_wrong_call_shows_the_right_one(call, message):
    with pytest.raises(InvalidTypeError, match=re.escape(message)):
        call()


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_function_explains_itself(name):
    function = getattr(F, name)
    for wrong in (lambda: function(*range(9)), lambda: function(colour="red")):
        with pytest.raises(InvalidTypeError, match=rf"`{name}` .*; call it as {name}\(.*\)\.$"):
            wrong()
    assert function.__doc__ and "colour" not in inspect.signature(function).parameters


@pytest.mark.parametrize("name", M.__all__)
def test_every_metric_explains_itself(name):
    metric = getattr(M, name)
    with pytest.raises(InvalidTypeError, match=rf"`{name}` has no argument `colour`; call it as {name}\(num_classes"):
        metric(2, colour="red")
    with pytest.raises(
        InvalidTypeError, match=r"`update` has no argument `colour`; call it as update\(scores, targets"
    ):
        metric(2).update(colour="red")


@pytest.mark.parametrize("kind", WITH_ARGUMENTS, ids=lambda kind: kind.__name__)
def test_every_loss_and_calibrator_with_arguments_explains_itself(kind):
    name = kind.__name__
    with pytest.raises(InvalidTypeError, match=rf"`{name}` has no argument `n_bins`.*; call it as {name}\(.*\)\.$"):
        kind(n_bins=9)


def test_what_torchmetrics_says_of_its_own_arguments_is_left_alone():
    with pytest.raises(ValueError, match="`dist_sync_on_step` to be an `bool`"):
        M.BrierScore(2, dist_sync_on_step="often")


def test_a_metric_of_yours_may_take_what_it_likes():
    class Anything(M.BrierScore):
        def update(self, *batch):
            super().update(*batch)

    metric = Anything(num_classes=2)
    metric.update(torch.tensor([[0.8, 0.2]]), torch.tensor([0]))
    assert metric.compute().item() == pytest.approx(0.08)


def test_type_errors_inside_a_function_pass_through():
    @explained
    def broken(*, number):
        return number + "one"

    with pytest.raises(TypeError, match="unsupported operand"):
        broken(number=1)
