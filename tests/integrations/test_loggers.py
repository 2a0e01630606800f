"""Figures through Fabric's loggers."""

import pytest
import torch
from lightning_fabric.loggers import CSVLogger, TensorBoardLogger

from metacal import LearnableTemperature, NonUniformLabelSmoothing
from metacal.evaluation.predictions import Predictions
from metacal.integrations.loggers import log_reliability, log_smoothing

SAID = Predictions.from_logits(torch.randn(50, 4, generator=torch.Generator().manual_seed(0)), torch.arange(50) % 4)


def test_fabric_tensorboard(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logger = TensorBoardLogger(tmp_path, name="", version="")
    smoothing = NonUniformLabelSmoothing(4, initial="uniform")
    smoothing.strength.data.fill_(0.1)
    assert log_reliability(logger, SAID, step=3)
    assert log_smoothing(logger, smoothing, 3)
    logger.finalize("done")
    events = EventAccumulator(str(tmp_path)).Reload()
    assert [event.step for event in events.Images("reliability")] == [3]
    assert set(events.Tags()["images"]) == {"reliability", "smoothing"}


def test_a_logger_that_takes_pictures_of_its_own_kind():
    class Pictures:
        taken: list

        def log_image(self, key, images, step):
            self.taken.append((key, images[0].shape[2], step))

    logger = Pictures()
    logger.taken = []
    assert log_reliability(logger, SAID, step=1, name="test set")
    assert logger.taken == [("test set", 3, 1)]


def test_a_logger_without_pictures(tmp_path):
    assert not log_reliability(CSVLogger(tmp_path), SAID, step=1)
    assert not log_smoothing(CSVLogger(tmp_path), NonUniformLabelSmoothing(4), 1)


@pytest.mark.parametrize("hyperparameters", [LearnableTemperature()])
def test_nothing_smoothed_nothing_shown(tmp_path, hyperparameters):
    assert not log_smoothing(CSVLogger(tmp_path), hyperparameters, 1)
