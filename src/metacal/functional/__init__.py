"""Pure tensor functions: calibration errors, proper scores, differentiable calibration losses. Torch only, no state."""

from metacal.functional import (
    batch_losses,
    binning,
    calibration_errors,
    equal_mass,
    intervals,
    proper_scores,
    sample_losses,
    temperature,
)
from metacal.functional.batch_losses import *  # noqa: F403
from metacal.functional.binning import *  # noqa: F403
from metacal.functional.calibration_errors import *  # noqa: F403
from metacal.functional.equal_mass import *  # noqa: F403
from metacal.functional.intervals import *  # noqa: F403
from metacal.functional.proper_scores import *  # noqa: F403
from metacal.functional.sample_losses import *  # noqa: F403
from metacal.functional.temperature import *  # noqa: F403

__all__ = [
    *batch_losses.__all__,
    *binning.__all__,
    *calibration_errors.__all__,
    *equal_mass.__all__,
    *intervals.__all__,
    *proper_scores.__all__,
    *sample_losses.__all__,
    *temperature.__all__,
]
