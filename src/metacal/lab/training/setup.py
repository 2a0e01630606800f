"""`Training`: everything the loop works with."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from lightning_fabric import Fabric
from lightning_fabric.wrappers import _FabricModule
from torch.optim import Optimizer

from metacal.lab.data.batches import Batches
from metacal.lab.training.checkpoints import Checkpoints
from metacal.lab.training.events import Listener, silence
from metacal.lab.training.schedule import Schedule
from metacal.lab.training.stop import StopRequest
from metacal.lab.training.training_loss import Objective


@dataclass(frozen=True)
class Phase:
    """One pass over some batches with one objective; an epoch is one phase, or several after each other.

    Attributes:
        batches: what is gone through.
        objective: what is minimised.
        lr: learning rate before the schedule.
    """

    batches: Batches
    objective: Objective
    lr: float


@dataclass(frozen=True)
class Training:
    """Everything the loop works with. The first phase's figures are the epoch's training figures.

    Attributes:
        fabric: devices, precision and processes.
        model: set up by it.
        optimizer: set up by it.
        phases: of an epoch.
        val: this process's share of the validation set, unshuffled.
        schedule: factor on the learning rates.
        epochs: how many.
        checkpoints: where the state is kept.
        clip_norm: largest norm of the gradient; None leaves it.
        accumulate: parts that a batch is cut into.
        select: what the best epoch has least of: ``"accuracy"``, errors, or ``"refinement"``, NLL after a temperature.
        patience: epochs without a better validation error before it stops; None never does.
        save_seconds: within an epoch the state is saved this often.
        emit: is told what happens.
        stop: is looked at after every batch.
    """

    fabric: Fabric
    model: _FabricModule
    optimizer: Optimizer
    phases: Sequence[Phase]
    val: Batches
    schedule: Schedule
    epochs: int
    checkpoints: Checkpoints
    clip_norm: float | None = None
    accumulate: int = 1
    select: str = "accuracy"
    patience: int | None = None
    save_seconds: float = 600.0
    emit: Listener = silence
    stop: StopRequest = field(default_factory=StopRequest)
