"""Over- or under-confidence in words."""

import math

from metacal.functional.binning import BinStatistics

LARGE = 1.96


def confidence_verdict(statistics: BinStatistics) -> str:
    """One sentence that says whether the model is too sure of itself, not sure enough, or neither.

    The mean confidence is held against the accuracy; a difference within the 95 % scatter of the accuracy counts for
    nothing.

    Examples:
        >>> import torch
        >>> from metacal.functional import equal_width_statistics
        >>> confidence_verdict(equal_width_statistics(torch.full((1000,), 0.9), torch.arange(1000) < 800))
        'Over-confident: it says 90.0 % and is right 80.0 % of the time.'
    """
    count = int(statistics.total)
    accuracy = int(statistics.correct_sums.sum()) / count
    confidence = float(statistics.confidence_sums.sum()) / count
    says = f"it says {confidence:.1%} and is right {accuracy:.1%} of the time".replace("%", " %")
    if abs(confidence - accuracy) <= LARGE * math.sqrt(max(confidence * (1.0 - confidence), 0.0) / count):
        return f"Neither over- nor under-confident on average: {says}, which chance explains."
    return f"{'Over' if confidence > accuracy else 'Under'}-confident: {says}."
