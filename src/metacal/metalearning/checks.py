"""Checks of the calibrator's arguments: each message names the argument, its rule and the value."""

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import UninitializedParameter

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.losses import Loss
from metacal.metalearning.head_tap import named_layers
from metacal.metalearning.hyperparameter import Hyperparameter, InnerLoss
from metacal.metalearning.model_calls import forwarded, leaving_no_trace, uncompiled
from metacal.metalearning.optimizer_step import OptimizerStep


def find_head(model: nn.Module, head: nn.Module | str) -> nn.Module:
    """Return the head after checking that it is part of the model and has parameters; a string is an attribute path."""
    if isinstance(head, str):
        try:
            head = model.get_submodule(head)
        except AttributeError:
            raise InvalidValueError(
                f"`head` must be a part of the model, got {head!r}; {named_layers(model)}"
            ) from None
    if not isinstance(head, nn.Module):
        raise InvalidTypeError(f"`head` must be a torch.nn.Module or an attribute path, got {type(head).__name__}.")
    if all(module is not head for module in model.modules()):
        raise InvalidValueError(f"`head` must be a part of the model, got another module; {named_layers(model)}")
    head = uncompiled(head)
    if next(head.parameters(), None) is None:
        raise InvalidValueError(f"`head` must have parameters, got {type(head).__name__} without any.")
    if any(isinstance(value, UninitializedParameter) for value in head.parameters()):
        raise InvalidValueError("`head` must have been initialised, got a lazy module; run the model once before.")
    return head


def check_model(model: nn.Module, optimizer: OptimizerStep) -> None:
    """Raise if the model cannot be trained with meta steps."""
    if not isinstance(model, nn.Module):
        raise InvalidTypeError(f"`model` must be a torch.nn.Module, got {type(model).__name__}.")
    if next(model.parameters(), None) is None:
        raise InvalidValueError(f"`model` must have parameters, got {type(model).__name__} without any.")
    is_flattened = any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules())
    if is_flattened or any(hasattr(parameter, "placements") for parameter in model.parameters()):  # a DTensor has them
        raise InvalidValueError("`model` must have whole parameters, got sharded ones; use DistributedDataParallel.")
    inner = forwarded(model)
    if isinstance(inner, DistributedDataParallel) and inner.static_graph:  # of a loss that bypasses its output
        raise InvalidValueError(
            "`model` must not be wrapped with static_graph=True: its gradients would not be joined."
        )
    if not optimizer.trains(model):
        raise InvalidValueError(
            "`optimizer` must train parameters of `model`, got one of other parameters; make it after the model, with "
            "model.parameters()."
        )


def checked_loss(name: str, loss: Loss) -> Loss:
    """Return the loss after checking it; a base loss must return one value per sample, as far as can be seen."""
    if not isinstance(loss, Loss):
        raise InvalidTypeError(
            f"`{name}` must be a metacal Loss, got {type(loss).__name__}; FunctionLoss wraps any callable."
        )
    if name == "base_loss" and getattr(loss, "reduction", "none") != "none":
        raise InvalidValueError(
            f"`base_loss` must return one value per sample, got {loss!r}; give it reduction='none'."
        )
    return loss


def check_soft_labels(base: Loss, hyperparameters: Hyperparameter) -> None:
    """Raise if the hyper-parameters give soft labels and the base loss takes only hard ones; tried on one sample."""
    num_classes, omega = hyperparameters.num_classes, next(hyperparameters.parameters())
    if num_classes is None:
        return  # whatever they do, they do not know how many labels there are
    label = torch.zeros(1, dtype=torch.int64, device=omega.device)
    logits = torch.zeros(1, num_classes, dtype=omega.dtype, device=omega.device)
    both = nn.ModuleList([base, hyperparameters])
    with leaving_no_trace(both, mode="train", seed=0, device=omega.device), torch.no_grad():
        try:
            base(logits, label)
            targets = hyperparameters(InnerLoss.plain(label, num_classes)).targets
        except Exception:
            return  # fails for another reason, or is not made for one sample: the first step will tell
        try:
            base(logits, targets)
        except Exception as failure:  # any kind, as users write their own losses
            raise InvalidValueError(
                f"`base_loss` must accept soft labels with these hyper-parameters: CrossEntropyLoss does, got {base!r}."
            ) from failure


def checked_labels(y: Tensor, logits: Tensor, name: str, num_classes: int | None = None) -> Tensor:
    """Return labels as int64 ``(n,)``, one per row of logits; ``num_classes`` is that of the hyper-parameters."""
    if not isinstance(y, Tensor) or y.is_floating_point() or y.is_complex():
        kind = y.dtype if isinstance(y, Tensor) else type(y).__name__
        raise InvalidTypeError(f"`{name}` must be a tensor of integer class labels, got {kind}.")
    leading = logits.shape[:-1] if logits.ndim > 1 else logits.shape
    rows = leading.numel()
    if y.shape not in (leading, (*leading, 1), (rows,)):
        raise InvalidValueError(
            f"`{name}` must be {rows} labels, one for each row of logits {tuple(logits.shape)} (classes come last), "
            f"of shape {tuple(leading)} or ({rows},), got {tuple(y.shape)}."
        )
    if not rows:
        raise InvalidValueError(f"`{name}` must hold at least one sample, got none.")
    labels = y.reshape(-1).to(torch.int64)
    found = class_count(logits)
    if num_classes is not None and num_classes != found:
        raise InvalidValueError(
            f"`num_classes` of the hyper-parameters must be the head's, {found}, got {num_classes}."
        )
    if labels.device.type == "cpu":  # elsewhere reading the values would make the device wait
        low, high = (int(bound) for bound in torch.aminmax(labels))
        if low < 0 or high >= found:
            raise InvalidValueError(f"`{name}` must lie in 0..{found - 1}, got {low if low < 0 else high}.")
    return labels


def check_logits(head: nn.Module | None, logits: Tensor) -> None:
    """Raise for convolutional logit maps (unless K equals their width too) and for probabilities."""
    last = None if head is None else list(head.modules())[-1]
    if logits.ndim > 2 and isinstance(last, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
        raise InvalidValueError(
            f"`head` must return logits whose classes come last, got a convolution's of shape {tuple(logits.shape)}; "
            "name as `head` a module that moves the classes to the end (`logits.movedim(1, -1)`)."
        )
    if head is None and logits.ndim > 1 and logits.shape[-1] > 1:
        sums, lowest = logits.float().sum(-1), float(logits.min())
        if lowest >= 0.0 and torch.allclose(sums, torch.ones_like(sums), atol=1e-3):
            raise InvalidValueError(
                "`model` must return logits, got probabilities that sum to 1; name the layer before softmax as `head`."
            )


def class_count(logits: Tensor) -> int:
    """K; one logit per sample makes two classes."""
    return 2 if logits.ndim == 1 or logits.shape[-1] == 1 else logits.shape[-1]


def share_samples(first: object, second: object) -> bool:
    """Whether two float inputs with one sample per row have an identical row."""
    if not (isinstance(first, Tensor) and isinstance(second, Tensor)) or first.shape[1:] != second.shape[1:]:
        return False
    if first.ndim < 2 or not first.is_floating_point() or first.dtype != second.dtype:
        return False
    rows, others = first.flatten(1), second.flatten(1).to(first.device)
    if rows.shape[1] < 8:
        return False  # a few low-precision features may well repeat
    wide = torch.float32 if rows.device.type == "mps" else torch.float64  # all that Apple's GPUs have
    marks = torch.linspace(0.5, 1.5, rows.shape[1], device=rows.device, dtype=wide)
    same = (rows.to(wide) @ marks).unsqueeze(1) == (others.to(wide) @ marks).unsqueeze(0)
    return any(torch.equal(rows[i], others[j]) for i, j in same.nonzero().tolist())
