"""What goes in: every kind of bad input with its message, values checked only if asked for, chunks without a trace."""

import math
import re

import pytest
import torch
from tests.functional import samples

from metacal import functional as F
from metacal.errors import InvalidTypeError, InvalidValueError, MetacalError, MetacalWarning
from metacal.functional import inputs as inputs_module
from metacal.functional.inputs import read_inputs

NAN, INF = float("nan"), float("inf")
PAIR, LABELS = torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([0, 1])
BINARY = torch.tensor([0.9, 0.1])

ERRORS = {
    "expected": F.expected_calibration_error,
    "adaptive": F.adaptive_calibration_error,
    "classwise": F.classwise_calibration_error,
    "debiased": F.debiased_calibration_error,
    "sweep": F.sweep_calibration_error,
    "smooth": F.smooth_calibration_error,
    "brier": F.brier_score,
    "brier parts": F.brier_decomposition,
    "nll": F.negative_log_likelihood,
    "interval": lambda **keywords: F.calibration_error_interval(**keywords, num_resamples=20),
}
BINNED = ["expected", "adaptive", "classwise", "debiased", "interval", "brier parts"]
LOSSES = {
    "dece": F.dece,
    "soft_binned_ece": F.soft_binned_ece,
    "soft_avuc": F.soft_avuc,
    "mmce": F.mmce,
    "mmce_weighted": F.mmce_weighted,
    "brier_loss": F.brier_loss,
    "focal_loss": F.focal_loss,
    "flsd_loss": F.flsd_loss,
    "cross_entropy": F.cross_entropy,
    "label_smoothing_loss": F.label_smoothing_loss,
}

# (what is passed besides `targets=LABELS`, error, message): for every function that measures predictions
VALUE, TYPE = InvalidValueError, InvalidTypeError
BAD_INPUT = [
    ({}, VALUE, "Exactly one of `logits` and `probs` must be given, got neither."),
    ({"logits": PAIR, "probs": PAIR}, VALUE, "Exactly one of `logits` and `probs` must be given, got both."),
    ({"probs": "0.9"}, TYPE, "`probs` must be a tensor or an array of numbers, got str."),
    ({"probs": PAIR, "targets": None}, TYPE, "`targets` must be a tensor or an array of numbers, got NoneType."),
    ({"probs": PAIR.to_sparse()}, TYPE, "`probs` must be a dense tensor, got layout torch.sparse_coo"),
    ({"probs": PAIR.long()}, TYPE, "`probs` must be a floating point tensor, got torch.int64."),
    ({"logits": PAIR.to(torch.complex64)}, TYPE, "`logits` must be a floating point tensor, got torch.complex64."),
    ({"probs": PAIR, "targets": LABELS.float()}, TYPE, "`targets` must be integer class labels, got torch.float32."),
    ({"probs": PAIR, "targets": LABELS.cfloat()}, TYPE, "`targets` must be integer class labels, got torch.complex64."),
    ({"probs": PAIR.to("meta")}, VALUE, "`probs` and `targets` must be on one device, got meta and cpu."),
    ({"probs": PAIR[:1]}, VALUE, "got (1, 2) with targets (2,)."),
    ({"probs": PAIR.T.reshape(1, 4)}, VALUE, "`probs` must have shape (N, K, ...) for targets (N, ...), or that of"),
    ({"probs": PAIR[0, 0], "targets": LABELS[0]}, VALUE, "got () with targets ()."),
    ({"probs": PAIR[0], "targets": LABELS[0]}, VALUE, "got (2,) with targets ()."),
    ({"logits": PAIR[:, :1]}, VALUE, "`logits` must have at least 2 classes in dimension 1, got 1; for a binary model"),
    ({"logits": PAIR[:, :0]}, VALUE, "`logits` must have at least 2 classes in dimension 1, got 0"),
    ({"probs": PAIR[:, :0], "targets": torch.zeros(2, 0).long()}, VALUE, "at least one label in dimension 1, got"),
    (
        {"probs": PAIR, "targets": torch.eye(2).long()},
        VALUE,
        "`targets` must be class numbers (N, ...) for `probs` (N, K, ...), got (2, 2) with targets (2, 2); pass "
        "`targets.argmax(1)` if the rows are one-hot, or `multilabel=True` (a metric: `num_labels`) if each column is "
        "yes or no.",
    ),
    ({"logits": PAIR[None], "targets": torch.eye(2).bool()[None]}, VALUE, "got (1, 2, 2) with targets (1, 2, 2); pass"),
    ({"probs": PAIR, "targets": torch.eye(2).long(), "multilabel": True}, None, None),
    ({"probs": PAIR, "multilabel": True}, VALUE, "must have the shape (N, L, ...) of `targets` for a multilabel model"),
    ({"probs": PAIR, "multilabel": "yes"}, TYPE, "`multilabel` must be True or False, got 'yes'."),
    ({"probs": PAIR[:0], "targets": LABELS[:0]}, VALUE, "`targets` must hold at least one sample that is not ignored"),
    (
        {"probs": BINARY[:0], "targets": LABELS[:0]},
        VALUE,
        "`targets` must hold at least one sample that is not ignored",
    ),
    ({"probs": PAIR, "targets": LABELS * 0 - 1, "ignore_index": -1}, VALUE, "that is not ignored, got none."),
    ({"probs": BINARY, "targets": LABELS * 0 - 1, "ignore_index": -1}, VALUE, "that is not ignored, got none."),
    ({"probs": PAIR, "targets": LABELS + 1}, VALUE, "`targets` must lie in 0..1, got 2; `ignore_index` leaves labels"),
    ({"probs": PAIR, "targets": LABELS - 1}, VALUE, "`targets` must lie in 0..1, got -1"),
    ({"logits": PAIR, "targets": LABELS * 100 - 100}, VALUE, "`targets` must lie in 0..1, got -100"),
    ({"probs": BINARY, "targets": LABELS + 1}, VALUE, "`targets` must lie in 0..1, got 2"),
    (
        {"probs": torch.tensor([[1.5, -0.5], [0.5, 0.5]])},
        VALUE,
        "`probs` must lie in [0, 1], got 1.5 in row 0, column 0",
    ),
    (
        {"probs": torch.tensor([[0.5, 0.5], [1.01, -0.01]])},
        VALUE,
        "got 1.01 in row 1, column 0; if these are raw scores, pass them as `logits`",
    ),
    ({"probs": torch.tensor([[0.5, 0.5], [1.0, -1e-6]])}, VALUE, "must lie in [0, 1], got -1e-06 in row 1, column 1"),
    ({"probs": torch.tensor([[0.5, 0.5], [0.5, 0.4]])}, VALUE, "rows that sum to 1 (within 0.001), got 0.9 in row 1"),
    ({"probs": torch.tensor([[0.5, 0.6], [0.5, 0.5]])}, VALUE, "rows that sum to 1 (within 0.001), got 1.1 in row 0"),
    ({"probs": torch.tensor([[0.5, 0.6], [0.5, 0.5]]).half()}, VALUE, "rows that sum to 1 (within 0.01), got 1.1"),
    ({"probs": torch.tensor([0.5, -0.1])}, VALUE, "`probs` must lie in [0, 1], got -0.1 in row 1, column 0"),
    ({"probs": torch.tensor([1.1, 0.1])}, VALUE, "`probs` must lie in [0, 1], got 1.1 in row 0, column 0"),
    ({"probs": torch.tensor([1.0000001, 0.5])}, None, None),
    ({"probs": torch.tensor([[1.0000001, 0.0], [0.5, 0.5]])}, None, None),
    (
        {"probs": torch.tensor([[NAN, 0.5], [0.5, 0.5]])},
        VALUE,
        "`probs` must lie in [0, 1], got nan in row 0, column 0",
    ),
    (
        {"probs": torch.tensor([[0.5, 0.5], [0.5, INF]])},
        VALUE,
        "`probs` must lie in [0, 1], got inf in row 1, column 1",
    ),
    ({"probs": torch.tensor([NAN, 0.5])}, VALUE, "`probs` must lie in [0, 1], got nan in row 0, column 0"),
    ({"logits": torch.tensor([[0.5, 0.5], [0.5, NAN]])}, VALUE, "`logits` must be finite, got nan in row 1, column 1."),
    (
        {"logits": torch.tensor([[0.5, -INF], [0.5, 1.0]])},
        VALUE,
        "`logits` must be finite, got -inf in row 0, column 1.",
    ),
    ({"logits": torch.tensor([0.5, INF])}, VALUE, "`logits` must be finite, got inf in row 1, column 0."),
    ({"logits": torch.tensor([NAN, 0.5]).half()}, VALUE, "`logits` must be finite, got nan in row 0, column 0."),
    ({"probs": PAIR, "ignore_index": "none"}, TYPE, "`ignore_index` must be"),
    ({"probs": PAIR, "ignore_index": 0.5}, TYPE, "`ignore_index` must be"),
    ({"probs": PAIR, "ignore_index": True}, TYPE, "`ignore_index` must be None or an integer, got True."),
]
BAD_ARGUMENTS = [
    *[
        (name, {"num_bins": value}, error, f"`num_bins` must be an integer >= 1, got {value!r}.")
        for name in BINNED
        for value, error in ((0, VALUE), (-1, VALUE), (2.5, TYPE), (True, TYPE), ("15", TYPE), (None, TYPE))
    ],
    *[
        (name, {"norm": value}, VALUE, f"`norm` must be one of {choices}, got {value!r}.")
        for name, choices in {
            "expected": "'l1', 'l2', 'max'",
            "adaptive": "'l1', 'l2', 'max'",
            "classwise": "'l1', 'l2', 'max'",
            "sweep": "'l1', 'l2', 'max'",
            "debiased": "'l1', 'l2'",
        }.items()
        for value in ("L2", 2, None)
    ],
    ("debiased", {"norm": "max"}, VALUE, "`norm` must be one of 'l1', 'l2', got 'max'."),
    ("debiased", {"binning": "mass"}, VALUE, "`binning` must be one of 'equal_mass', 'equal_width', got 'mass'."),
    ("classwise", {"threshold": 1.0}, VALUE, "`threshold` must be None or in [0, 1), got 1.0."),
    ("classwise", {"threshold": -0.1}, VALUE, "`threshold` must be None or in [0, 1), got -0.1."),
    ("classwise", {"threshold": NAN}, VALUE, "`threshold` must be None or in [0, 1), got nan."),
]
# the differentiable functions: shapes and dtypes are checked, values are not
BAD_BATCH = [
    ({"logits": None}, TYPE, "`logits` must be a tensor or an array of numbers, got NoneType."),
    ({"targets": ["a", "b"]}, TYPE, "`targets` must be a tensor or an array of numbers, got list of dtype <U1."),
    ({"logits": PAIR.long()}, TYPE, "`logits` must be a floating point tensor, got torch.int64."),
    ({"logits": PAIR[None]}, VALUE, "`logits` must have shape (n, K), (n, 1) or (n,), got (1, 2, 2)."),
    ({"logits": PAIR[0, 0]}, VALUE, "`logits` must have shape (n, K), (n, 1) or (n,), got ()."),
    ({"logits": PAIR[:, :0]}, VALUE, "`logits` must have"),
    ({"targets": LABELS.float()}, TYPE, "`targets` must be integer class labels, got torch.float32."),
    ({"targets": LABELS[:1]}, VALUE, "`targets` must have shape (2,) to fit logits (2, 2), got (1,)."),
    ({"targets": PAIR.long()}, VALUE, "`targets` must have shape (2,) to fit logits (2, 2), got (2, 2)."),
    ({"logits": PAIR[:0], "targets": LABELS[:0]}, VALUE, "`targets` must hold at least one sample, got none."),
]
BAD_LOSS_ARGUMENTS = [
    *[
        (name, {argument: value}, error, f"`{argument}` must be a number > 0, got {value!r}.")
        for name, argument in (
            ("dece", "tau_a"),
            ("dece", "tau_b"),
            ("soft_binned_ece", "temperature"),
            ("soft_binned_ece", "power"),
            ("soft_avuc", "temperature"),
        )
        for value, error in ((0.0, VALUE), (-1.0, VALUE), (NAN, VALUE), ("1", TYPE), (True, TYPE))
    ],
    *[
        (name, {"num_bins": value}, error, f"`num_bins` must be an integer >= 1, got {value!r}.")
        for name in ("dece", "soft_binned_ece")
        for value, error in ((0, VALUE), (-1, VALUE), (2.5, TYPE), (True, TYPE))
    ],
    *[
        (name, {"reduction": "avg"}, VALUE, "`reduction` must be one of 'mean', 'sum', 'none', got 'avg'.")
        for name in ("brier_loss", "focal_loss", "flsd_loss", "cross_entropy", "label_smoothing_loss")
    ],
    ("soft_avuc", {"kappa": 0.0}, VALUE, "`kappa` must be in (0, 1), got 0.0."),
    ("soft_avuc", {"kappa": 1.0}, VALUE, "`kappa` must be in (0, 1), got 1.0."),
    ("focal_loss", {"gamma": -1.0}, VALUE, "`gamma` must be >= 0, got -1.0."),
    ("focal_loss", {"gamma": NAN}, VALUE, "`gamma` must be >= 0, got nan."),
    ("focal_loss", {"gamma": torch.ones(2, 1)}, VALUE, "`gamma` must"),
    ("label_smoothing_loss", {"strength": 1.5}, VALUE, "`strength` must be in [0, 1], got 1.5."),
    ("label_smoothing_loss", {"strength": -0.1}, VALUE, "`strength` must be in [0, 1], got -0.1."),
    ("cross_entropy", {"class_weights": torch.ones(3)}, VALUE, "`class_weights` must"),
]


def all_cases():
    for name, function in ERRORS.items():
        for number, (keywords, error, message) in enumerate(BAD_INPUT):
            yield pytest.param(function, {"targets": LABELS} | keywords, error, message, id=f"{name}-{number}")
    for name, keywords, error, message in BAD_ARGUMENTS:
        given = {"probs": PAIR, "targets": LABELS} | keywords
        yield pytest.param(ERRORS[name], given, error, message, id=f"{name}-{keywords}")
    for name, function in LOSSES.items():
        for number, (keywords, error, message) in enumerate(BAD_BATCH):
            given = {"logits": PAIR, "targets": LABELS} | keywords
            yield pytest.param(function, given, error, message, id=f"{name}-{number}")
    for name, keywords, error, message in BAD_LOSS_ARGUMENTS:
        given = {"logits": PAIR, "targets": LABELS} | keywords
        yield pytest.param(LOSSES[name], given, error, message, id=f"{name}-{keywords}")


@pytest.mark.parametrize(("function", "keywords", "error", "message"), list(all_cases()))
def test_bad_input_is_named_with_its_rule_and_value(function, keywords, error, message):
    if error is None:  # unusual, but good
        result = function(**keywords)
        parts = result if isinstance(result, tuple) else (result,)
        assert all(part.isfinite() or part == INF for part in parts)
        return
    with pytest.raises(error, match=re.escape(message)) as caught:
        function(**keywords)
    assert isinstance(caught.value, MetacalError) and isinstance(caught.value, (ValueError, TypeError))


@pytest.mark.parametrize("chunk", [50, inputs_module.CHUNK_ELEMENTS])
@pytest.mark.parametrize("row", [0, 1234, 4999])
@pytest.mark.parametrize("ignore", [False, True])
def test_the_right_row_of_a_big_array_is_named(monkeypatch, chunk, row, ignore):
    monkeypatch.setattr(inputs_module, "CHUNK_ELEMENTS", chunk)
    logits, targets = samples.multiclass(5000, 4)
    keywords = {"targets": targets}
    if ignore:
        keywords = {"targets": targets.masked_fill(torch.arange(5000) % 2 != row % 2, -1), "ignore_index": -1}
    bad = logits.clone()
    bad[row, 2] = INF
    with pytest.raises(InvalidValueError, match=rf"got inf in row {row}, column 2\."):
        F.expected_calibration_error(logits=bad, **keywords)
    probs = torch.softmax(logits, 1)
    probs[row] /= 2
    with pytest.raises(InvalidValueError, match=rf"sum to 1 \(within 0\.001\), got 0\.5 in row {row};"):
        F.expected_calibration_error(probs=probs, **keywords)


def test_a_row_whose_sum_is_at_the_tolerance_is_accepted_or_named():
    """1.001: just outside when added up in float32, just inside in float64."""
    probs = torch.tensor([[0.49071159958839417, 0.09268177300691605, 0.4176066219806671]])
    said = ""
    try:
        F.expected_calibration_error(probs=probs, targets=torch.tensor([0]))
    except InvalidValueError as error:
        said = str(error)
    assert not said or "rows that sum to 1 (within 0.001), got 1.001 in row 0" in said


def test_the_right_row_of_many_events_is_named(monkeypatch):
    monkeypatch.setattr(inputs_module, "CHUNK_ELEMENTS", 50)
    logits, targets = samples.events((500, 3))
    logits[321, 2] = NAN
    with pytest.raises(InvalidValueError, match=r"got nan in row 321, column 2\."):
        F.adaptive_calibration_error(logits=logits, targets=targets, multilabel=True)


@pytest.mark.parametrize("layout", samples.LAYOUTS)
def test_scores_of_what_is_ignored_may_be_anything(layout):
    """Padding is often NaN or garbage: what is ignored is not looked at."""
    for inputs in ("logits", "probs"):
        keywords = samples.draw(layout, inputs=inputs, ignore=True)
        scores, dropped = keywords[inputs].clone(), keywords["targets"] == samples.IGNORED
        is_class = layout in samples.CLASSES
        scores = scores.masked_fill(dropped.unsqueeze(1) if is_class else dropped, NAN)
        for function in (F.expected_calibration_error, F.brier_score, F.classwise_calibration_error):
            assert torch.equal(function(**{**keywords, inputs: scores}), function(**keywords))


@pytest.mark.parametrize("name", ERRORS)
def test_values_are_not_checked_when_told_so_but_shapes_and_dtypes_are(name):
    function = ERRORS[name]
    probs = torch.tensor([[0.5, 0.2], [0.3, 0.4]])  # rows that sum to 0.7
    with pytest.raises(InvalidValueError, match="sum to 1"):
        function(probs=probs, targets=LABELS)
    result = function(probs=probs, targets=LABELS, validate=False)
    assert torch.isfinite(result[0] if isinstance(result, tuple) else result)
    with pytest.raises(InvalidValueError, match="`probs` must have shape"):
        function(probs=probs[:1], targets=LABELS, validate=False)
    with pytest.raises(InvalidTypeError, match="`targets` must be integer class labels"):
        function(probs=probs, targets=LABELS.float(), validate=False)
    with pytest.raises(InvalidTypeError, match="`probs` must be a floating point tensor"):
        function(probs=probs.long(), targets=LABELS, validate=False)


@pytest.mark.parametrize("dtype", samples.DTYPES)
@pytest.mark.parametrize("layout", samples.CLASSES)
def test_probabilities_passed_as_logits_are_told_of(monkeypatch, layout, dtype):
    keywords = samples.draw(layout, n=50 if layout == "multiclass" else 25, inputs="probs", dtype=dtype)
    given = {"logits": keywords["probs"], "targets": keywords["targets"]}
    functions = {**ERRORS, "likelihood": F.likelihood_decomposition, "temperature": F.fit_temperature}
    for chunk in (20, inputs_module.CHUNK_ELEMENTS):
        monkeypatch.setattr(inputs_module, "CHUNK_ELEMENTS", chunk)
        for function in functions.values():
            with pytest.warns(MetacalWarning, match="`logits` look like probabilities: all [0-9]+ rows") as caught:
                function(**given)
            assert [each.filename == __file__ for each in caught] == [True], "once, and of this line"


@pytest.mark.parametrize(
    "change",
    [
        lambda logits: logits[:1],
        lambda logits: logits * 1.01,
        lambda logits: logits - 1e-3,
        lambda logits: torch.cat((logits[:-1], logits[-1:] * 1.01)),
        lambda logits: torch.cat((logits[:-1], torch.tensor([[-0.2, 0.6, 0.4, 0.2]]))),
        lambda logits: logits.log(),
    ],
)
def test_logits_that_are_none_are_not_taken_for_probabilities(monkeypatch, change):
    """A row alone, sums and ranges that are off, one row that is off: warnings are errors here."""
    probs, targets = samples.draw("multiclass", n=50, inputs="probs").values()
    logits = change(probs)
    for chunk in (20, inputs_module.CHUNK_ELEMENTS):
        monkeypatch.setattr(inputs_module, "CHUNK_ELEMENTS", chunk)
        F.expected_calibration_error(logits=logits, targets=targets[: len(logits)])


def test_probabilities_passed_as_logits_pass_where_values_are_not_checked():
    probs, targets = samples.draw("multiclass", n=50, inputs="probs").values()
    F.expected_calibration_error(logits=probs, targets=targets, validate=False)
    F.fit_temperature(logits=probs, targets=targets, validate=False)
    for function in LOSSES.values():
        function(logits=probs, targets=targets)
    F.expected_calibration_error(logits=probs[:, 0], targets=targets % 2)  # of a binary model one cannot tell


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize("layout", samples.LAYOUTS)
def test_a_nan_that_is_not_checked_makes_the_result_nan(monkeypatch, layout, name):
    for inputs in ("logits", "probs"):
        keywords = samples.draw(layout, n=50, inputs=inputs)
        for place in ((0, 0), (49, -1)):
            scores = keywords[inputs].clone()
            # NLL reads the target's probability alone.
            scores[place if scores.ndim > 1 and name != "nll" else place[0]] = NAN
            for chunk in (20, inputs_module.CHUNK_ELEMENTS):
                with monkeypatch.context() as patch:
                    patch.setattr(inputs_module, "CHUNK_ELEMENTS", chunk)
                    result = ERRORS[name](**{**keywords, inputs: scores}, validate=False)
                for part in result if isinstance(result, tuple) else (result,):
                    assert part.isnan(), (inputs, place, chunk, part)


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
def test_a_nan_makes_every_norm_nan(norm):
    keywords = {"probs": torch.tensor([[0.6, 0.4], [NAN, 0.4]]), "targets": LABELS, "validate": False, "norm": norm}
    for function in (F.expected_calibration_error, F.adaptive_calibration_error, F.sweep_calibration_error):
        assert function(**keywords).isnan()
    assert F.classwise_calibration_error(**keywords, threshold=0.5).isnan()
    if norm != "max":
        for binning in ("equal_mass", "equal_width"):
            assert F.debiased_calibration_error(**keywords, binning=binning).isnan()


def test_a_nan_among_the_bins():
    statistics = F.bin_statistics(probs=torch.tensor([0.2, NAN]), targets=LABELS, validate=False)
    clean = F.bin_statistics(probs=torch.tensor([0.2, 0.9]), targets=LABELS)
    for one in (statistics, statistics + clean, clean + statistics + statistics):
        assert F.calibration_error(one).isnan() and F.noise_floor(one).isnan()
        assert F.sample_size_warning(one) == "A confidence is NaN: nothing can be said of the samples."


def test_a_nan_among_the_logits_leaves_no_temperature():
    keywords = {"logits": torch.tensor([[0.6, 0.4], [NAN, 0.4]]), "targets": LABELS, "validate": False}
    assert F.temperature_grid_errors(**keywords).isnan().all()
    assert math.isnan(F.fit_temperature_by_grid(**keywords))
    assert not F.fit_temperature(**keywords).converged and not F.fit_temperature_by_lbfgs(**keywords).converged


@pytest.mark.parametrize("name", [name for name in ERRORS if name not in ("brier", "brier parts", "nll")])
@pytest.mark.parametrize("layout", samples.LAYOUTS)
def test_chunks_leave_no_trace(monkeypatch, name, layout):
    for inputs in ("logits", "probs"):
        keywords = samples.draw(layout, n=50, inputs=inputs, ignore=True)
        whole = ERRORS[name](**keywords)
        for chunk in (1, 7, 64):
            with monkeypatch.context() as patch:
                patch.setattr(inputs_module, "CHUNK_ELEMENTS", chunk)
                assert ERRORS[name](**keywords) == whole, (inputs, chunk)


@pytest.mark.parametrize("name", ["brier", "nll"])
@pytest.mark.parametrize("layout", samples.LAYOUTS)
def test_chunks_change_means_by_rounding_alone(monkeypatch, name, layout):
    keywords = samples.draw(layout, n=50, ignore=True)
    whole = ERRORS[name](**keywords).item()
    for chunk in (1, 7, 64):
        monkeypatch.setattr(inputs_module, "CHUNK_ELEMENTS", chunk)
        assert ERRORS[name](**keywords).item() == pytest.approx(whole, abs=1e-7)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_any_integer_targets_will_do(dtype):
    expected = F.expected_calibration_error(probs=PAIR, targets=LABELS)
    assert torch.equal(F.expected_calibration_error(probs=PAIR, targets=LABELS.to(dtype)), expected)
    assert torch.equal(F.dece(logits=PAIR, targets=LABELS.to(dtype)), F.dece(logits=PAIR, targets=LABELS))


def test_layouts_become_rows():
    scores, targets = torch.arange(24.0).reshape(2, 3, 4), torch.zeros(2, 4, dtype=torch.int64)
    inputs = read_inputs(logits=scores, targets=targets)
    assert not inputs.is_events and inputs.num_classes == 3 and inputs.name == "logits"
    assert torch.equal(inputs.scores[5], scores[1, :, 1])
    labels = read_inputs(probs=torch.rand(2, 3, 4), targets=torch.zeros(2, 3, 4, dtype=torch.int64), multilabel=True)
    assert labels.is_events and labels.num_classes == 3 and labels.scores.shape == (8, 3)
