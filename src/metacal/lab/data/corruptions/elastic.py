"""Elastic: a small affine move, then every pixel displaced by a smooth random field."""

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from metacal.lab.data.corruptions.blur import SIDE, scale_of
from metacal.lab.data.corruptions.draws import Draws
from metacal.lab.data.corruptions.filters import blurred


def elastic_transform(images: Tensor, rubber: tuple[float, float, float], draws: Draws) -> Tensor:
    """Move and warp: ``rubber`` are strength and smoothness of the field and the affine move, as shares of the side.

    The original's field has the same displacement in pixels at every size; here it grows with the image.
    """
    strength, smooth, move = rubber
    height, width = images.shape[-2:]
    side, scale = scale_of(images) * SIDE, scale_of(images)
    across, down = torch.arange(width, device=images.device), torch.arange(height, device=images.device)
    x, y = across.float().expand(height, -1), down.float().unsqueeze(1).expand(-1, width)
    images = _sampled(images, *_affine(x, y, move * side, draws), corners=True)
    if not strength:
        return images
    field = draws.uniforms(2, height, width, low=-1.0, high=1.0)
    field = blurred(field, smooth * side, truncate=3.0, edge="reflect").mul_(strength * side * scale)
    return _sampled(images, x + field[:, 0], y + field[:, 1], corners=False)


def _affine(x: Tensor, y: Tensor, move: float, draws: Draws) -> tuple[Tensor, Tensor]:
    """Where pixels come from when three points around the middle are moved by up to ``move`` pixels each way."""
    height, width = x.shape
    middle = torch.tensor([height // 2, width // 2], device=x.device)  # in the original's order, as (x, y)
    arm = max(1, min(height, width) // 3)
    corners = torch.tensor([[arm, arm], [arm, -arm], [-arm, -arm]], device=x.device)
    before = (middle + corners).float()
    after = before + draws.uniforms(3, 2, low=-move, high=move)
    first, second = after[:, 1] - after[:, 0], after[:, 2] - after[:, 0]
    size = (first[:, :1] * second[:, 1:] - first[:, 1:] * second[:, :1]).view(-1, 1, 1)
    from_x, from_y = (after[:, 0, axis].view(-1, 1, 1) for axis in (0, 1))
    along_x, along_y = x - from_x, y - from_y
    # Coordinates of a pixel along the two moved sides, then the same along the sides as they were.
    one = (along_x * second[:, 1].view(-1, 1, 1) - along_y * second[:, 0].view(-1, 1, 1)) / size
    two = (along_y * first[:, 0].view(-1, 1, 1) - along_x * first[:, 1].view(-1, 1, 1)) / size
    old_first, old_second = before[1] - before[0], before[2] - before[0]
    return (
        before[0, 0] + one * old_first[0] + two * old_second[0],
        before[0, 1] + one * old_first[1] + two * old_second[1],
    )


def _sampled(images: Tensor, x: Tensor, y: Tensor, *, corners: bool) -> Tensor:
    """Images read between pixels; beyond the edge mirrored about the last pixel (``corners``) or about its rim."""
    height, width = images.shape[-2:]
    if corners:
        grid = torch.stack((2 * x / (width - 1) - 1, 2 * y / (height - 1) - 1), dim=-1)
    else:
        grid = torch.stack(((2 * x + 1) / width - 1, (2 * y + 1) / height - 1), dim=-1)
    return grid_sample(images, grid, mode="bilinear", padding_mode="reflection", align_corners=corners)
