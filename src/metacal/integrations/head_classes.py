"""What is learned by default: label smoothing for as many classes as the head has."""

from torch import nn

from metacal.errors import InvalidTypeError
from metacal.metalearning import NonUniformLabelSmoothing


def default_smoothing(head: nn.Module) -> NonUniformLabelSmoothing:
    """`NonUniformLabelSmoothing` for a head.

    Examples:
        >>> from torch import nn
        >>> default_smoothing(nn.Linear(8, 5)).num_classes
        5
    """
    outputs = getattr(head, "out_features", None)
    if not isinstance(outputs, int):
        raise InvalidTypeError(
            f"`hyperparameters` must be given for a head that does not tell its number of classes, got "
            f"{type(head).__name__}; e.g. metacal.NonUniformLabelSmoothing(num_classes=10)."
        )
    return NonUniformLabelSmoothing(max(outputs, 2))
