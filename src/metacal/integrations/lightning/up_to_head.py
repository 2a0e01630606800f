"""`UpToHead`: a module's own step, run on a batch as far as the head and no further."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn

from metacal.errors import InvalidValueError

SILENCED = (
    *("log", "log_dict", "print"),
    *("manual_backward", "clip_gradients", "toggle_optimizer", "untoggle_optimizer"),
)


class HeadReachedError(BaseException):
    """The head has returned; not an `Exception`, so that no ``except Exception`` of the module stops it.

    Args:
        output: what it returned.
    """

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
    """An optimizer that does nothing, and else is like another.

    Args:
        optimizer: that one.
    """

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
