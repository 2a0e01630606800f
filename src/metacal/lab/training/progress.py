"""`Progress`: where a training is, what the running epoch has seen so far, and what has been best."""

import math
from typing import Any

import torch
from torch import Tensor

from metacal.functional.binning import calibration_error, equal_width_statistics
from metacal.functional.inputs import class_logits


class Progress:
    """Counters and the running epoch's figures, kept on the device until the epoch is over.

    Attributes:
        epoch: epochs done.
        phase: phases of the running epoch done.
        batch: batches of the running phase done.
        best_error: lowest validation error so far, or whatever epochs are chosen by.
        best_epoch: the epoch that had it, from 1; 0 is none.
        seconds: time spent training.
    """

    def __init__(self) -> None:
        self.epoch = self.phase = self.batch = 0
        self.best_error, self.best_epoch = math.inf, 0
        self.seconds = 0.0
        self._losses: list[Tensor] = []
        self._later_losses: list[Tensor] = []
        self._confidences: list[Tensor] = []
        self._correct: list[Tensor] = []

    def add(self, loss: Tensor, logits: Tensor, targets: Tensor) -> None:
        """Take in a batch: its loss summed over samples, logits ``(n, K)`` (or one per sample) and targets."""
        self._losses.append(loss.detach().double())
        top = torch.softmax(class_logits(logits), dim=1).max(dim=1)
        self._confidences.append(top.values)
        self._correct.append(top.indices == targets)

    def add_later(self, loss: Tensor) -> None:
        """Take in a batch of a later phase: only whether its loss is finite matters."""
        self._later_losses.append(loss.detach().double())

    def losses(self) -> Tensor:
        """Losses of all batches of the running epoch so far, whatever their phase."""
        return torch.stack([*self._losses, *self._later_losses]) if self._losses else torch.zeros(0)

    def seen(self) -> tuple[Tensor, Tensor, Tensor]:
        """Losses ``(batches,)``, confidences and correctness ``(n,)`` of the running epoch."""
        if not self._losses:
            return torch.zeros(0, dtype=torch.float64), torch.zeros(0), torch.zeros(0, dtype=torch.bool)
        return torch.stack(self._losses), torch.cat(self._confidences), torch.cat(self._correct)

    def figures(self, seen: tuple[Tensor, Tensor, Tensor]) -> dict[str, float]:
        """Mean loss, error and ECE of what was seen."""
        losses, confidences, correct = seen
        return {
            "train_loss": float(losses.sum()) / len(correct),
            "train_error": 1.0 - float(correct.double().mean()),
            "train_ece": float(calibration_error(equal_width_statistics(confidences, correct))),
        }

    def next_epoch(self) -> None:
        """Close the running epoch."""
        self.epoch, self.phase, self.batch = self.epoch + 1, 0, 0
        self._losses, self._later_losses, self._confidences, self._correct = [], [], [], []

    def state_dict(self) -> dict[str, Any]:
        """All of it, as tensors and plain values."""
        losses, confidences, correct = (values.cpu() for values in self.seen())
        counters = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        return {**counters, "losses": losses, "confidences": confidences, "correct": correct}

    def load_state_dict(self, state: dict[str, Any], device: torch.device) -> None:
        """Go on from a saved state, with its tensors on a device."""
        for name in ("epoch", "phase", "batch", "best_error", "best_epoch", "seconds"):
            setattr(self, name, state[name])
        has_seen = len(state["losses"]) > 0
        self._losses = list(state["losses"].to(device).unbind()) if has_seen else []
        self._confidences = [state["confidences"].to(device)] if has_seen else []
        self._correct = [state["correct"].to(device)] if has_seen else []
