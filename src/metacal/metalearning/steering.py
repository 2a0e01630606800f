"""Replaces the gradient of a trainer's loss at the logits by that of the learned loss."""

import math

import torch
from torch import Tensor

from metacal.errors import InvalidValueError
from metacal.losses import Loss
from metacal.metalearning.hyperparameter import InnerLoss

LEAST_COSINE = 0.99999
LEAST_COSINE_OF_HALF = 0.999
"""Least cosine between a trainer's gradient and the one we take it for; the second for 16-bit logits."""


def steer_gradient(loss: Tensor, logits: Tensor, inner: InnerLoss, base: Loss, *, compares: bool) -> None:
    """Hook the logits so that ``loss`` sends back the gradient of the learned loss ``inner``.

    The trainer's loss may be multiplied by anything (a gradient scaler, accumulation, a sum instead of a mean): the
    factor is read off the gradient that arrives. If it ``compares``, the gradient of ``loss`` has to be that of
    ``base``, the loss without anything learned, as far as the logits go (makes a GPU wait).
    """
    if inner.penalty is not None:
        raise InvalidValueError(
            "`hyperparameters` must act on labels or logits here, got one that adds a penalty on weights; "
            "`MetaCalibrator.step` takes those."
        )
    if not loss.requires_grad or not logits.requires_grad:
        raise InvalidValueError("`loss` must depend on the head's output, got one without a gradient there.")
    plain = _gradient(InnerLoss.plain(inner.labels, inner.num_classes), base, logits)
    if compares:
        _check_loss(loss, logits, plain, inner)
    change = _gradient(inner, base, logits) - plain
    # In units of the largest: the square of what is left of a gradient late in training would be rounded to 0.
    smallest = torch.finfo(plain.dtype).tiny
    largest = plain.abs().max()
    unit = plain / largest.clamp(min=smallest)
    length = largest * unit.square().sum()

    def exchange(arriving: Tensor) -> Tensor:
        wide = arriving.to(plain.dtype)
        # On a batch so saturated that its gradient is rounded to 0, no factor can be read: the gradient stays as it is.
        factor = torch.where(largest >= smallest, (wide * unit).sum() / length.clamp(min=smallest), 0.0)
        return (wide + factor * change).to(arriving.dtype)

    logits.register_hook(exchange)  # type: ignore[no-untyped-call]


def _gradient(inner: InnerLoss, base: Loss, logits: Tensor) -> Tensor:
    """Return the gradient of the summed loss at the logits, in float32 or wider."""
    leaf = logits.detach().to(torch.promote_types(logits.dtype, torch.float32)).requires_grad_()
    with torch.autocast(logits.device.type, enabled=False):
        value = inner.value(base, leaf, {})
    return torch.autograd.grad(value, leaf)[0]


def _check_loss(loss: Tensor, logits: Tensor, plain: Tensor, inner: InnerLoss) -> None:
    """Raise unless the gradient of a trainer's loss is parallel to that of the plain loss."""
    (found,) = torch.autograd.grad(loss, logits, retain_graph=True, allow_unused=True)
    if found is None:
        raise InvalidValueError(
            "`loss` must be computed from the head's output, got one that does not depend on it; is `head` the layer "
            "that returns the logits?"
        )
    given = found.to(plain.dtype)
    if not bool(torch.isfinite(given).all()):
        return  # a gradient scaler leaves this step out, or the training has failed: not ours to say
    lengths = given.norm() * plain.norm()
    cosine = float((given * plain).sum() / lengths.clamp(min=torch.finfo(plain.dtype).tiny))
    if cosine >= (LEAST_COSINE_OF_HALF if logits.dtype.itemsize < 4 else LEAST_COSINE):
        return
    if float(plain.norm()) <= _rounding(logits, plain):
        return  # nothing is left to compare
    strength = _smoothing_in(given, plain, inner)
    if strength is not None:
        raise InvalidValueError(
            f"`loss` must be without label smoothing, which is learned here, got one that smooths by {strength:.3g}."
        )
    raise InvalidValueError(
        "`loss` must be the cross-entropy of the head's output and the batch's labels (plus terms that do not depend "
        f"on these logits), got one whose gradient there has cosine {cosine:.5f} with it; name another loss as "
        "`base_loss`, or the labels it uses as `targets`."
    )


def _rounding(logits: Tensor, plain: Tensor) -> float:
    """Return the gradient norm below which two computations may disagree by rounding."""
    largest = float(logits.detach().abs().max())
    return 100.0 * torch.finfo(plain.dtype).eps * (1.0 + largest) * math.sqrt(len(plain))


def _smoothing_in(given: Tensor, plain: Tensor, inner: InnerLoss) -> float | None:
    """Return the label-smoothing strength if it explains the difference."""
    if plain.ndim != 2 or plain.shape[1] != inner.num_classes:
        return None
    uniform = torch.nn.functional.one_hot(inner.labels, inner.num_classes).to(plain) - 1.0 / inner.num_classes
    columns = torch.stack((plain.flatten(), uniform.flatten()), dim=1).double()
    wanted = given.flatten().double().unsqueeze(1)
    weights = torch.linalg.lstsq(columns, wanted).solution
    left = float((columns @ weights - wanted).norm() / wanted.norm())
    factor, smoothed = (float(weight) for weight in weights)
    return smoothed / factor if left < 0.01 and factor > 0.0 and smoothed > 0.0 else None
