"""The public boundary: arrays in and out, and what is said of a wrong call."""

import inspect
import pickle
import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from tests.functional import samples

from metacal import functional as F
from metacal import losses as L
from metacal import metrics as M
from metacal.errors import InvalidTypeError
from metacal.functional.boundary import explained, to_tensor
from metacal.losses import CrossEntropyLoss, DECELoss, FunctionLoss
from metacal.posthoc import CALIBRATORS, TemperatureScaling, choose_calibrator

LOGITS, TARGETS = samples.multiclass(60, 3)
PROBS = torch.softmax(LOGITS, 1)
ECE = F.expected_calibration_error(probs=PROBS, targets=TARGETS)


@pytest.mark.parametrize(
    ("probs", "targets"),
    [
        (PROBS.numpy(), TARGETS.numpy()),
        (PROBS.numpy()[::-1], TARGETS.numpy()[::-1]),
        (PROBS.numpy().astype(">f4"), TARGETS.numpy().astype(np.uint16)),
        (PROBS.numpy().astype(np.longdouble), TARGETS.numpy().astype(np.int8)),
        (PROBS.tolist(), TARGETS.tolist()),
        ([tuple(row) for row in PROBS.tolist()], tuple(TARGETS.tolist())),
        (pd.DataFrame(PROBS.numpy(), index=range(60, 120)), pd.Series(TARGETS.numpy(), index=range(60, 120))),
        (pd.DataFrame(PROBS.numpy()), pd.Series(TARGETS.numpy(), dtype="Int64")),
        (pd.DataFrame(PROBS.numpy()).convert_dtypes(), pd.Series(TARGETS.numpy()).astype(object)),
        (pl.DataFrame(PROBS.numpy()), pl.Series(TARGETS.numpy())),
        (list(PROBS.numpy()), list(TARGETS)),
    ],
)
def test_whatever_holds_the_numbers(probs, targets):
    result = F.expected_calibration_error(probs=probs, targets=targets)
    assert type(result) is np.float64 and result == pytest.approx(ECE.item(), abs=1e-9)
    parts = F.brier_decomposition(probs=probs, targets=targets)
    assert type(parts) is F.Decomposition and type(parts.refinement) is np.float64


def test_read_only_arrays_are_taken_and_none_is_changed():
    probs = PROBS.numpy().copy()
    probs.flags.writeable = False
    assert F.expected_calibration_error(probs=probs, targets=TARGETS.numpy()) == ECE.item()
    logits = LOGITS.numpy().copy()
    for function in (F.negative_log_likelihood, F.brier_score, F.dece, F.soft_avuc):
        function(logits=logits, targets=TARGETS.numpy())
    assert np.array_equal(logits, LOGITS.numpy())


def test_a_tensor_among_the_arguments_keeps_the_result_a_tensor():
    assert torch.equal(F.expected_calibration_error(probs=PROBS, targets=TARGETS.tolist()), ECE)
    assert torch.equal(F.expected_calibration_error(probs=PROBS.numpy(), targets=TARGETS), ECE)
    weighted = F.cross_entropy(logits=LOGITS, targets=TARGETS, class_weights=[1.0, 2.0, 0.5])
    assert weighted == F.cross_entropy(logits=LOGITS, targets=TARGETS, class_weights=torch.tensor([1.0, 2.0, 0.5]))


def test_arrays_come_out_as_arrays_and_numbers_as_numbers():
    losses = F.focal_loss(logits=LOGITS.numpy(), targets=TARGETS.numpy(), gamma=[2.0] * 60, reduction="none")
    assert isinstance(losses, np.ndarray) and losses.shape == (60,) and losses.dtype == np.float64
    labels = F.smooth_labels(targets=[0, 1], num_classes=2, strength=0.1)
    assert isinstance(labels, np.ndarray) and labels[0, 0] == pytest.approx(0.95)
    fit = F.fit_temperature(logits=LOGITS.numpy(), targets=TARGETS.numpy())
    assert fit == F.fit_temperature(logits=LOGITS, targets=TARGETS)
    statistics = F.equal_width_statistics([0.25, 0.75], correct=[True, False], num_bins=2)
    assert torch.equal(statistics.counts, torch.tensor([1, 1]))  # statistics are read by functions of ours


def test_gradients_pass_the_boundary():
    logits = LOGITS.clone().requires_grad_()
    F.dece(logits=logits, targets=TARGETS.numpy()).backward()
    assert logits.grad.abs().sum() > 0


@pytest.mark.parametrize("function", [F.dece, F.cross_entropy, F.mmce])
def test_compiles_without_a_break(function):
    compiled = torch.compile(function, fullgraph=True, backend="eager")
    assert torch.equal(compiled(logits=LOGITS, targets=TARGETS), function(logits=LOGITS, targets=TARGETS))


def test_functions_can_be_pickled():
    assert pickle.loads(pickle.dumps(F.expected_calibration_error)) is F.expected_calibration_error


def test_losses_take_arrays_too():
    objective = CrossEntropyLoss() + 0.5 * DECELoss() + FunctionLoss(torch.nn.functional.cross_entropy)
    result = objective(LOGITS.numpy(), TARGETS.numpy())
    assert type(result) is np.float32 and result == objective(LOGITS, TARGETS).item()
    soft = F.smooth_labels(targets=TARGETS, num_classes=3, strength=0.1)
    assert CrossEntropyLoss()(LOGITS.numpy(), soft.numpy()) == CrossEntropyLoss()(LOGITS, soft).item()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (None, "`targets` must be a tensor or an array of numbers, got NoneType."),
        ("01", "`targets` must be a tensor or an array of numbers, got str."),
        (["cat", "dog"], "`targets` must be a tensor or an array of numbers, got list of dtype <U3."),
        (np.array([0, None]), "`targets` must be a tensor or an array of numbers, got ndarray of dtype object."),
        ({0: 1}, "`targets` must be a tensor or an array of numbers, got dict."),
        (iter([0, 1]), "`targets` must be a tensor or an array of numbers, got list_iterator."),
        ([1j, 0j], "`targets` must be a tensor or an array of numbers, got list of dtype complex128."),
        ([[0], [1, 2]], "`targets` must be a tensor or an array of numbers, got none: "),
        ([torch.ones(1, requires_grad=True)] * 2, "`targets` must be a tensor or an array of numbers, got none: "),
        ([0.0, 1.0], "`targets` must be integer class labels, got torch.float64."),
        (np.ma.array([0, 1], mask=[False, True]), "`targets` must be an array without masked entries"),
    ],
)
def test_what_is_no_array_of_numbers_is_named(values, message):
    for function, name in ((F.expected_calibration_error, "probs"), (F.brier_score, "logits"), (F.dece, "logits")):
        with pytest.raises(InvalidTypeError, match=re.escape(message)):
            function(**{name: torch.tensor([[0.9, 0.1], [0.2, 0.8]])}, targets=values)


def test_an_array_that_is_masked_nowhere_is_an_array():
    assert to_tensor("targets", np.ma.array([0, 1], mask=[False, False])).tolist() == [0, 1]


@pytest.mark.parametrize("function", [F.calibration_error, F.noise_floor, F.sample_size_warning])
def test_statistics_are_asked_for(function):
    with pytest.raises(
        InvalidTypeError, match=r"`statistics` must be BinStatistics, as `bin_statistics` .*, got list\."
    ):
        function([0.1, 0.2])


ROWS, LABELS = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1])
PUBLIC = [name for name in F.__all__ if inspect.isfunction(getattr(F, name))]
MODULES = [*(getattr(L, name) for name in L.__all__), *CALIBRATORS.values()]
WITH_ARGUMENTS = [kind for kind in MODULES if isinstance(kind, type) and "__init__" in vars(kind)]
USAGE = (
    "call it as expected_calibration_error(logits=... or probs=..., targets=..., num_bins=15, norm='l1', "
    "multilabel=False, ignore_index=None, validate=True)."
)
FIT = "call it as fit(X=None, y=None, logits=... or probs=..., targets=None, class_names=None)."


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: F.expected_calibration_error(ROWS, LABELS),
            f"`expected_calibration_error` takes no positional arguments, got 2; {USAGE}",
        ),
        (
            lambda: F.expected_calibration_error(preds=ROWS, target=LABELS, task="multiclass", num_classes=2, n_bins=9),
            "`expected_calibration_error` has no argument `preds` (here `probs` or `logits`), `target` (here "
            "`targets`), `task` (not needed here), `num_classes` (not needed here), `n_bins` (here `num_bins`); "
            f"{USAGE}",
        ),
        (
            lambda: F.expected_calibration_error(logits=ROWS),
            f"`expected_calibration_error` needs `targets`; {USAGE}",
        ),
        (
            lambda: F.expected_calibration_error(logits=ROWS, targets=LABELS, num_bin=9),
            f"`expected_calibration_error` has no argument `num_bin` (here `num_bins`); {USAGE}",
        ),
        (
            lambda: F.expected_calibration_error(logits=ROWS, targets=LABELS, colour=9),
            f"`expected_calibration_error` has no argument `colour`; {USAGE}",
        ),
        (
            lambda: F.equal_width_statistics(ROWS, LABELS, 9, 10),
            "`equal_width_statistics` takes 3 positional arguments, got 4; call it as "
            "equal_width_statistics(confidences, correct, num_bins=15).",
        ),
        (
            lambda: F.equal_width_statistics(ROWS, confidences=ROWS),
            "`equal_width_statistics` got `confidences` twice; call it as",
        ),
        (lambda: F.equal_width_statistics(), "`equal_width_statistics` needs `confidences` and `correct`; call it as"),
        (
            lambda: TemperatureScaling().fit(ROWS, LABELS, None),
            f"`fit` takes 2 positional arguments, got 3; {FIT}",
        ),
        (
            lambda: TemperatureScaling().fit(preds=ROWS, labels=LABELS),
            f"`fit` has no argument `preds` (here `probs` or `logits`), `labels` (here `targets`); {FIT}",
        ),
        (
            lambda: TemperatureScaling().predict_proba(ROWS, LABELS),
            "`predict_proba` takes 1 positional argument, got 2; call it as predict_proba(X=None, logits=... or probs=",
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
        (
            lambda: choose_calibrator(ROWS, LABELS),
            "`choose_calibrator` takes no positional arguments, got 2; call",
        ),
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
            lambda: M.BrierScore(2)(preds=ROWS, target=LABELS),
            "`update` has no argument `preds` (here `scores`), `target` (here `targets`); call it as "
            "update(scores, targets).",
        ),
        (lambda: M.BrierScore(2).update(ROWS), "`update` needs `targets`; call it as update(scores, targets)."),
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
