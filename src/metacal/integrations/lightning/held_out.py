"""Held-out batches of a LightningModule, their labels, and its own steps run on them as far as the logits."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.utilities import CombinedLoader
from torch import Tensor, nn

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.metalearning.checks import find_head
from metacal.metalearning.head_tap import find_output_layer, named_layers
from metacal.metalearning.meta_stream import LABEL_KEYS, describe_batch, split_batch
from metacal.metalearning.model_calls import leaving_no_trace

HOOK = "meta_dataloader"
SILENCED = (
    *("log", "log_dict", "print"),
    *("manual_backward", "clip_gradients", "toggle_optimizer", "untoggle_optimizer"),
)

Targets = str | int | Callable[[Any], Tensor] | None
"""How to find the labels: a key or position, a function of the batch, or None to look in the usual places."""


def find_held_out(meta: Any, trainer: Trainer, module: LightningModule) -> tuple[Any, bool]:
    """Held-out batches: a loader or another iterable, and whether they are the ones that are validated on.

    What was given; where that is None, that of ``meta_dataloader`` of the datamodule or module, and then the validation
    loader.
    """
    owners = (getattr(trainer, "datamodule", None), module)
    hook = next((getattr(owner, HOOK) for owner in owners if hasattr(owner, HOOK)), None)
    if meta is None and hook is not None:
        meta = hook()
    if meta is not None:
        return meta, False
    source = trainer.fit_loop.epoch_loop.val_loop._data_source
    found = source.dataloader() if source.is_defined() else None
    if isinstance(found, (list, tuple)) and len(found) == 1:
        found = found[0]
    if found is None or isinstance(found, (list, tuple, dict, CombinedLoader)):
        raise InvalidValueError(
            "`meta` must be a DataLoader of held-out samples where there is not one validation loader: "
            f"torch.utils.data.random_split splits some off. Got {'several' if found else 'no'} such loaders."
        )
    return found, True


def labels_of(batch: Any, targets: Targets = None) -> Tensor:
    """The labels of a batch.

    Examples:
        >>> import torch
        >>> labels_of((torch.zeros(2, 4), torch.tensor([1, 0])))
        tensor([1, 0])
        >>> labels_of({"pixels": torch.zeros(2, 4), "label": torch.tensor([1, 0])})
        tensor([1, 0])
    """
    if targets is None:
        if isinstance(batch, Mapping):
            targets = next((key for key in LABEL_KEYS if key in batch), None)
        elif isinstance(batch, (tuple, list)) and len(batch) == 2:
            targets = 1
    if targets is None:
        raise InvalidValueError(
            "`targets` must say where the labels of a batch are (a key, or a function), got None; "
            f"{describe_batch(batch)}"
        )
    try:
        found = targets(batch) if callable(targets) else batch[targets]
    except (KeyError, IndexError, TypeError):
        if callable(targets):
            raise
        raise InvalidValueError(
            f"`targets` must be a key of the batches, got {targets!r}; {describe_batch(batch)}"
        ) from None
    if not isinstance(found, Tensor):
        raise InvalidTypeError(f"`targets` must lead to a tensor of class labels, got {type(found).__name__}.")
    return found


def with_labels(batch: Any, targets: Targets = None) -> tuple[tuple[Any], Tensor]:
    """A batch as ``(batch,)``, the input of `UpToHead`, and its labels."""
    return (batch,), labels_of(batch, targets)


def find_logits_layer(module: LightningModule, head: str | None, batch: Any) -> nn.Module:
    """The part of a module that returns the logits.

    Args:
        module: the user's.
        head: its attribute path; None runs ``forward``, or the module's one part with parameters where there is no
            ``forward``, and takes the innermost layer whose output is returned.
        batch: as a step is given it.
    """
    if head is not None:
        return find_head(module, head)
    parts: list[nn.Module] = [module]
    if type(module).forward is LightningModule.forward:
        parts = [part for part in module.children() if next(part.parameters(), None) is not None]
    wanted = "`head` must be the attribute path of the layer that returns the logits, got None, and"
    if len(parts) != 1:
        raise InvalidValueError(f"{wanted} the module has no `forward` to find it by; {named_layers(module)}")
    try:
        with leaving_no_trace(module, mode="train", seed=0, device=module.device), torch.no_grad():
            _, found = find_output_layer(parts[0], split_batch(batch)[0], None)
    except Exception as error:
        name = type(parts[0]).__name__
        raise InvalidValueError(
            f"{wanted} {name} cannot be run on a batch's inputs to find it; {named_layers(module)}"
        ) from error
    return parts[0] if found is None else found


class HeadReachedError(BaseException):
    """The head has returned; not an `Exception`, so that no ``except Exception`` of the module stops it."""

    def __init__(self, output: Any) -> None:
        super().__init__()
        self.output = output


class UpToHead(nn.Module):
    """Takes a batch the way the module does, without anything behind the head: loss, metrics, logging, backward.

    Args:
        module: the user's.
        head: the layer in it that returns the logits.
        trainer: what fits it.
        validates: held-out batches go through ``validation_step``, if there is one, instead of ``training_step``.
    """

    def __init__(self, module: LightningModule, head: nn.Module, trainer: Trainer, *, validates: bool) -> None:
        super().__init__()
        self.module, self.head, self.trainer = module, head, trainer
        self.validates = validates and type(module).validation_step is not LightningModule.validation_step

    def forward(self, batch: Any, is_trained_on: bool = False) -> Any:
        """What the head returns; a step is run until then.

        Args:
            batch: a held-out batch as its loader gives it.
            is_trained_on: it is a training batch, as ``training_step`` was given it, run again in full precision.
        """
        handle = self.head.register_forward_hook(_stop)
        try:
            with _nothing_else_happens(self.module):
                if is_trained_on:
                    self._training_step(batch)
                else:
                    self._held_out_step(batch)
        except HeadReachedError as reached:
            return reached.output
        finally:
            handle.remove()
        raise InvalidValueError(
            f"`head` must be run by `{'validation_step' if self.validates else 'training_step'}`, got one that is not; "
            f"pass held-out samples as `meta` to run them through `training_step`."
        )

    def _training_step(self, batch: Any) -> None:
        precision = self.trainer.precision_plugin.train_step_context()
        with precision, torch.autocast(self.module.device.type, enabled=False):
            _call(self.module.training_step, batch)

    def _held_out_step(self, batch: Any) -> None:
        with _validating(self.trainer) if self.validates else nullcontext():
            batch = as_steps_get_it(batch, self.module, self.trainer)
            plugin = self.trainer.precision_plugin
            with plugin.val_step_context() if self.validates else plugin.train_step_context():
                _call(self.module.validation_step if self.validates else self.module.training_step, batch)


def as_steps_get_it(batch: Any, module: LightningModule, trainer: Trainer) -> Any:
    """A loader's batch after the conversions and hooks of the trainer, on the module's device."""
    batch = module._on_before_batch_transfer(trainer.precision_plugin.convert_input(batch), dataloader_idx=0)
    return trainer.strategy.batch_to_device(batch, module.device, dataloader_idx=0)


class IdleOptimizer:
    """An optimizer that does nothing, and otherwise is like another."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._optimizer, name)

    def zero_grad(self, *_: Any, **__: Any) -> None:
        """Nothing."""

    def step(self, *_: Any, **__: Any) -> None:
        """Nothing."""

    def toggle_model(self, *_: Any, **__: Any) -> AbstractContextManager[None]:
        """Nothing."""
        return nullcontext()


def _stop(head: nn.Module, given: Any, output: Any) -> None:
    raise HeadReachedError(output)


def _call(step: Callable[..., Any], batch: Any) -> None:
    """Call a step with a batch, and 0 for the numbers of batch and loader that it asks for."""
    parameters = inspect.signature(step).parameters.values()
    named = [one for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD and one.default is one.empty]
    takes_any = any(one.kind is one.VAR_POSITIONAL for one in parameters)
    step(batch, *[0] * max(len(named) - 1, int(takes_any)))


@contextmanager
def _validating(trainer: Trainer) -> Iterator[None]:
    """The trainer says that it validates, as hooks that augment training batches ask it."""
    stage = trainer.state.stage
    trainer.validating = True
    try:
        yield
    finally:
        trainer.state.stage = stage


@contextmanager
def _nothing_else_happens(module: LightningModule) -> Iterator[None]:
    """Logging, optimizers and backward are idle inside: a step by hand often begins with ``zero_grad``."""
    own = vars(module)
    before = {name: own[name] for name in (*SILENCED, "optimizers") if name in own}
    optimizers = module.optimizers

    def idle(*args: Any, **kwargs: Any) -> Any:
        found = optimizers(*args, **kwargs)
        return [IdleOptimizer(one) for one in found] if isinstance(found, list) else IdleOptimizer(found)

    own.update(dict.fromkeys(SILENCED, lambda *_, **__: None), optimizers=idle)
    try:
        yield
    finally:
        for name in (*SILENCED, "optimizers"):
            del own[name]
        own.update(before)
