"""What is exported agrees with the library: ONNX graphs run by onnxruntime, programs by torch, weights by hand."""

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from tests.posthoc.samples import drawn
from torch import nn

from metacal.errors import InvalidValueError
from metacal.posthoc import CALIBRATORS, DirichletCalibration, MatrixScaling, TemperatureScaling, VectorScaling
from metacal.posthoc.export import (
    TOLERANCE,
    CalibratedModel,
    compare_onnx,
    compare_program,
    export_program,
    fold_into_layer,
    sample_scores,
    write_onnx,
)


def fitted(kind, gives="logits", num_classes=5):
    logits, targets = drawn(n=600, num_classes=num_classes)
    return kind().fit(**{gives: logits if gives == "logits" else torch.softmax(logits, 1)}, targets=targets)


def run(path, name, rows):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {name: rows})[0]


@pytest.mark.parametrize("gives", ["logits", "probs"])
@pytest.mark.parametrize("kind", CALIBRATORS.values(), ids=CALIBRATORS)
def test_every_calibrator_as_onnx_gives_our_probabilities(kind, gives, tmp_path):
    calibrator, path = fitted(kind, gives), tmp_path / "calibrator.onnx"
    model, rows = CalibratedModel(calibrator, gives=gives), sample_scores(5, gives)
    free = (({0: torch.export.Dim("rows")},), {})
    program = export_program(model, ((rows,), {}), free)
    write_onnx(program, path, {"calibrator": kind.__name__}, [gives])
    assert compare_onnx(path, model, [((rows,), {})]) < TOLERANCE
    assert compare_program(program, model, [((rows,), {})]) < TOLERANCE
    loaded = onnx.load(path)
    onnx.checker.check_model(loaded, full_check=True)
    assert {each.key: each.value for each in loaded.metadata_props}["calibrator"] == kind.__name__
    # rows that were not traced with, compared here, against predict_proba
    logits = drawn(n=37, num_classes=5, seed=9)[0].float()
    scores = logits if gives == "logits" else torch.softmax(logits, 1)
    said = run(path, gives, scores.numpy())
    assert said.dtype == np.float32
    np.testing.assert_allclose(said, calibrator.predict_proba(**{gives: scores}).numpy(), atol=TOLERANCE)


def test_a_difference_is_seen(tmp_path):
    """Another temperature in the graph than in the module that it is compared with."""
    calibrator, path = fitted(TemperatureScaling), tmp_path / "calibrator.onnx"
    rows = sample_scores(5, "logits")
    program = export_program(CalibratedModel(calibrator), ((rows,), {}), (({0: torch.export.Dim("rows")},), {}))
    write_onnx(program, path, {}, ["logits"])
    other = fitted(TemperatureScaling)
    other.temperature_ *= 1.01
    assert compare_onnx(path, CalibratedModel(other), [((rows,), {})]) > 1e-3
    assert compare_program(program, CalibratedModel(other), [((rows,), {})]) > 1e-3


def test_samples_reach_the_extremes():
    logits, probs = sample_scores(5, "logits"), sample_scores(5, "probs")
    assert logits.max() == 1e30
    assert float((probs == 0.0).double().mean()) > 0.1 and probs.max() == 1.0
    assert torch.allclose(probs.sum(1), torch.ones(len(probs)))


@pytest.mark.parametrize("kind", [TemperatureScaling, VectorScaling, MatrixScaling])
@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 1, 1)])
def test_folding_into_a_layer_is_exact(kind, shape):
    generator = torch.Generator().manual_seed(0)
    weight, bias = (torch.randn(size, generator=generator, dtype=torch.float64) for size in (shape, 5))
    calibrator = fitted(kind)
    weights = {"body.weight": torch.ones(7, 7), "head.weight": weight, "head.bias": bias, "steps": 3}
    folded = fold_into_layer(weights, calibrator)
    assert (folded.layer, folded.difference < 1e-12) == ("head", True)
    assert torch.equal(weights["head.bias"], bias)
    assert folded.weights["steps"] == 3 and folded.weights["body.weight"] is weights["body.weight"]
    x = 5.0 * torch.randn(50, 7, generator=generator, dtype=torch.float64)
    logits = x @ weight.reshape(5, 7).T + bias
    new = x @ folded.weights["head.weight"].reshape(5, 7).T + folded.weights["head.bias"]
    torch.testing.assert_close(torch.softmax(new, 1), calibrator.predict_proba(logits=logits))


def test_what_a_layer_cannot_hold():
    weights = {"a.weight": torch.ones(5, 7), "a.bias": torch.ones(5), "b.weight": torch.ones(5, 5)}
    with pytest.raises(
        InvalidValueError, match="DirichletCalibration must be exported with its model: it is no linear"
    ):
        fold_into_layer(weights, fitted(DirichletCalibration), "a")
    with pytest.raises(
        InvalidValueError, match="VectorScaling must be given `probs`, as in fit, got `logits`; fit it on"
    ):
        fold_into_layer(weights, fitted(VectorScaling, "probs"), "a")
    with pytest.raises(
        InvalidValueError, match="must name the last layer, with 5 outputs, one a class; several have: a, b"
    ):
        fold_into_layer(weights, fitted(VectorScaling))
    with pytest.raises(InvalidValueError, match=r"with a weight of 5 rows, one a class, got c with none"):
        fold_into_layer(weights, fitted(VectorScaling), "c")
    with pytest.raises(InvalidValueError, match="must name a layer with a bias for VectorScaling, got b without one"):
        fold_into_layer(weights, fitted(VectorScaling), "b")
    assert fold_into_layer(weights, fitted(TemperatureScaling, "probs"), "b").difference < 1e-6
    with pytest.raises(InvalidValueError, match="must be given `logits`, as in fit, got `probs`"):
        CalibratedModel(fitted(VectorScaling), gives="probs")


def test_scores_of_models_that_return_more():
    calibrator = fitted(TemperatureScaling)

    class Talkative(nn.Module):
        def __init__(self, wrap):
            super().__init__()
            self.wrap = wrap

        def forward(self, x):
            return self.wrap(x)

    x = drawn(n=5, num_classes=5)[0]
    wanted = calibrator.predict_proba(logits=x)
    for wrap in (lambda x: (x, 2), lambda x: {"loss": 1, "logits": x}, lambda x: x):
        assert torch.equal(CalibratedModel(calibrator, Talkative(wrap))(x), wanted)
    with pytest.raises(InvalidValueError, match=r"must return scores of shape \(n, K\), got \(5, 5, 1\)"):
        CalibratedModel(calibrator, Talkative(lambda x: x.unsqueeze(2)))(x)
