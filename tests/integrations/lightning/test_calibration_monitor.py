"""The monitor's figures are the functions', and loggers receive numbers and images."""

import pytest
import torch
from lightning.pytorch.loggers import CSVLogger, MLFlowLogger, TensorBoardLogger
from tests.integrations.lightning.modules import K, Plain, loader, samples, trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from metacal import OuterStep, VectorLabelSmoothing
from metacal.functional import expected_calibration_error, likelihood_decomposition, negative_log_likelihood
from metacal.integrations.lightning import CalibrationMonitor, MetaCalibration

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers.*",
    "ignore:.*srun.*",
    "ignore:.*LeafSpec.*",
    "ignore:.*isinstance\\(treespec.*",
)


def fitted(folder, logger, **options):
    module = Plain()
    monitor = CalibrationMonitor("net.2", class_names=["a", "b", "c"], **options)
    outer = OuterStep(every=1, dense_start=0)
    meta = MetaCalibration(hyperparameters=VectorLabelSmoothing(K), outer=outer, finish=False)
    fit = trainer(folder, meta, monitor, logger=logger)
    fit.fit(module, loader(), loader(30, 5))
    return module, fit


def test_numbers_are_those_of_the_functions(tmp_path):
    module, fit = fitted(tmp_path, CSVLogger(tmp_path))
    with torch.no_grad():
        logits = module.net(samples(30, 5).tensors[0])
    targets = samples(30, 5).tensors[1]
    figures = fit.callback_metrics
    assert figures["val_ece"].item() == pytest.approx(
        expected_calibration_error(logits=logits, targets=targets).item(), abs=1e-6
    )
    assert figures["val_nll"].item() == pytest.approx(
        negative_log_likelihood(logits=logits, targets=targets).item(), abs=1e-6
    )
    refined = likelihood_decomposition(logits=logits, targets=targets).refinement.item()
    assert refined <= figures["val_refined_nll"].item() < refined + 0.01  # a weak prior holds its temperature back
    assert not module.net[2]._forward_hooks


HEADS = {
    "(n, 1)": (lambda: nn.Linear(16, 1), (30,), 2),
    "(n,)": (lambda: nn.Sequential(nn.Linear(16, 1), nn.Flatten(0)), (30,), 2),
    "(n, T, K)": (lambda: nn.Sequential(nn.Linear(16, 2 * K), nn.Unflatten(1, (2, K))), (30, 2), K),
    "(n, T, 1)": (lambda: nn.Sequential(nn.Linear(16, 2), nn.Unflatten(1, (2, 1))), (30, 2), 2),
}


@pytest.mark.parametrize("shape", HEADS)
def test_heads_of_one_logit_and_of_sequences(tmp_path, shape):
    make, label_shape, classes = HEADS[shape]
    module = Plain()
    module.net[2] = make()
    x = samples(30, 5).tensors[0]
    targets = torch.randint(classes, label_shape, generator=torch.Generator().manual_seed(0))
    fit = trainer(tmp_path, CalibrationMonitor("net.2"), logger=TensorBoardLogger(tmp_path))
    fit.validate(module, DataLoader(TensorDataset(x, targets), batch_size=12), verbose=False)
    with torch.no_grad():
        rows = module.net(x).reshape(targets.numel(), -1)
    logits = torch.cat((torch.zeros_like(rows), rows), dim=1) if rows.shape[1] == 1 else rows
    scores = {"logits": logits, "targets": targets.reshape(-1)}
    figures = {name: value.item() for name, value in fit.callback_metrics.items()}
    assert figures["val_ece"] == pytest.approx(expected_calibration_error(**scores).item(), abs=1e-6)
    assert figures["val_nll"] == pytest.approx(negative_log_likelihood(**scores).item(), abs=1e-6)


def test_a_validation_that_fails_leaves_the_module_as_it_was(tmp_path):
    module, monitor = Plain(), CalibrationMonitor("net.2")
    module.validation_step = lambda batch, batch_idx: 1 / 0
    with pytest.raises(ZeroDivisionError):
        trainer(tmp_path, monitor).validate(module, loader(30, 5), verbose=False)
    assert not module.net[2]._forward_hooks
    assert not module.net[2]._forward_pre_hooks


def test_tensorboard(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    fitted(tmp_path, TensorBoardLogger(tmp_path, name="", version=""))
    events = EventAccumulator(str(tmp_path)).Reload()
    assert {"meta/strength", "meta/meta_loss", "val_ece"} <= set(events.Tags()["scalars"])
    assert set(events.Tags()["images"]) == {"reliability", "smoothing"}
    image = events.Images("smoothing")[-1]
    assert image.width > 200
    assert image.height > 200
    assert len(events.Images("reliability")) == 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_mlflow(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow prefers a database now
    logger = MLFlowLogger("metacal", tracking_uri=f"file:{tmp_path}/mlruns")
    fitted(tmp_path, logger)
    run = logger.experiment.get_run(logger.run_id)
    assert {"meta/strength", "val_ece", "val_nll"} <= set(run.data.metrics)
    images = [
        file.path
        for folder in ("reliability", "smoothing")
        for file in logger.experiment.list_artifacts(logger.run_id, folder)
    ]
    assert len(images) == 4
    assert all(path.endswith(".png") for path in images)


def test_figures_can_be_left_out(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    fitted(tmp_path, TensorBoardLogger(tmp_path, name="", version=""), every_n_epochs=0)
    events = EventAccumulator(str(tmp_path)).Reload()
    assert events.Tags()["images"] == []
    assert "val_ece" in events.Tags()["scalars"]
