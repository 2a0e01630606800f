"""Stored runs on CIFAR-100 with their test images normalised as in training, and as the published code does."""

import pytest
import torch
from benchmarks.normalisation import both_ways

from metacal.functional import expected_calibration_error
from metacal.lab.data import load_dataset
from metacal.lab.models import create_model
from metacal.lab.training import Checkpoints, RunFolder, build_spec, run


@pytest.mark.data
def test_both_ways_of_a_stored_run(tmp_path, data_folder):
    small = {"dataset": "cifar100", "model": "mlp", "model_options": {"hidden": [16]}, "train_size": 400}
    settings = {**small, "val_size": 100, "epochs": 2, "milestones": [1], "lr": 0.01, "batch_size": 50}
    folder = RunFolder(tmp_path)
    scores = run(build_spec(settings), folder, data_dir=data_folder)["test"]
    trained, published = both_ways(folder, data_folder)
    assert trained["ece"] == pytest.approx(scores["ece"])
    assert trained["error"] == pytest.approx(1.0 - scores["accuracy"])
    test = load_dataset("cifar100", folder=data_folder).test
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    model = create_model("mlp", num_classes=100, input_shape=(3, 32, 32), hidden=[16])
    model.load_state_dict(Checkpoints(folder.checkpoints).load_best()[0]["model"])
    with torch.no_grad():
        logits = model.eval()((test.inputs / 255.0 - mean) / std)
    assert published["ece"] == pytest.approx(
        float(expected_calibration_error(logits=logits, targets=test.targets)), abs=1e-5
    )
    assert published["ece"] != trained["ece"]
