"""What a batch is trained on: a plain loss, or a meta-calibrated one; either gives its loss and its logits."""

from typing import Any, Protocol

from torch import Tensor, nn

from metacal.losses import Loss
from metacal.metalearning import MetaCalibrator
from metacal.metalearning.gather import world_size


class Objective(Protocol):
    """The training loss of a batch.

    Attributes:
        reduction: whether the loss is the ``"mean"`` or the ``"sum"`` over the batch.
    """

    reduction: str

    def __call__(self, x: Any, y: Tensor, *, boundary: bool) -> tuple[Tensor, Tensor]:
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

    def __call__(self, x: Any, y: Tensor, *, boundary: bool) -> tuple[Tensor, Tensor]:
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
    """A meta-calibrated loss.

    Args:
        calibrator: takes the meta steps.
    """

    def __init__(self, calibrator: MetaCalibrator) -> None:
        self.calibrator, self.reduction = calibrator, calibrator.reduction

    def __call__(self, x: Any, y: Tensor, *, boundary: bool) -> tuple[Tensor, Tensor]:
        """The loss after a meta step, if one is due; a sum is that of this process, as the loop expects."""
        loss = self.calibrator.step(x, y, boundary)
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
        """Omega, its optimiser's state, and the place among the held-out samples."""
        return {"calibrator": self.calibrator.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take all of it up again."""
        drawn = {"drawn": state["drawn"]} if "drawn" in state else {}  # as version 0.1 kept it
        self.calibrator.load_state_dict({**state["calibrator"], **drawn})
