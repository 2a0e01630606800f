"""What a meta step is simulated on: the head, or all of the model."""

from torch import nn

from metacal.errors import InvalidValueError
from metacal.functional.arguments import check_choice
from metacal.metalearning.model_output import named_layers
from metacal.metalearning.optimizer_step import OptimizerStep
from metacal.metalearning.outer_step import OuterStep
from metacal.metalearning.through_head import ThroughHead
from metacal.metalearning.through_model import ThroughModel


def choose_path(
    model: nn.Module,
    through: str | None,
    given: nn.Module | None,
    found: nn.Module | None,
    optimizer: OptimizerStep,
    outer: OuterStep,
) -> ThroughHead | ThroughModel:
    """What steps are simulated on: as asked for, or the head, if it was named or is a linear layer that is trained."""
    if through is None:
        is_linear = isinstance(found, nn.Linear) and optimizer.trains(found)
        through = "head" if given is not None or is_linear else "model"
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
