"""`UpToHead`: a module's own ``training_step``, run on a batch as far as the head and no further."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from lightning.pytorch import LightningModule
from torch import nn

SILENCED = (
    *("log", "log_dict", "print"),
    *("manual_backward", "clip_gradients", "toggle_optimizer", "untoggle_optimizer"),
)


class HeadReachedError(BaseException):
    """The head has returned; not an `Exception`, so that no ``except Exception`` of the module stops it."""


class UpToHead(nn.Module):
    """Takes a batch the way training batches go, without anything behind the head: loss, metrics, logging, backward.

    Args:
        module: the user's.
        head: the layer in it that returns the logits.
        precision: makes the context that training steps run in.
    """

    def __init__(
        self, module: LightningModule, head: nn.Module, precision: Callable[[], AbstractContextManager[Any]]
    ) -> None:
        super().__init__()
        self.module, self.head, self.precision = module, head, precision

    def forward(self, batch: Any) -> None:
        """Run the training step until the head has returned."""
        handle = self.head.register_forward_hook(_stop)
        try:
            with self.precision(), _nothing_else_happens(self.module):
                self.module.training_step(*_arguments(self.module.training_step, batch))
        except HeadReachedError:
            pass
        finally:
            handle.remove()


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


def _stop(*_: Any) -> None:
    raise HeadReachedError


def _arguments(step: Callable[..., Any], batch: Any) -> tuple[Any, ...]:
    """The batch, and a batch number where the step takes one."""
    parameters = inspect.signature(step).parameters.values()
    takes_any = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)
    return (batch, 0) if takes_any or len(parameters) > 1 else (batch,)


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
