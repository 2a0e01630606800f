"""``metacal export`` as a shell meets it: graphs that run elsewhere, folded weights, and files that are not trusted."""

import json
import os

import numpy as np
import onnxruntime
import pytest
import safetensors.torch
import torch
from tests.posthoc.samples import drawn
from torch import nn

from metacal.cli import export as verb
from metacal.posthoc import BetaCalibration, TemperatureScaling, VectorScaling


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Calibrators of five classes, and a network as module, program and weights."""
    monkeypatch.chdir(tmp_path)
    logits, targets = drawn(n=600, num_classes=5)
    for name, kind in (("temperature", TemperatureScaling), ("vector", VectorScaling), ("beta", BetaCalibration)):
        kind().fit(logits=logits, targets=targets, class_names=list("abcde")).save(f"{name}.safetensors")
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 5)).eval()
    torch.save(network, "module.pt")
    torch.save(network.state_dict(), "weights.pt")
    safetensors.torch.save_file(network.state_dict(), "weights.safetensors")
    batch = torch.randn(3, 2, 6, 6)
    free = ({0: torch.export.Dim("rows")},)
    torch.export.save(torch.export.export(network, (batch,), dynamic_shapes=free), "model.pt2")
    return tmp_path


def network_of(weights):
    network = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 5)).eval()
    network.load_state_dict(weights)
    return network


def test_a_calibrator_as_onnx_and_program(metacal, folder):
    words = ("--onnx", "out.onnx", "--torch-export", "out.pt2", "--json", "about.json")
    status, output, errors = metacal("export", "beta.safetensors", *words)
    assert (status, errors) == (0, "")
    assert "onnxruntime gives what metacal does on 2,5" in output and "allowed 1e-05" in output
    about = json.loads((folder / "about.json").read_text())
    assert about["calibrator"] == "BetaCalibration" and about["onnx"]["difference"] <= about["tolerance"] == 1e-5
    scores = drawn(n=20, num_classes=5, seed=3)[0].float()
    wanted = BetaCalibration.load("beta.safetensors").predict_proba(logits=scores)
    session = onnxruntime.InferenceSession("out.onnx", providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"logits": scores.numpy()})[0], wanted.numpy(), atol=1e-5)
    assert json.loads(session.get_modelmeta().custom_metadata_map["class_names"]) == list("abcde")
    torch.testing.assert_close(torch.export.load("out.pt2").module()(scores), wanted)


@pytest.mark.parametrize(
    ("words", "name"),
    [(["model.pt2"], "program"), (["module.pt", "--input-shape", "2,6,6"], "module")],
)
def test_a_model_with_its_calibrator_as_onnx(metacal, folder, words, name):
    words = (*words, "--trust-model", "--fold", "beta.safetensors", "--onnx", "out.onnx")
    status, output, errors = metacal("export", *words)
    assert (status, errors) == (0, "")
    assert "allowed 0.0001" in output
    batch = torch.randn(7, 2, 6, 6)
    with torch.no_grad():
        logits = network_of(torch.load("weights.pt"))(batch)
    wanted = BetaCalibration.load("beta.safetensors").predict_proba(logits=logits)
    session = onnxruntime.InferenceSession("out.onnx", providers=["CPUExecutionProvider"])
    said = session.run(None, {session.get_inputs()[0].name: batch.numpy()})[0]
    np.testing.assert_allclose(said, wanted.numpy(), atol=1e-4)


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
@pytest.mark.parametrize("calibrator", ["temperature", "vector"])
def test_weights_with_a_calibrator_in_the_last_layer(metacal, folder, suffix, calibrator):
    words = ("--fold", f"{calibrator}.safetensors", "--weights", f"out.{suffix}")
    status, output, errors = metacal("export", f"weights.{suffix}", *words)
    assert (status, errors) == (0, "")
    assert f"into layer 3; wrote out.{suffix}: its logits are calibrated." in output
    read = torch.load if suffix == "pt" else safetensors.torch.load_file
    batch = torch.randn(7, 2, 6, 6)
    with torch.no_grad():
        before, after = (network_of(read(f"{name}.{suffix}"))(batch) for name in ("weights", "out"))
    from metacal.posthoc import Calibrator

    wanted = Calibrator.load(f"{calibrator}.safetensors").predict_proba(logits=before)
    torch.testing.assert_close(torch.softmax(after, 1), wanted, atol=1e-6, rtol=1e-5)


class Marks:
    """Makes a file when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, ("ran",)


@pytest.mark.parametrize("name", ["module.pt", "evil.pt", "model.pt2"])
def test_no_code_of_a_file_is_run_unless_told_to(metacal, folder, name):
    torch.save(Marks(), "evil.pt")
    status, _, errors = metacal("export", name, "--onnx", "out.onnx", "--input-shape", "2,6,6")
    assert status == 2
    assert errors.count("\n") == 1
    assert "loading it may run any code; pass `--trust-model` if you trust where it comes from" in errors
    assert not (folder / "ran").exists() and not (folder / "out.onnx").exists()


def test_nothing_is_written_if_the_graph_differs(metacal, folder, monkeypatch):
    monkeypatch.setattr("metacal.posthoc.export.TOLERANCE", -1.0)
    status, _, errors = metacal("export", "beta.safetensors", "--onnx", "out.onnx")
    assert status == 1
    assert "onnxruntime differs from metacal by" in errors and "nothing is written" in errors
    assert not list(folder.glob("*.onnx")) and not list(folder.glob(".metacal*"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["beta.safetensors"], "At least one of `--onnx`, `--torch-export` and `--weights` must be given"),
        (["nowhere.pt", "--onnx", "o.onnx"], "nowhere.pt: no such file."),
        (["beta.safetensors", "--onnx", "no/o.onnx"], "`--onnx` must name a file in a folder that exists"),
        (["beta.safetensors", "--torch-export", "o.pt"], "`--torch-export` must end in .pt2, got o.pt."),
        (["beta.safetensors", "--onnx", "beta.safetensors"], "must be another file than the one that is read"),
        (["beta.safetensors", "--onnx", "o.onnx", "--scores", "odds"], "`--scores` must be one of 'logits', 'probs'"),
        (
            ["vector.safetensors", "--onnx", "o.onnx", "--scores", "probs"],
            "VectorScaling must be given `logits`, as in",
        ),
        (["beta.safetensors", "--fold", "beta.safetensors", "--onnx", "o.onnx"], "FILE is a calibrator itself."),
        (["beta.safetensors", "--weights", "o.pt"], "`--weights` must come with a state_dict, got beta.safetensors"),
        (["weights.pt", "--onnx", "o.onnx"], "weights.pt: holds weights and no model to trace; write `--weights`"),
        (["weights.pt", "--weights", "o.pt"], "`--fold` and `--weights` must be given with weights"),
        (["weights.pt", "--fold", "vector.safetensors", "--weights", "o.npz"], "must end in .pt, .pth or .safetensors"),
        (
            ["weights.pt", "--fold", "beta.safetensors", "--weights", "o.pt"],
            "BetaCalibration must be exported with its",
        ),
        (["module.pt", "--trust-model", "--onnx", "o.onnx"], "`--input-shape` must be given with a .pt module"),
        (
            ["module.pt", "--trust-model", "--onnx", "o.onnx", "--input-shape", "a"],
            "must be sizes with commas, such as",
        ),
        (["module.pt", "--trust-model", "--onnx", "o.onnx", "--input-shape", "9,9"], "the model: cannot be"),
        (["model.pt2", "--trust-model", "--onnx", "o.onnx", "--input-shape", "9"], "a .pt2 program knows its inputs."),
        (["model.pt2", "--trust-model", "--fold", "six.safetensors", "--onnx", "o.onnx"], "5 classes, got one of 6."),
        (["broken.pt2", "--trust-model", "--onnx", "o.onnx"], "broken.pt2: cannot be read as a torch.export program:"),
        (["broken.safetensors", "--onnx", "o.onnx"], "broken.safetensors: is no safetensors file:"),
        (["list.pt", "--onnx", "o.onnx"], "list.pt: must hold a module or a state_dict, got list."),
        (["model.zip", "--onnx", "o.onnx"], "model.zip: must end in .safetensors, .pt, .pth or .pt2."),
    ],
)
def test_bad_input(metacal, folder, words, message):
    logits, targets = drawn(n=100, num_classes=6)
    TemperatureScaling().fit(logits=logits, targets=targets).save("six.safetensors")
    for name in ("broken.pt2", "broken.safetensors", "model.zip"):
        (folder / name).write_bytes(b"nothing")
    torch.save([1, 2], "list.pt")
    status, _, errors = metacal("export", *words)
    assert status == 2
    assert message in errors
    assert errors.count("\n") == 1
    assert not list(folder.glob("o.*"))


def test_a_fixed_number_of_rows_is_said(metacal, folder):
    network = network_of(torch.load("weights.pt"))
    torch.export.save(torch.export.export(network, (torch.randn(3, 2, 6, 6),)), "fixed.pt2")
    status, _, errors = metacal("export", "fixed.pt2", "--trust-model", "--onnx", "out.onnx")
    assert status == 0
    assert "warning: the number of rows is fixed" in errors
    assert verb.RUNS_CODE not in errors
