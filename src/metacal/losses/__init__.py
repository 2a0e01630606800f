"""Losses as modules that add and scale, ``CrossEntropyLoss() + 0.5 * DECELoss()``; specs name them as `LOSSES` does."""

from metacal.losses import base, batch_losses, sample_losses
from metacal.losses.base import *  # noqa: F403
from metacal.losses.batch_losses import *  # noqa: F403
from metacal.losses.sample_losses import *  # noqa: F403

__all__ = [*base.__all__, *sample_losses.__all__, *batch_losses.__all__]
