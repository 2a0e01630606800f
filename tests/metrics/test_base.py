"""The metric shells: the function's value whatever the batches, empty ones too, and a state that travels."""

import copy
import pickle
import warnings

import numpy as np
import pytest
import torch
from tests.functional import samples
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy

from metacal import functional as F
from metacal import metrics as M
from metacal.errors import InvalidTypeError, InvalidValueError, MetacalError, MetacalWarning

# name -> (metric class, its own arguments, function); the first group is the same to the bit in any order
BINS = {
    "expected": (M.ExpectedCalibrationError, {}, F.expected_calibration_error),
    "expected l2": (M.ExpectedCalibrationError, {"norm": "l2", "num_bins": 7}, F.expected_calibration_error),
    "expected max": (M.ExpectedCalibrationError, {"norm": "max"}, F.expected_calibration_error),
    "classwise": (M.ClasswiseCalibrationError, {}, F.classwise_calibration_error),
    "classwise, threshold": (M.ClasswiseCalibrationError, {"threshold": 0.1}, F.classwise_calibration_error),
    "debiased, equal width": (M.DebiasedCalibrationError, {"binning": "equal_width"}, F.debiased_calibration_error),
    "debiased l1, equal width": (
        M.DebiasedCalibrationError,
        {"binning": "equal_width", "norm": "l1"},
        F.debiased_calibration_error,
    ),
}
SAMPLES = {
    "adaptive": (M.AdaptiveCalibrationError, {}, F.adaptive_calibration_error),
    "adaptive max": (M.AdaptiveCalibrationError, {"norm": "max", "num_bins": 4}, F.adaptive_calibration_error),
    "debiased": (M.DebiasedCalibrationError, {}, F.debiased_calibration_error),
    "sweep": (M.SweepCalibrationError, {}, F.sweep_calibration_error),
    "smooth": (M.SmoothCalibrationError, {}, F.smooth_calibration_error),
}
MEANS = {
    "brier": (M.BrierScore, {}, F.brier_score),
    "nll": (M.NegativeLogLikelihood, {}, F.negative_log_likelihood),
}
ALL = BINS | SAMPLES | MEANS
SPLITS = [[120], [1] * 120, [7, 50, 0, 63], [119, 1], [40, 40, 40]]
SHAPE = {
    "multiclass": {"num_classes": 4},
    "segmentation": {"num_classes": 4},
    "binary": {"num_labels": 1},
    "one_column": {"num_labels": 1},
    "multilabel": {"num_labels": 3},
    "multilabel_map": {"num_labels": 3},
}


def make(name, layout="multiclass", **arguments):
    metric, own, _ = ALL[name]
    return metric(**SHAPE[layout], **own, **arguments)


def function_value(name, keywords):
    _, own, function = ALL[name]
    return function(**keywords, **own)


def assert_same(name, ours, expected):
    if name in BINS:
        assert torch.equal(ours, expected)
    else:
        torch.testing.assert_close(ours, expected, rtol=1e-6, atol=1e-9)
    assert ours.dtype == torch.float64 and ours.shape == ()


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("layout", SHAPE)
def test_equals_the_function_whatever_the_batches_and_their_order(layout, name):
    for inputs in ("logits", "probs"):
        keywords = samples.draw(layout, n=120, inputs=inputs, ignore=True)
        expected = function_value(name, keywords)
        for number, sizes in enumerate(SPLITS):
            metric = make(name, layout, inputs=inputs, ignore_index=samples.IGNORED)
            order = torch.randperm(120, generator=torch.Generator().manual_seed(number))
            for rows in torch.split(order, sizes):
                metric.update(keywords[inputs][rows], keywords["targets"][rows])
            assert_same(name, metric.compute(), expected)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", samples.DTYPES)
def test_every_dtype(name, dtype):
    keywords = samples.draw("multiclass", n=60, inputs="probs", dtype=dtype)
    metric = make(name)
    for rows in torch.split(torch.arange(60), 25):
        metric.update(keywords["probs"][rows], keywords["targets"][rows])
    assert_same(name, metric.compute(), function_value(name, keywords))


@pytest.mark.parametrize("name", ALL)
def test_arrays_and_lists_are_batches(name):
    probs, targets = samples.draw("multiclass", n=60, inputs="probs").values()
    metric = make(name)
    metric.update(probs[:30].numpy(), targets[:30].tolist())
    metric.update(probs[30:].tolist(), targets[30:])
    expected = function_value(name, {"probs": probs, "targets": targets})
    assert isinstance(metric.compute(), torch.Tensor)
    torch.testing.assert_close(metric.compute(), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ALL)
def test_empty_and_wholly_ignored_batches_change_nothing(name):
    keywords = samples.draw("multiclass", inputs="probs")
    metric = make(name, ignore_index=-1)
    metric.update(torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64))
    metric.update(torch.full((3, 4), 0.25), torch.full((3,), -1))
    metric.update(**{"scores": keywords["probs"], "targets": keywords["targets"]})
    metric.update(torch.full((3, 4), 0.25), torch.full((3,), -1))
    assert_same(name, metric.compute(), function_value(name, keywords))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("layout", ["multiclass", "binary", "multilabel"])
def test_nothing_at_all_is_nan_with_a_warning(name, layout):
    metric = make(name, layout, ignore_index=-1)
    shape = {"multiclass": (0, 4), "binary": (0,), "multilabel": (0, 3)}[layout]
    metric.update(torch.zeros(shape), torch.zeros(shape[:1] if layout == "multiclass" else shape, dtype=torch.int64))
    with pytest.warns(UserWarning, match=f"{type(metric).__name__} was computed over no samples: its value is NaN"):
        value = metric.compute()
    assert value.isnan() and value.dtype == torch.float64


@pytest.mark.parametrize("name", ALL)
def test_never_updated_is_nan_with_a_warning(name):
    metric = make(name)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The ``compute`` method of metric")  # torchmetrics' own
        with pytest.warns(UserWarning, match="was computed over no samples: its value is NaN"):
            assert metric.compute().isnan()


@pytest.mark.parametrize("name", ALL)
def test_forward_gives_the_batch_and_keeps_the_whole(name):
    keywords = samples.draw("multiclass", n=90, inputs="probs")
    metric = make(name)
    for rows in torch.split(torch.arange(90), 30):
        batch = {key: value[rows] for key, value in keywords.items()}
        assert_same(name, metric(batch["probs"], batch["targets"]), function_value(name, batch))
    assert_same(name, metric.compute(), function_value(name, keywords))


@pytest.mark.parametrize("name", ALL)
def test_reset_forgets(name):
    first, second = (samples.draw("multiclass", n=50, inputs="probs", seed=seed) for seed in (0, 1))
    metric = make(name)
    metric.update(*first.values())
    assert_same(name, metric.compute(), function_value(name, first))
    metric.reset()
    metric.update(*second.values())
    assert_same(name, metric.compute(), function_value(name, second))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    "travel", [lambda metric: pickle.loads(pickle.dumps(metric)), copy.deepcopy, lambda metric: metric.clone()]
)
def test_a_half_filled_metric_travels(name, travel):
    keywords = samples.draw("multiclass", n=80, inputs="probs")
    metric = make(name)
    metric.update(keywords["probs"][:30], keywords["targets"][:30])
    other = travel(metric)
    other.update(keywords["probs"][30:], keywords["targets"][30:])
    assert_same(name, other.compute(), function_value(name, keywords))


@pytest.mark.parametrize("name", ALL)
def test_state_dict_round_trip(name):
    keywords = samples.draw("multiclass", n=80, inputs="probs")
    metric = make(name)
    metric.persistent(True)
    metric.update(keywords["probs"][:50], keywords["targets"][:50])
    state = metric.state_dict()
    assert state
    other = make(name)
    other.persistent(True)
    other.load_state_dict(state)
    other.update(keywords["probs"][50:], keywords["targets"][50:])
    assert_same(name, other.compute(), function_value(name, keywords))


@pytest.mark.parametrize("name", ALL)
def test_states_merge(name):
    keywords = samples.draw("multiclass", n=80, inputs="probs")
    one, other = make(name), make(name)
    one.update(keywords["probs"][:13], keywords["targets"][:13])
    other.update(keywords["probs"][13:], keywords["targets"][13:])
    one.merge_state(other)
    assert_same(name, one.compute(), function_value(name, keywords))


def test_a_collection_beside_torchmetrics_own():
    keywords = samples.draw("multiclass", n=90, inputs="probs")
    ours = {name.replace(",", "").replace(" ", "_"): make(name) for name in ALL}
    collection = MetricCollection({**ours, "accuracy": MulticlassAccuracy(num_classes=4, average="micro")})
    for rows in torch.split(torch.arange(90), 40):
        collection.update(keywords["probs"][rows], keywords["targets"][rows])
    values = collection.compute()
    for name, key in zip(ALL, ours):
        assert_same(name, values[key], function_value(name, keywords))
    right = (keywords["probs"].argmax(1) == keywords["targets"]).float().mean()
    assert values["accuracy"].item() == pytest.approx(right.item())


def test_millions_of_samples_in_one_bin_stay_exact():
    metric = M.ExpectedCalibrationError(num_labels=1, validate=False)
    probs, targets = torch.full((1_000_000,), 0.905), (torch.arange(1_000_000) % 100 < 83).long()
    for _ in range(6):
        metric.update(probs, targets)
    assert metric.compute().item() == pytest.approx(abs(0.83 - probs[0].item()), abs=1e-9)


def test_probabilities_passed_as_logits_are_told_of():
    probs, targets = samples.draw("multiclass", inputs="probs").values()
    with pytest.warns(MetacalWarning, match=r'look like probabilities: all 40 rows .* pass them as `probs` .*"probs"'):
        M.ExpectedCalibrationError(num_classes=4, inputs="logits").update(probs, targets)


def test_one_hot_targets_are_not_taken_for_labels():
    with pytest.raises(InvalidValueError, match=r"`targets.argmax\(1\)` if the rows are one-hot, or .*`num_labels`"):
        M.ExpectedCalibrationError(num_classes=3).update(torch.eye(3), torch.eye(3).long())


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("place", [0, 29])
def test_a_nan_in_any_batch_makes_the_value_nan(name, place):
    probs, targets = samples.draw("multiclass", n=30, inputs="probs").values()
    probs[place, slice(None) if name == "nll" else 1] = float("nan")  # NLL reads the target's probability alone
    metric = make(name, validate=False)
    for rows in torch.split(torch.arange(30), 10):
        metric.update(probs[rows], targets[rows])
    assert metric.compute().isnan()


def test_a_bin_too_full_for_exact_sums_says_so():
    metric = M.ExpectedCalibrationError(num_labels=1)
    metric.update(torch.tensor([0.5]), torch.tensor([1]))
    metric.counts = metric.counts * 2**31
    with pytest.raises(InvalidValueError, match=r"A bin must hold at most 2147483647 samples.*got 2147483648"):
        metric.compute()


@pytest.mark.parametrize("name", BINS)
def test_memory_of_bin_states_does_not_grow(name):
    metric = make(name)
    sizes = []
    for seed in (0, 1):
        metric.update(*samples.draw("multiclass", n=100, inputs="probs", seed=seed).values())
        sizes.append(sum(state.numel() for state in metric.metric_state.values()))
    assert sizes[0] == sizes[1] == 16 + 3 * metric.num_bins * (4 if "classwise" in name else 1)


VALUE, TYPE = InvalidValueError, InvalidTypeError
BAD_CONSTRUCTIONS = [
    *[
        (metric, arguments, error, message)
        for metric in (M.ExpectedCalibrationError, M.SmoothCalibrationError, M.BrierScore, M.NegativeLogLikelihood)
        for arguments, error, message in [
            ({}, VALUE, "Exactly one of `num_classes` and `num_labels` must be given, got neither"),
            ({"num_classes": 3, "num_labels": 2}, VALUE, "must be given, got both"),
            ({"num_classes": 1}, VALUE, "`num_classes` must be an integer >= 2, got 1"),
            ({"num_classes": 2.0}, TYPE, "`num_classes` must be an integer >= 2, got 2.0"),
            ({"num_classes": True}, TYPE, "`num_classes` must be an integer >= 2, got True"),
            ({"num_labels": 0}, VALUE, "`num_labels` must be an integer >= 1, got 0"),
            ({"num_labels": "1"}, TYPE, "`num_labels` must be an integer >= 1, got '1'"),
            ({"num_classes": 3, "ignore_index": 0.5}, TYPE, "`ignore_index` must be None or an integer, got 0.5"),
            ({"num_classes": 3, "inputs": "scores"}, VALUE, "`inputs` must be one of 'probs', 'logits', got 'scores'"),
        ]
    ],
    *[
        (metric, {"num_classes": 3, "num_bins": value}, error, f"`num_bins` must be an integer >= 1, got {value}")
        for metric in (
            M.ExpectedCalibrationError,
            M.ClasswiseCalibrationError,
            M.AdaptiveCalibrationError,
            M.DebiasedCalibrationError,
        )
        for value, error in ((0, VALUE), (-1, VALUE), (2.5, TYPE), (True, TYPE))
    ],
    *[
        (metric, {"num_classes": 3, "norm": "l3"}, VALUE, "`norm` must be one of 'l1', 'l2'.*got 'l3'")
        for metric in (
            M.ExpectedCalibrationError,
            M.ClasswiseCalibrationError,
            M.AdaptiveCalibrationError,
            M.DebiasedCalibrationError,
            M.SweepCalibrationError,
        )
    ],
    (M.DebiasedCalibrationError, {"num_classes": 3, "binning": "x"}, VALUE, "`binning` must be one of.*got 'x'"),
    (M.ClasswiseCalibrationError, {"num_classes": 3, "threshold": 1.5}, VALUE, "`threshold` must be None or in.*1.5"),
]


@pytest.mark.parametrize(("metric", "arguments", "error", "message"), BAD_CONSTRUCTIONS)
def test_bad_constructions(metric, arguments, error, message):
    with pytest.raises(error, match=message) as caught:
        metric(**arguments)
    assert isinstance(caught.value, MetacalError)


def test_integers_of_numpy_are_integers_and_the_metric_is_the_same():
    given = {"num_classes": 4, "num_bins": 7, "ignore_index": -1}
    plain = M.ExpectedCalibrationError(**given)
    metric = M.ExpectedCalibrationError(**{name: np.int64(value) for name, value in given.items()})
    for each in (plain, metric):
        each.update(torch.eye(4), torch.tensor([0, 1, -1, 2]))
        M.BrierScore(num_labels=np.int32(1)).update(torch.ones(3), torch.ones(3, dtype=torch.int64))
    for name, state in plain.metric_state.items():
        assert torch.equal(state, metric.metric_state[name]), name  # its identity too: a collection can share it


@pytest.mark.parametrize("name", ALL)
def test_bad_batches(name):
    metric = make(name)
    probs, targets = torch.full((2, 4), 0.25), torch.tensor([0, 1])
    bad = [
        (torch.full((2, 5), 0.2), targets, VALUE, r"num_classes=4, got \(2, 5\) with targets \(2,\)"),
        (torch.rand(2), targets, VALUE, r"`probs` must have shape \(N, K, \.\.\.\) with targets \(N, \.\.\.\) for"),
        (probs, targets + 4, VALUE, r"`targets` must lie in 0\.\.3, got 5"),
        (probs * 2, targets, VALUE, r"rows that sum to 1 \(within 0\.001\), got 2 in row 0"),
        (probs, targets.float(), TYPE, "`targets` must be integer class labels"),
        (probs, ["a", "b"], TYPE, "`targets` must be a tensor or an array of numbers, got list of dtype <U1"),
    ]
    for scores, labels, error, message in bad:
        with pytest.raises(error, match=message):
            metric.update(scores, labels)
    unchecked = make(name, validate=False)
    unchecked.update(probs * 1.5, targets)
    assert unchecked.compute().isfinite()


def test_labels_are_asked_for_in_the_message():
    with pytest.raises(InvalidValueError, match=r"`logits` must have shape .N, L, .*that of the targets.*num_labels=3"):
        M.BrierScore(num_labels=3, inputs="logits").update(torch.zeros(2, 2), torch.zeros(2, 2, dtype=torch.int64))


@pytest.mark.parametrize("first", ["perfect", "empty"])
def test_a_collection_keeps_unlike_metrics_apart(first):
    """After a first batch that tells them nothing, torchmetrics would let these share one state."""
    generator = torch.Generator().manual_seed(0)
    probs = torch.softmax(torch.randn(50, 3, generator=generator), 1)
    targets = torch.randint(3, (50,), generator=generator)
    metrics = {
        "brier": M.BrierScore(3),
        "nll": M.NegativeLogLikelihood(3),
        "ece": M.ExpectedCalibrationError(3),
        "ece without 0": M.ExpectedCalibrationError(3, ignore_index=0),
        "classwise": M.ClasswiseCalibrationError(3),
        "classwise above": M.ClasswiseCalibrationError(3, threshold=0.05),
    }
    collection = MetricCollection({name: metric.clone() for name, metric in metrics.items()})
    start = (torch.eye(3)[1:], torch.arange(1, 3)) if first == "perfect" else (torch.zeros(0, 3), torch.zeros(0).long())
    for metric in (collection, *metrics.values()):
        metric.update(*start)
        metric.update(probs, targets)
    together = collection.compute()
    for name, metric in metrics.items():
        assert together[name] == metric.compute(), name
