"""The drop-in names: torchmetrics' values on the same arguments, and the metrics they stand for."""

import inspect
import pickle

import pytest
import torch
from torchmetrics import MetricCollection
from torchmetrics import classification as theirs
from torchmetrics.functional import classification as their_functions

from metacal import metrics as M
from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.integrations import torchmetrics as ours

GENERATOR = torch.Generator().manual_seed(0)
LOGITS = torch.randn(400, 5, generator=GENERATOR)
PROBS = torch.softmax(LOGITS, 1)
TARGETS = torch.multinomial(torch.softmax(0.6 * LOGITS, 1), 1, generator=GENERATOR).squeeze(1)
SCORES = torch.sigmoid(torch.randn(400, generator=GENERATOR))
EVENTS = (torch.rand(400, generator=GENERATOR) < SCORES**2).long()
IGNORED = torch.where(torch.arange(400) % 7 == 0, -1, TARGETS)
SETTINGS = [{"n_bins": bins, "norm": norm} for bins in (4, 15) for norm in ("l1", "l2", "max")]


def close(value, expected):
    torch.testing.assert_close(value.float(), expected.float(), rtol=0, atol=1e-6)


def both(name, *batches, **arguments):
    """Our value and torchmetrics', over batches, by keyword and by place."""
    values = []
    for module in (ours, theirs):
        metric = getattr(module, name)(**arguments)
        for preds, target in batches:
            metric.update(preds=preds, target=target)
        values.append(metric.compute())
    return values


@pytest.mark.parametrize("setting", SETTINGS)
def test_torchmetrics_values(setting):
    halves = [(PROBS[:150], TARGETS[:150]), (PROBS[150:], TARGETS[150:])]
    close(*both("CalibrationError", *halves, task="multiclass", num_classes=5, **setting))
    close(*both("MulticlassCalibrationError", *halves, num_classes=5, **setting))
    close(*both("MulticlassCalibrationError", (PROBS, IGNORED), num_classes=5, ignore_index=-1, **setting))
    close(*both("CalibrationError", (SCORES, EVENTS), task="binary", **setting))
    close(*both("BinaryCalibrationError", (SCORES.view(20, 20), EVENTS.view(20, 20)), **setting))
    image = (PROBS.view(4, 10, 10, 5).movedim(-1, 1), TARGETS.view(4, 10, 10))
    close(*both("MulticlassCalibrationError", image, num_classes=5, **setting))


@pytest.mark.parametrize("setting", SETTINGS)
def test_torchmetrics_functions(setting):
    for module in (ours, their_functions):
        value = module.calibration_error(PROBS, TARGETS, "multiclass", setting["n_bins"], setting["norm"], 5)
        close(value, their_functions.multiclass_calibration_error(PROBS, TARGETS, 5, *setting.values()))
        close(module.multiclass_calibration_error(PROBS, TARGETS, 5, *setting.values()), value)
        close(
            module.binary_calibration_error(SCORES, EVENTS, **setting),
            their_functions.calibration_error(SCORES, EVENTS, task="binary", **setting),
        )


def test_the_arguments_are_torchmetrics_own():
    for name in ("BinaryCalibrationError", "MulticlassCalibrationError"):
        expected = list(inspect.signature(getattr(theirs, name).__init__).parameters)
        assert list(inspect.signature(getattr(ours, name).__init__).parameters) == expected
    expected = list(inspect.signature(theirs.CalibrationError.__new__).parameters)[1:]
    mine = list(inspect.signature(ours.CalibrationError.__init__).parameters)[1:]
    assert mine[:5] == expected[:5] and set(expected) <= set(mine)


NAMES = [name for name in M.__all__ if name != "ExpectedCalibrationError"]


@pytest.mark.parametrize("name", NAMES)
def test_each_metric_is_the_one_it_stands_for(name):
    function = getattr(ours, "".join(f"_{letter}" if letter.isupper() else letter for letter in name).lower()[1:])
    cases = {
        "multiclass": ((PROBS, TARGETS), {"num_classes": 5}, {"num_classes": 5}),
        "binary": ((SCORES, EVENTS), {}, {"num_labels": 1}),
        "multilabel": ((SCORES.view(-1, 4), EVENTS.view(-1, 4)), {"num_labels": 4}, {"num_labels": 4}),
    }
    for task, (batch, arguments, own) in cases.items():
        expected = getattr(M, name)(**own)
        expected.update(*batch)
        metric = getattr(ours, name)(task=task, **arguments)
        metric(*batch)
        assert metric.compute() == expected.compute() == function(*batch, task=task, **arguments), task
        assert pickle.loads(pickle.dumps(metric)).compute() == expected.compute()


def test_in_a_collection_with_torchmetrics_own():
    collection = MetricCollection(
        {
            "theirs": theirs.MulticlassCalibrationError(5),
            "ours": ours.CalibrationError("multiclass", num_classes=5),
            "l2": ours.CalibrationError("multiclass", norm="l2", num_classes=5),
            "smooth": ours.SmoothCalibrationError("multiclass", num_classes=5),
            "accuracy": theirs.MulticlassAccuracy(5),
        }
    )
    for rows in torch.split(torch.arange(400), 130):
        collection.update(preds=PROBS[rows], target=TARGETS[rows])
    together = collection.compute()
    close(together["ours"], together["theirs"])
    expected = M.SmoothCalibrationError(5)
    expected.update(PROBS, TARGETS)
    assert together["smooth"] == expected.compute() and together["l2"] != together["ours"]


def test_logits_are_said_not_guessed():
    """torchmetrics decides batch by batch: logits that happen to lie in [0, 1] are taken for probabilities."""
    with pytest.raises(InvalidValueError, match=r'if these are raw scores, .* inputs="logits"'):
        ours.MulticlassCalibrationError(5).update(LOGITS, TARGETS)
    metric = ours.MulticlassCalibrationError(5, inputs="logits")
    metric.update(LOGITS, TARGETS)
    close(metric.compute(), both("MulticlassCalibrationError", (PROBS, TARGETS), num_classes=5)[1])
    inside = torch.rand(50, 5, generator=GENERATOR)
    close(
        ours.multiclass_calibration_error(inside, TARGETS[:50], 5, inputs="logits"),
        their_functions.multiclass_calibration_error(torch.softmax(inside, 1), TARGETS[:50], 5),
    )
    wrong = their_functions.multiclass_calibration_error(inside, TARGETS[:50], 5)
    assert abs(wrong - ours.multiclass_calibration_error(inside, TARGETS[:50], 5, inputs="logits")) > 0.1


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, InvalidValueError, "`task` must be one of 'binary', 'multiclass', 'multilabel', got ''"),
        ({"task": "multi"}, InvalidValueError, "`task` must be one of .*, got 'multi'"),
        ({"task": "multiclass"}, InvalidValueError, "`num_classes` must be given for task='multiclass', got None"),
        ({"task": "multilabel"}, InvalidValueError, "`num_labels` must be given for task='multilabel', got None"),
        ({"task": "binary", "n_bins": 5}, InvalidValueError, "`n_bins` must be left out: BrierScore has none, got 5"),
        ({"task": "binary", "bins": 5}, InvalidTypeError, "`BrierScore` has no argument `bins`.*call it as BrierScore"),
    ],
)
def test_wrong_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        ours.BrierScore(**arguments)
