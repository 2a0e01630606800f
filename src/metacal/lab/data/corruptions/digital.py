"""Digital: pixelate; `jpeg_compression` and `elastic_transform` have files of their own."""

from torch import Tensor

from metacal.lab.data.corruptions.draws import Draws
from metacal.lab.data.corruptions.filters import filtered, pixelate_matrix


def pixelate(images: Tensor, share: float, draws: Draws) -> Tensor:
    """Average down to a share of the side and repeat up again."""
    height, width = images.shape[-2:]
    rows, columns = (pixelate_matrix(size, share, images.device) for size in (height, width))
    return filtered(images, rows, columns)
