"""The hypergradient estimators by name. All have one signature: `MetaProblem` in, `Hypergradient` out."""

from metacal.errors import InvalidTypeError
from metacal.functional.arguments import check_choice
from metacal.metalearning.evograd import evograd
from metacal.metalearning.implicit import implicit
from metacal.metalearning.one_step import one_step, small_step
from metacal.metalearning.problem import Estimator

ESTIMATORS: dict[str, Estimator] = {
    "one_step": one_step,
    "small_step": small_step,
    "implicit": implicit,
    "evograd": evograd,
}


def find_estimator(estimator: str | Estimator) -> Estimator:
    """An estimator by its name, or as it is (`functools.partial` sets its options)."""
    if isinstance(estimator, str):
        check_choice("estimator", estimator, tuple(ESTIMATORS))
        return ESTIMATORS[estimator]
    if not callable(estimator):
        raise InvalidTypeError(f"`estimator` must be a name or a function, got {type(estimator).__name__}.")
    return estimator
