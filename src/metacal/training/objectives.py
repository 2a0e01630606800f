"""What a batch is trained on: a plain loss, or a meta-calibrated one; either gives its loss and its logits."""

from typing import Any, Protocol

from torch import Tensor, nn

from metacal.data.batches import Batches
from metacal.losses import Loss
from metacal.metalearning import MetaCalibrator
from metacal.metalearning.gather import world_size


class Objective(Protocol):
    """The training loss of a batch.

    Attributes:
        reduction: whether the loss is the ``"mean"`` or the ``"sum"`` over the batch.
    """

    reduction: str

    def __call__(self, x: Any, y: Tensor, *, lr: float, boundary: bool) -> tuple[Tensor, Tensor]:
        """Loss with history, and detached logits; ``boundary`` is False for all but the last part of a batch."""
        ...

    def learned(self) -> dict[str, Tensor]:
        """Every hyper-parameter in full, by name, as it is now."""
        ...

    def load_learned(self, learned: dict[str, Tensor]) -> None:
        """Take up what `learned` gave at some time."""
        ...

    def export(self) -> dict[str, Any]:
        """What `learned` gives, as plain numbers; soft labels among them."""
        ...

    def summary(self) -> dict[str, float]:
        """The numbers worth plotting about them."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """What has to be saved to go on."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        ...


class PlainObjective:
    """A loss that nothing is learned about.

    Args:
        model: what is trained.
        loss: averages over the batch.
        reduction: ``"sum"`` multiplies it by the size of the batch.
    """

    def __init__(self, model: nn.Module, loss: Loss, reduction: str) -> None:
        self.model, self.loss, self.reduction = model, loss, reduction

    def __call__(self, x: Any, y: Tensor, *, lr: float, boundary: bool) -> tuple[Tensor, Tensor]:
        """The loss as it is."""
        logits = self.model(x)
        value = self.loss(logits, y)
        return (value * len(y) if self.reduction == "sum" else value), logits.detach()

    def learned(self) -> dict[str, Tensor]:
        """Nothing."""
        return {}

    def load_learned(self, learned: dict[str, Tensor]) -> None:
        """Nothing."""

    def export(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def summary(self) -> dict[str, float]:
        """Nothing."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing."""


class MetaObjective:
    """A meta-calibrated loss, with a stream of meta batches that can be taken up where it was left.

    Args:
        calibrator: takes the meta steps.
        batches: of the meta set; gone through again and again, in a new order each time.
    """

    def __init__(self, calibrator: MetaCalibrator, batches: Batches) -> None:
        self.calibrator, self.stream = calibrator, EndlessBatches(batches)
        self.reduction = calibrator.settings.inner_reduction

    def __call__(self, x: Any, y: Tensor, *, lr: float, boundary: bool) -> tuple[Tensor, Tensor]:
        """The loss after a meta step, if one is due; a sum is that of this process, as the loop expects."""
        loss = self.calibrator.step(x, y, meta=self.stream, lr=lr, boundary=boundary)
        assert self.calibrator.last_logits is not None
        return (loss / world_size() if self.reduction == "sum" else loss), self.calibrator.last_logits

    def learned(self) -> dict[str, Tensor]:
        """Omega."""
        named = self.calibrator.hyperparameters.named_parameters()
        return {name: value.detach().clone() for name, value in named}

    def load_learned(self, learned: dict[str, Tensor]) -> None:
        """Take omega up again."""
        self.calibrator.hyperparameters.load_state_dict(learned, strict=False)

    def export(self) -> dict[str, Any]:
        """Omega in plain numbers."""
        return self.calibrator.export()

    def summary(self) -> dict[str, float]:
        """What the hyper-parameters say of themselves."""
        return {name: float(value) for name, value in self.calibrator.hyperparameters.summary().items()}

    def state_dict(self) -> dict[str, Any]:
        """Omega, its optimiser's state, and the place in the stream."""
        return {"calibrator": self.calibrator.state_dict(), "drawn": self.stream.drawn}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take all of it up again."""
        self.calibrator.load_state_dict(state["calibrator"])
        self.stream = EndlessBatches(self.stream.batches, state["drawn"])


class EndlessBatches:
    """Batches without end, a new order each pass; its place is one number.

    Args:
        batches: what is gone through.
        drawn: how many batches were drawn before.
    """

    def __init__(self, batches: Batches, drawn: int = 0) -> None:
        self.batches, self.drawn = batches, drawn
        self._current = iter(batches.epoch(drawn // len(batches), start=drawn % len(batches)))

    def __iter__(self) -> "EndlessBatches":
        return self

    def __next__(self) -> tuple[Any, Tensor]:
        if self.drawn % len(self.batches) == 0:
            self._current = iter(self.batches.epoch(self.drawn // len(self.batches)))
        self.drawn += 1
        batch: tuple[Any, Tensor] = next(self._current)
        return batch
