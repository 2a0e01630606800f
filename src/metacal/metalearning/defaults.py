"""What a `MetaCalibrator` takes where nothing is said; docs/design/default.md says why."""

from torch import nn

from metacal.errors import InvalidValueError
from metacal.functional.arguments import check_choice
from metacal.losses import AfterTemperature, CrossEntropyLoss, DECELoss, Loss
from metacal.metalearning.hyperparameter import Hyperparameter
from metacal.metalearning.model_output import named_layers
from metacal.metalearning.outer_step import OuterStep
from metacal.metalearning.through_head import ThroughHead
from metacal.metalearning.through_model import ThroughModel


def default_objective(outer: OuterStep, hyperparameters: Hyperparameter) -> Loss:
    """Held-out cross-entropy after the best temperature; the paper's objective where `OuterStep` says not to refine."""
    plain = CrossEntropyLoss() if outer.refine else CrossEntropyLoss() + 0.5 * DECELoss()
    return judged(plain, outer, hyperparameters)


def judged(objective: Loss, outer: OuterStep, hyperparameters: Hyperparameter) -> Loss:
    """An objective after the best temperature, unless one is learned or `OuterStep` says not to."""
    return AfterTemperature(objective) if outer.refine and not hyperparameters.acts_on_meta_logits else objective


def choose_path(
    model: nn.Module, through: str | None, given: nn.Module | None, found: nn.Module | None, outer: OuterStep
) -> ThroughHead | ThroughModel:
    """What steps are simulated on: as asked for; else the model, unless a head or an estimator of its step is named.

    The parameters of a model in half precision are too coarse to be moved a little: then it is the head, too.
    """
    if through is None:
        is_coarse = any(parameter.dtype.itemsize < 4 for parameter in model.parameters() if parameter.requires_grad)
        is_head = given is not None or outer.estimator != OuterStep.estimator or is_coarse
        through = "head" if is_head else "model"
    check_choice("through", through, ("head", "model"))
    if through == "model":
        return ThroughModel(model, given, found)
    head = found if given is None else given
    if head is None:
        raise InvalidValueError(
            f"`head` must name the layer that returns the logits, got none whose output is the model's; "
            f"{named_layers(model)}"
        )
    return ThroughHead(model, head, outer.estimator)
