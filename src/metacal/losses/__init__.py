"""Losses as modules that add and scale, ``CrossEntropyLoss() + 0.5 * DECELoss()``; specs name them as `LOSSES` does."""

from metacal.losses import base, of_batches, of_samples
from metacal.losses.base import *  # noqa: F403
from metacal.losses.of_batches import *  # noqa: F403
from metacal.losses.of_samples import *  # noqa: F403

__all__ = [*base.__all__, *of_samples.__all__, *of_batches.__all__]
