"""Held-out batches of a LightningModule, their labels, and its own steps run on them up to the logits."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
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
    """Find held-out batches: as given, from the hook, or the validation loader; and whether it is the last."""
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
    """Return the labels of a batch.

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
    """Return a batch as ``(batch,)``, the input of `UpToHead`, and its labels."""
    return (batch,), labels_of(batch, targets)


def find_logits_layer(module: LightningModule, head: str | None, batch: Any) -> nn.Module:
    """Find the submodule that returns the logits, by its path ``head`` or by running the module on a batch.

    What is run is ``forward``, or the module's one part with parameters where there is no ``forward``; taken is the
    innermost layer whose output is returned.
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
    """Stops a step after the head; not an `Exception`, so that no ``except Exception`` catches it."""

    def __init__(self, output: Any) -> None:
        super().__init__()
        self.output = output


class UpToHead(nn.Module):
    """Runs a step of the module only up to the head: no loss, metrics, logging or backward.

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
        """Run a step until the head returns, and return its output.

        Args:
            batch: a held-out batch as its loader gives it.
            is_trained_on: it is a training batch, as ``training_step`` was given it, run again in full precision.
        """
        handle = self.head.register_forward_hook(_stop)
        try:
            with _nothing_else_happens(self.module):
                self._run(batch, is_trained_on)
        except HeadReachedError as reached:
            return reached.output
        finally:
            handle.remove()
        raise InvalidValueError(
            f"`head` must be run by `{'validation_step' if self.validates else 'training_step'}`, got one that is not; "
            f"pass held-out samples as `meta` to run them through `training_step`."
        )

    def _run(self, batch: Any, is_trained_on: bool) -> None:
        plugin = self.trainer.precision_plugin
        if is_trained_on:
            with plugin.train_step_context(), torch.autocast(self.module.device.type, enabled=False):
                _call(self.module.training_step, batch)
            return
        with _validating(self.trainer) if self.validates else nullcontext():
            batch = as_steps_get_it(batch, self.module, self.trainer)
            with plugin.val_step_context() if self.validates else plugin.train_step_context():
                _call(self.module.validation_step if self.validates else self.module.training_step, batch)


def as_steps_get_it(batch: Any, module: LightningModule, trainer: Trainer) -> Any:
    """Return a loader's batch after the trainer's conversions and hooks, on the module's device."""
    batch = module._on_before_batch_transfer(trainer.precision_plugin.convert_input(batch), dataloader_idx=0)
    return trainer.strategy.batch_to_device(batch, module.device, dataloader_idx=0)


class IdleOptimizer:
    """A stand-in for an optimizer that does nothing."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self.zero_grad = self.step = lambda *_, **__: None
        self.toggle_model = lambda *_, **__: nullcontext()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._optimizer, name)


def _stop(head: nn.Module, given: Any, output: Any) -> None:
    raise HeadReachedError(output)


def _call(step: Callable[..., Any], batch: Any) -> None:
    """Call a step with a batch, and 0 for batch and loader indices."""
    parameters = inspect.signature(step).parameters.values()
    named = [one for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD and one.default is one.empty]
    takes_any = any(one.kind is one.VAR_POSITIONAL for one in parameters)
    step(batch, *[0] * max(len(named) - 1, int(takes_any)))


@contextmanager
def _validating(trainer: Trainer) -> Iterator[None]:
    """Make the trainer report validation, for hooks that augment training batches."""
    stage = trainer.state.stage
    trainer.validating = True
    try:
        yield
    finally:
        trainer.state.stage = stage


@contextmanager
def _nothing_else_happens(module: LightningModule) -> Iterator[None]:
    """Disable logging, optimizers and backward inside: manual steps often begin with ``zero_grad``."""
    own, optimizers = vars(module), module.optimizers

    def idle(*args: Any, **kwargs: Any) -> Any:
        found = optimizers(*args, **kwargs)
        return [IdleOptimizer(one) for one in found] if isinstance(found, list) else IdleOptimizer(found)

    changed = {**dict.fromkeys(SILENCED, lambda *_, **__: None), "optimizers": idle}
    before = {name: own[name] for name in changed if name in own}
    own.update(changed)
    try:
        yield
    finally:
        for name in changed:
            del own[name]
        own.update(before)
