"""Arguments of the wrong kind that no measure's own test covers: each is named, with its rule and what came instead."""

import re
from collections.abc import Callable

import pytest
import torch

from metacal import functional as F
from metacal.errors import InvalidTypeError, InvalidValueError, MetacalError
from metacal.losses import CrossEntropyLoss

LOGITS, LABELS, SOFT = torch.zeros(2, 2), torch.tensor([0, 1]), torch.full((2, 2), 0.5)
CONFIDENCES, CORRECT = torch.tensor([0.3, 0.9]), torch.tensor([False, True])
VALUE, TYPE = InvalidValueError, InvalidTypeError

BAD_ARGUMENTS: dict[str, tuple[Callable[[], object], type[MetacalError], str]] = {
    "equal width, lengths": (lambda: F.equal_width_statistics(CONFIDENCES, CORRECT[:1]), VALUE, "(2,) and (1,)"),
    "equal mass, lengths": (lambda: F.equal_mass_statistics(CONFIDENCES, CORRECT[:1]), VALUE, "(2,) and (1,)"),
    "equal width, matrix": (lambda: F.equal_width_statistics(SOFT, SOFT > 0), VALUE, "must both have shape (n,)"),
    "equal width, ints": (lambda: F.equal_width_statistics(CONFIDENCES, LABELS), TYPE, "`correct` must be a bool"),
    "equal mass, ints": (lambda: F.equal_mass_statistics(CONFIDENCES, LABELS), TYPE, "`correct` must be a bool"),
    "equal width, text": (lambda: F.equal_width_statistics("0.5", CORRECT), TYPE, "`confidences` must be a tensor or"),
    "smooth, text": (lambda: F.smooth_labels(targets="0", num_classes=2, strength=0.1), TYPE, "numbers, got str."),
    "smooth, strength": (lambda: F.smooth_labels(targets=[0], num_classes=2, strength="a"), TYPE, "`strength` must be"),
    "smooth, floats": (
        lambda: F.smooth_labels(targets=LABELS.float(), num_classes=2, strength=0.1),
        TYPE,
        "`targets` must be integer class labels, got torch.float32.",
    ),
    "smooth, classes": (
        lambda: F.smooth_labels(targets=LABELS, num_classes=2.0, strength=0.1),
        TYPE,
        "`num_classes` must be an integer",
    ),
    "soft targets, none": (
        lambda: F.soft_cross_entropy(logits=LOGITS, targets=None),
        TYPE,
        "`targets` must be a tensor or an array of numbers, got NoneType.",
    ),
    "soft targets, ints": (
        lambda: F.soft_cross_entropy(logits=LOGITS, targets=SOFT.long()),
        TYPE,
        "`targets` must be a floating point tensor, got torch.int64.",
    ),
    "loss, text": (
        lambda: CrossEntropyLoss()(LOGITS, "01"),
        TYPE,
        "`targets` must be a tensor or an array of numbers, got",
    ),
    "class weights, text": (
        lambda: F.cross_entropy(logits=LOGITS, targets=LABELS, class_weights="12"),
        TYPE,
        "`class_weights` must be a tensor or an array of numbers, got str.",
    ),
    "seed": (
        lambda: F.calibration_error_interval(probs=SOFT, targets=LABELS, seed="x"),
        TYPE,
        "`seed` must be an integer >= 0, got 'x'.",
    ),
    "sparse": (
        lambda: F.expected_calibration_error(probs=torch.eye(2).to_sparse(), targets=LABELS),
        TYPE,
        "`probs` must be a dense tensor, got layout torch.sparse_coo",
    ),
    "classwise": (
        lambda: F.sample_size_warning(F.BinStatistics.zeros(3, 15, device=torch.device("cpu"))),
        VALUE,
        "`statistics` must be of one set of bins, got (3, 15)",
    ),
}


@pytest.mark.parametrize("case", BAD_ARGUMENTS)
def test_the_message_names_the_argument(case):
    call, error, message = BAD_ARGUMENTS[case]
    with pytest.raises(error, match=re.escape(message)):
        call()


def test_statistics_add_to_statistics_only():
    with pytest.raises(TypeError, match="unsupported operand"):
        F.equal_width_statistics(CONFIDENCES, CORRECT) + 1
