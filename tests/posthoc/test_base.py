"""What every calibrator keeps: the scikit-learn manners, kinds and dtypes, save and load, and calm on bad data."""

import json
import stat
import warnings

import numpy as np
import pytest
import safetensors.numpy
import torch
from sklearn.base import clone
from tests.posthoc.samples import DEGENERATE, drawn

import metacal
from metacal.errors import InvalidTypeError, InvalidValueError, MetacalWarning, NotFittedError
from metacal.functional import negative_log_likelihood
from metacal.posthoc import CALIBRATORS, Calibrator, HistogramBinning, TemperatureScaling, VectorScaling

KINDS = list(CALIBRATORS.values())
every = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


@every
@pytest.mark.parametrize("as_probs", [False, True])
def test_mends_what_is_too_sure(kind, as_probs):
    logits, targets = drawn(n=6000, sharpened=3.0)
    held_out = slice(0, 3000), slice(3000, None)
    name, scores = ("probs", torch.softmax(logits, 1)) if as_probs else ("logits", logits)
    calibrator = kind().fit(**{name: scores[held_out[0]]}, targets=targets[held_out[0]])
    said = calibrator.predict_proba(**{name: scores[held_out[1]]})
    assert said.shape == (3000, 4)
    assert torch.allclose(said.sum(1), torch.ones(3000, dtype=torch.float64))
    assert bool((said >= 0).all())
    before = negative_log_likelihood(logits=logits[held_out[1]], targets=targets[held_out[1]])
    after = negative_log_likelihood(
        probs=said.clamp(min=1e-6) / said.clamp(min=1e-6).sum(1, True), targets=targets[3000:]
    )
    assert after < 0.75 * before
    assert calibrator.fit_report_.converged
    assert calibrator.fit_report_.warning is None
    keeps = torch.equal(said.argmax(1), logits[held_out[1]].argmax(1))
    assert keeps or not kind.keeps_predictions


@every
def test_kinds_and_dtypes_come_out_as_they_went_in(kind):
    logits, targets = drawn(n=600)
    exact = kind().fit(logits=logits, targets=targets).predict_proba(logits=logits)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        narrow = logits.to(dtype)
        said = kind().fit(logits=narrow, targets=targets).predict_proba(logits=narrow)
        assert isinstance(said, torch.Tensor)
        assert said.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        # Binned maps jump, so that a rounded score may fall into the next bin.
        assert (said - exact).abs().mean() < (0.02 if dtype in (torch.float16, torch.bfloat16) else 2e-3)
    for dtype in (np.float16, np.float32, np.float64):
        array = logits.numpy().astype(dtype)
        array.flags.writeable = False
        calibrator = kind().fit(logits=array, targets=targets.numpy())
        said = calibrator.predict_proba(logits=array)
        assert isinstance(said, np.ndarray)
        assert said.dtype == (np.float64 if dtype == np.float64 else np.float32)
        assert said.shape == array.shape


@every
def test_probabilities_of_0_count_the_same_in_every_dtype(kind):
    """As a forest gives them: the logarithm of the least float64 is eight times that of the least float32."""
    votes = torch.tensor([[1.0, 0.0], [0.75, 0.25], [0.0, 1.0], [0.5, 0.5]]).repeat(50, 1)
    targets = torch.where(torch.arange(200) % 9 == 0, 1 - votes.argmax(1), votes.argmax(1))
    said = [
        kind().fit(probs=votes.to(dtype), targets=targets).predict_proba(probs=votes.to(dtype)).double()
        for dtype in (torch.float32, torch.float64)
    ]
    torch.testing.assert_close(*said, rtol=1e-3, atol=1e-4)


@every
def test_one_score_a_sample_is_a_binary_model(kind):
    logits, targets = drawn(n=800, num_classes=2)
    single = logits[:, 1] - logits[:, 0]
    pairs = torch.stack((torch.zeros_like(single), single), 1)
    flat = kind().fit(logits=single, targets=targets).predict_proba(logits=single)
    whole = kind().fit(logits=pairs, targets=targets).predict_proba(logits=pairs)
    assert flat.shape == (800,)
    assert torch.allclose(flat, whole[:, 1])
    probs = torch.sigmoid(single)
    assert kind().fit(probs=probs, targets=targets.bool()).predict_proba(probs=probs).shape == (800,)


@every
def test_scikit_learn_manners(kind):
    calibrator = kind()
    params = calibrator.get_params()
    assert set(params) == set(clone(calibrator).get_params())
    assert repr(calibrator) == f"{kind.__name__}()"
    assert calibrator.set_params(**params) is calibrator
    logits, targets = drawn(n=200)
    assert calibrator.fit(logits=logits, targets=targets) is calibrator
    assert all(name.endswith("_") and hasattr(calibrator, name) for name in kind.fitted)
    assert not hasattr(clone(calibrator), "fit_report_")
    assert isinstance(kind.keeps_predictions, bool)
    assert kind.__doc__.count("Needs") == 1


@every
def test_x_is_what_the_calibrator_reads(kind):
    logits, targets = drawn(n=300)
    scores = logits if kind.reads == "logits" else torch.softmax(logits, 1)
    by_name = {kind.reads: scores}
    wanted = kind().fit(**by_name, targets=targets).predict_proba(**by_name)
    assert torch.equal(kind().fit(scores, targets).predict_proba(scores), wanted)
    assert torch.equal(kind().fit(X=scores, y=targets).predict_proba(X=scores), wanted)
    assert isinstance(kind().fit(scores.numpy(), targets.numpy()).predict_proba(scores.numpy()), np.ndarray)
    with pytest.raises(InvalidValueError, match="`X` must be the only scores, got `logits` or `probs` as well"):
        kind().fit(scores, targets, **by_name)
    with pytest.raises(InvalidValueError, match="Exactly one of `y` and `targets` must be given, got neither"):
        kind().fit(scores)
    with pytest.raises(InvalidValueError, match="Exactly one of `y` and `targets` must be given, got both"):
        kind().fit(scores, targets, targets=targets)
    if kind.reads == "probs":
        with pytest.raises(InvalidValueError, match="`probs` must lie in"):
            kind().fit(logits, targets)


def test_parameters_survive_a_clone():
    copy = clone(TemperatureScaling(method="grid", num_bins=7))
    assert repr(copy) == "TemperatureScaling(method='grid', num_bins=7)"
    with pytest.raises(InvalidValueError, match="`name` must be one of 'method', 'num_bins', 'max_iterations', got"):
        copy.set_params(n_bins=3)
    assert copy.get_params() == {"method": "grid", "num_bins": 7, "max_iterations": 50}


@every
def test_save_and_load_without_pickle(kind, tmp_path):
    logits, targets = drawn(n=300)
    calibrator = kind().fit(logits=logits, targets=targets)
    path = tmp_path / "calibrator.safetensors"
    calibrator.save(path)
    assert b"pickle" not in path.read_bytes()
    for loader in (kind, Calibrator):
        back = loader.load(path)
        assert type(back) is kind
        assert back.get_params() == calibrator.get_params()
        assert back.fit_report_ == calibrator.fit_report_
        assert back.num_classes_ == 4
        assert torch.equal(back.predict_proba(logits=logits), calibrator.predict_proba(logits=logits))


@every
def test_probabilities_to_what_was_fitted_on_logits(kind, tmp_path):
    """Are as good where a number added to all logits of a sample changes nothing, and refused elsewhere."""
    logits, targets = drawn(n=300)
    logits = logits + 3.0 * torch.randn(300, 1, generator=torch.Generator().manual_seed(0), dtype=logits.dtype)
    fitted = kind().fit(logits=logits, targets=targets)
    fitted.save(tmp_path / "fitted.safetensors")
    wanted = fitted.predict_proba(logits=logits)

    def agree(said):  # but for samples on an edge of histogram binning, where a rounding decides
        return bool(((said - wanted).abs().amax(1) < 1e-9).double().mean() > 0.9)

    for calibrator in (fitted, Calibrator.load(tmp_path / "fitted.safetensors")):
        assert agree(calibrator.predict_proba(logits=logits + 1.0)) != kind.shift_matters
        if kind.shift_matters:
            with pytest.raises(InvalidValueError, match=r"`logits` must be given, as in fit, got `probs`"):
                calibrator.predict_proba(probs=torch.softmax(logits, 1))
        else:
            assert agree(calibrator.predict_proba(probs=torch.softmax(logits, 1)))


def test_class_names_are_kept_and_files_without_them_load(tmp_path):
    logits, targets = drawn(n=300)
    path = tmp_path / "calibrator.safetensors"
    calibrator = TemperatureScaling().fit(logits=logits, targets=targets, class_names=list("abcd"))
    calibrator.save(path)
    assert Calibrator.load(path).class_names_ == calibrator.class_names_ == ("a", "b", "c", "d")
    assert calibrator.fit(logits=logits, targets=targets).class_names_ is None
    calibrator.save(path)
    assert Calibrator.load(path).class_names_ is None
    with safetensors.safe_open(path, framework="numpy") as file:
        about = json.loads(file.metadata()["metacal.posthoc"])
    del about["class_names"]  # as before names were kept
    arrays = {"temperature": np.array(calibrator.temperature_)}
    safetensors.numpy.save_file(arrays, path, metadata={"metacal.posthoc": json.dumps(about)})
    old = Calibrator.load(path)
    assert old.class_names_ is None
    assert old.temperature_ == calibrator.temperature_


@pytest.mark.parametrize(
    ("names", "error", "message"),
    [
        (["a", "b"], InvalidValueError, "`class_names` must hold 4 names, got 2"),
        ("abcd", InvalidTypeError, "`class_names` must be None or a sequence of strings, got 'abcd'"),
        ([0, 1, 2, 3], InvalidTypeError, r"`class_names` must be None or a sequence of strings, got \[0, 1, 2, 3\]"),
    ],
)
def test_bad_class_names(names, error, message):
    logits, targets = drawn(n=50)
    with pytest.raises(error, match=message):
        TemperatureScaling().fit(logits=logits, targets=targets, class_names=names)


def test_a_save_that_fails_leaves_what_was_there(tmp_path, no_room):
    logits, targets = drawn(n=300)
    path = tmp_path / "calibrator.safetensors"
    first = TemperatureScaling().fit(logits=logits, targets=targets)
    first.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644  # whoever serves the model can read it
    other = TemperatureScaling().fit(logits=2.0 * logits, targets=targets)
    with no_room(), pytest.raises(InvalidValueError, match=r"`path` must name a file that can be written, got .*large"):
        other.save(path)
    assert Calibrator.load(path).temperature_ == first.temperature_
    assert list(tmp_path.iterdir()) == [path]


@every
@pytest.mark.parametrize("case", DEGENERATE)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_degenerate_data_give_a_defined_result_and_a_warning(kind, case, dtype):
    logits, targets = DEGENERATE[case]
    logits = logits.to(dtype)
    with pytest.warns(MetacalWarning):
        calibrator = kind().fit(logits=logits, targets=targets)
    said = calibrator.predict_proba(logits=logits)
    assert bool(said.isfinite().all())
    assert torch.allclose(said.sum(1), torch.ones(len(said), dtype=said.dtype), atol=1e-5)
    assert calibrator.fit_report_.warning
    if isinstance(calibrator, TemperatureScaling):
        assert 1e-3 <= calibrator.temperature_ <= 1e3


@pytest.mark.parametrize(
    ("case", "text"),
    [
        ("separable", "its lower bound: every sample is right by a margin"),
        ("always wrong", "its upper bound: the logits say nothing about the targets, or run against them"),
        ("one class", "All 400 targets are of class 0"),
    ],
)
def test_what_temperature_says_of_degenerate_data(case, text):
    logits, targets = DEGENERATE[case]
    with pytest.warns(MetacalWarning, match=text):
        TemperatureScaling().fit(logits=logits, targets=targets)


def test_other_calibrators_say_so_too():
    with pytest.warns(MetacalWarning, match="All 40 samples are right after the fit"):
        VectorScaling().fit(logits=DEGENERATE["separable"][0], targets=DEGENERATE["separable"][1])
    with pytest.warns(MetacalWarning, match=r"run against the targets: 0\.0% are right, chance gives 50\.0%"):
        VectorScaling().fit(logits=DEGENERATE["always wrong"][0], targets=DEGENERATE["always wrong"][1])


def test_bad_input():
    logits, targets = drawn(n=50)
    fitted = TemperatureScaling().fit(logits=logits, targets=targets)
    with pytest.raises(InvalidValueError, match="Exactly one of `logits` and `probs` must be given, got neither"):
        TemperatureScaling().fit(targets=targets)
    with pytest.raises(InvalidValueError, match="Exactly one of `logits` and `probs` must be given, got both"):
        TemperatureScaling().fit(logits=logits, probs=logits, targets=targets)
    with pytest.raises(InvalidValueError, match=r"`targets` must have shape \(50,\) to fit `logits`, got \(49,\)"):
        TemperatureScaling().fit(logits=logits, targets=targets[1:])
    with pytest.raises(InvalidValueError, match="`probs` must lie in"):
        TemperatureScaling().fit(probs=logits, targets=targets)
    with pytest.raises(InvalidTypeError, match="`targets` must be integer class labels"):
        TemperatureScaling().fit(logits=logits, targets=targets.double())
    with pytest.raises(
        InvalidTypeError, match="`logits` must be a tensor or an array of numbers, got list of dtype <U1"
    ):
        TemperatureScaling().fit(logits=[["a", "b"]], targets=[0])
    with pytest.raises(InvalidValueError, match="`targets` must hold at least one sample"):
        TemperatureScaling().fit(logits=logits[:0], targets=targets[:0])
    with pytest.raises(InvalidValueError, match=r"`logits` must have 4 classes, as in fit, got 3"):
        fitted.predict_proba(logits=logits[:, :3])
    with pytest.raises(NotFittedError, match="TemperatureScaling must be fitted before `predict_proba`"):
        TemperatureScaling().predict_proba(logits=logits)
    with pytest.raises(NotFittedError, match="must be fitted before `save`"):
        TemperatureScaling().save("nowhere")
    with pytest.raises(InvalidValueError, match="one of 'nll', 'prior', 'grid', 'lbfgs', got 'newton'"):
        TemperatureScaling(method="newton").fit(logits=logits, targets=targets)
    assert fitted.predict_proba(logits=logits[:0]).shape == (0, 4)


def test_bad_files(tmp_path):
    logits, targets = drawn(n=50)
    path = tmp_path / "fitted.safetensors"
    with pytest.raises(InvalidValueError, match=r"`path` must name a calibrator's safetensors file, got .*nowhere"):
        Calibrator.load(tmp_path / "nowhere")
    path.write_bytes(b"\x80\x04nothing")
    with pytest.raises(InvalidValueError, match="`path` must name a calibrator's safetensors file"):
        Calibrator.load(path)
    safetensors.numpy.save_file({"a": np.zeros(1)}, path)
    with pytest.raises(InvalidValueError, match="without its metadata"):
        Calibrator.load(path)
    safetensors.numpy.save_file({"a": np.zeros(1)}, path, metadata={"metacal.posthoc": json.dumps({"kind": "Evil"})})
    with pytest.raises(InvalidValueError, match=r"must name a saved Calibrator, got .* with a Evil"):
        Calibrator.load(path)
    for text in ("no json", "{}", json.dumps({"kind": "TemperatureScaling", "params": {}})):
        safetensors.numpy.save_file({"temperature": np.zeros(())}, path, metadata={"metacal.posthoc": text})
        with pytest.raises(InvalidValueError, match="must name a file written by `save`"):
            Calibrator.load(path)
    TemperatureScaling().fit(logits=logits, targets=targets).save(path)
    with pytest.raises(InvalidValueError, match=r"must name a saved VectorScaling, got .* with a TemperatureScaling"):
        VectorScaling.load(path)
    for place, message in ((tmp_path / "no" / "folder", "in a folder that exists"), (tmp_path, "that can be written")):
        with pytest.raises(InvalidValueError, match=f"`path` must name a file {message}, got {place}"):
            TemperatureScaling().fit(logits=logits, targets=targets).save(place)


def saved(kind, path):
    """The arrays and the description of a fitted calibrator of four classes, as `save` writes them."""
    logits, targets = drawn(n=300)
    kind().fit(logits=logits, targets=targets).save(path)
    with safetensors.safe_open(path, framework="numpy") as file:
        about = json.loads(file.metadata()["metacal.posthoc"])
        return {name: file.get_tensor(name) for name in file.keys()}, about  # noqa: SIM118


def replaced(array, value, *place):
    array = array.copy()
    array[place] = value
    return array


# kind -> what is done to one of its arrays, and what is said of it
DAMAGE = {
    "temperature": [
        ("temperature", lambda t: np.array(-2.06), r"`temperature` must be finite and in .0\.001, 1000., got -2\.06\."),
        ("temperature", lambda t: np.array(0.0), r"`temperature` must be finite and in .0\.001, 1000., got 0\."),
        ("temperature", lambda t: np.array(np.nan), "`temperature` must be finite .*, got nan"),
        ("temperature", lambda t: np.array([2.0, 3.0, 4.0]), r"`temperature` must have shape \(\), got \(3,\)\."),
        ("temperature", lambda t: t.astype(np.float32), r"the float64 arrays must be temperature, got \[\]"),
    ],
    "vector": [
        ("weight", lambda w: w[:3], r"`weight` must have shape \(4,\), got \(3,\)\."),
        ("bias", lambda b: replaced(b, np.inf, 2), r"`bias` must be finite and in .-1e.100, 1e.100., got inf\."),
    ],
    "matrix": [
        ("weight", lambda w: w[0], r"`weight` must have shape \(4, 4\), got \(4,\)\."),
        ("bias", lambda b: replaced(b, np.nan, 0), "`bias` must be finite .*, got nan"),
        ("weight", lambda w: replaced(w, 1e308, 0, 0), "`weight` must be finite .*, got 1e.308"),
    ],
    "structured_vector": [
        ("weight", lambda w: w[:3], r"`weight` must have shape \(4,\), got \(3,\)\."),
        ("temperature", lambda t: np.array(0.0), r"`temperature` must be finite and in .0\.001, 1000., got 0\."),
        ("uniform_share", lambda s: np.array(0.0), r"`uniform_share` must be finite and in .1e-18, 0\.5., got 0\."),
    ],
    "structured_matrix": [
        ("weight", lambda w: w[0], r"`weight` must have shape \(4, 4\), got \(4,\)\."),
        ("uniform_share", lambda s: np.array(np.nan), "`uniform_share` must be finite .*, got nan"),
    ],
    "dirichlet": [("weight", lambda w: w[:, :3], r"`weight` must have shape \(4, 4\), got \(4, 3\)\.")],
    "beta": [
        ("coefficients", lambda c: c[:, :2], r"`coefficients` must have shape \(4, 3\), got \(4, 2\)\."),
        ("coefficients", lambda c: replaced(c, -1.0, 1, 0), r"`a and b` must be finite and in .0, 1e.100., got -1\."),
    ],
    "histogram": [
        ("frequencies", lambda f: f[:, :9], r"`frequencies` must have shape \(4, 15\), got \(4, 9\)\."),
        ("frequencies", lambda f: replaced(f, 1.5, 0, 0), r"`frequencies` must be finite and in .0, 1., got 1\.5"),
        ("edges", lambda e: e[:, :9], r"`edges` must have shape \(4, 16\), got \(4, 9\)\."),
        ("edges", lambda e: replaced(e, 1.0, 0, 3), "`steps of edges` must be finite and in .0, 1e.100., got -"),
    ],
    "isotonic": [
        ("starts", lambda s: s[1:], r"`starts` must have shape \(5,\), got \(4,\)\."),
        ("starts", lambda s: replaced(s, 1.0, 0), r"`starts` must be whole numbers from 0 to \d+, got 1 \.\.\. \d+\."),
        ("starts", lambda s: replaced(s, 0.5, 1), "`starts` must be whole numbers"),
        ("starts", lambda s: replaced(s, 0.0, 1), "`corners of a class` must be finite and in .1, 1e.100., got 0"),
        ("values", lambda v: v[1:], r"`values` must have shape"),
        ("values", lambda v: replaced(v, 2.0, 0), "`values` must be finite and in .0, 1., got 2"),
        ("values", lambda v: replaced(v, 1.0, 0), "`steps of values` must be finite and in .0, 1e.100., got -"),
        ("thresholds", lambda t: replaced(t, 9.0, 0), "`steps of thresholds` must be finite and in .0, 1e.100., got -"),
    ],
}


@pytest.mark.parametrize(
    ("name", "array", "damage", "message"), [(name, *case) for name in CALIBRATORS for case in DAMAGE[name]]
)
def test_values_that_no_fit_gives_are_not_loaded(name, array, damage, message, tmp_path):
    path = tmp_path / "fitted.safetensors"
    arrays, about = saved(CALIBRATORS[name], path)
    arrays[array] = damage(arrays[array])
    safetensors.numpy.save_file(arrays, path, metadata={"metacal.posthoc": json.dumps(about)})
    with pytest.raises(InvalidValueError, match=f"must name a file written by `save`, got {path}: {message}"):
        Calibrator.load(path)


def test_a_parameter_beyond_any_float_is_not_loaded(tmp_path):
    path = tmp_path / "fitted.safetensors"
    arrays, about = saved(CALIBRATORS["matrix"], path)
    about["params"]["bias_penalty"] = 10**400
    safetensors.numpy.save_file(arrays, path, metadata={"metacal.posthoc": json.dumps(about)})
    with pytest.raises(InvalidValueError, match=r"must name a file written by `save`, got .*too large"):
        Calibrator.load(path)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("num_classes", '"abc"', "`num_classes` must be an integer >= 2, got 'abc'"),
        ("num_classes", "1e400", "`num_classes` must be an integer >= 2, got inf"),
        ("num_classes", "1", "`num_classes` must be an integer >= 2, got 1"),
        ("num_classes", "9" * 5000, "4300"),
        ("num_classes", "[" * 100_000, "recursion"),
        ("params", '{"method": "newton"}', "`method` must be one of 'nll', 'prior', 'grid', 'lbfgs', got 'newton'"),
        ("params", '{"num_bins": "abc"}', "`num_bins` must be an integer >= 1, got 'abc'"),
        ("params", "3", "must be a mapping"),
        ("fit_report", '{"iterations": []}', r"`iterations` must be an integer >= 0, got \[\]"),
        ("fit_report", '{"converged": 2}', "`converged` and `at_bound` must be true or false, got"),
        ("fit_report", '{"warning": 2}', "`warning` must be None or a sentence, got 2"),
        ("fitted_on", '"scores"', "`fitted_on` must be one of 'logits', 'probs', got 'scores'"),
        ("fitted_on", "[]", r"`fitted_on` must be one of 'logits', 'probs', got \[\]"),
        ("class_names", '["a"]', "`class_names` must hold 4 names, got 1"),
        ("class_names", "5", "not iterable"),
    ],
)
def test_descriptions_that_save_does_not_write_are_not_loaded(key, value, message, tmp_path):
    path = tmp_path / "fitted.safetensors"
    arrays, about = saved(TemperatureScaling, path)
    text = json.dumps(about | {key: None}).replace(f'"{key}": null', f'"{key}": {value}')
    safetensors.numpy.save_file(arrays, path, metadata={"metacal.posthoc": text})
    with pytest.raises(InvalidValueError, match=f"must name a file written by `save`, got {path}: .*{message}"):
        Calibrator.load(path)


def test_numbers_of_numpy_as_parameters_are_saved(tmp_path):
    logits, targets = drawn(n=300)
    HistogramBinning(num_bins=np.int64(5)).fit(logits=logits, targets=targets).save(tmp_path / "fitted.safetensors")
    assert Calibrator.load(tmp_path / "fitted.safetensors").num_bins == 5


def test_well_behaved_data_warn_of_nothing():
    logits, targets = drawn()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in KINDS:
            kind().fit(logits=logits, targets=targets)


def test_probabilities_passed_as_logits_are_told_of():
    logits, targets = drawn()
    with pytest.warns(MetacalWarning, match="`logits` look like probabilities: all"):
        calibrator = TemperatureScaling().fit(logits=torch.softmax(logits, 1), targets=targets)
    with pytest.warns(MetacalWarning, match="`logits` look like probabilities: all"):
        calibrator.predict_proba(logits=torch.softmax(logits, 1))


def test_reached_lazily_from_the_package():
    assert metacal.posthoc.TemperatureScaling is TemperatureScaling
