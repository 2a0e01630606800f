"""Progress of learning omega: a history of meta steps, and a verdict that says what to do."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from metacal.metalearning.finish import Finish
from metacal.metalearning.hyperparameter import Hyperparameter
from metacal.metalearning.logit_penalty import LogitPenalty

MOST_RECORDS = 8192

FEW = 5
"""Held-out samples per class below which what is learned about single classes is mostly noise."""

OFTEN = 0.1
"""Share of skipped meta steps from which something is wrong."""


class History:
    """Rows of scalars by name, on the device; when it is full, every second row is dropped."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.steps: list[int] = []
        self.rows: list[Tensor] = []
        self.most, self.stride, self.seen = MOST_RECORDS, 1, 0
        self.last: Tensor | None = None

    def add(self, step: int, values: dict[str, Tensor]) -> None:
        """Add a row, without copying to the host."""
        if not self.names:
            self.names = list(values)
        self.last = torch.stack([values[name].detach().float() for name in self.names])
        if self.rows and self.rows[0].device != self.last.device:  # restored, or the model has moved
            self.rows = list(torch.stack(self.rows).to(self.last.device))
        if self.seen % self.stride == 0:
            self.steps.append(step)
            self.rows.append(self.last)
        self.seen += 1
        if len(self.rows) >= self.most:
            self.steps, self.rows, self.stride = self.steps[::2], self.rows[::2], 2 * self.stride

    def latest(self) -> dict[str, Tensor]:
        """The last row, as scalars on their device; empty if there is none."""
        return {} if self.last is None else dict(zip(self.names, self.last, strict=True))

    def records(self) -> list[dict[str, float]]:
        """Return rows as dictionaries of numbers, oldest first, each with its ``step``."""
        table = torch.stack(self.rows).tolist() if self.rows else []
        numbered = zip(self.steps, table, strict=True)
        return [{"step": step, **dict(zip(self.names, row, strict=True))} for step, row in numbered]

    def state_dict(self) -> dict[str, Any]:
        """Return plain numbers and tensors."""
        rows = torch.stack(self.rows).cpu() if self.rows else torch.zeros(0, len(self.names))
        names, steps = list(self.names), list(self.steps)
        last = {} if self.last is None else {"last": self.last.cpu()}
        return {"names": names, "steps": steps, "rows": rows, "stride": self.stride, "seen": self.seen, **last}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved history."""
        self.names, self.steps, self.rows = list(state["names"]), list(state["steps"]), list(state["rows"].unbind(0))
        self.stride, self.seen = int(state["stride"]), int(state["seen"])
        is_last_kept = self.seen > 0 and (self.seen - 1) % self.stride == 0
        self.last = state.get("last", self.rows[-1] if is_last_kept else None)  # not every state has it


@dataclass
class Progress:
    """The state of learning; ``samples`` are held out, ``skipped`` meta steps had a gradient that was not finite."""

    hyperparameters: Hyperparameter
    history: History
    meta_steps: int
    skipped: int
    samples: int | None
    num_classes: int
    finished: Finish | None

    def describe(self) -> str:
        """Return a line of numbers, and a line that says what they mean."""
        self._last = {name: float(value) for name, value in self.history.latest().items()}
        self._summary = {name: float(value) for name, value in self.hyperparameters.summary().items()}
        verdicts = [*self._what_stops_it(), *self._what_it_found()] or ["the hyper-parameters move."]
        return f"{self._numbers()}\nVerdict: {' '.join(verdicts)}"

    def _numbers(self) -> str:
        parts = [", ".join(f"{name} {value:.4g}" for name, value in self._summary.items())]
        if self._last:
            parts.append(f"meta-loss {self._last['meta_loss']:.4g}")
            parts.append(f"meta-gradient norm {self._last['gradient_norm']:.2e}")
            parts.append(f"effective inner step {self._last['inner_step']:.3g}")
        parts.append(f"{self.meta_steps} meta steps" + (f", {self.skipped} skipped" if self.skipped else ""))
        return "; ".join(parts)

    def _what_stops_it(self) -> Iterator[str]:
        if not self.meta_steps:
            yield "no meta step was taken yet."
            return
        norm = self._last["gradient_norm"]
        if self.skipped > OFTEN * self.meta_steps or not math.isfinite(norm):
            yield (
                f"{self.skipped} of {self.meta_steps} meta steps were skipped, as their gradient was not finite: "
                "lower the learning rate, or look for infinite values in the held-out samples."
            )
        elif norm == 0.0 and not (self._has_penalty and self.meta_steps == 1) and not self._is_penalty_off:
            yield "no gradient reaches the hyper-parameters: is the learning rate 0, or the last layer frozen?"
        if stuck := self.hyperparameters.stuck():
            yield f"every entry of {', '.join(stuck)} is on a bound and stays there."
        samples, wanted = self.finished.samples if self.finished else self.samples, FEW * self.num_classes
        if samples is not None and samples < wanted:
            advice = "." if self._has_penalty else ", or learn one strength (LogitPenalty)."
            few = f"{samples} held-out samples are few for {self.num_classes} classes"
            yield f"{few}: hold out at least {wanted}{advice}"

    @property
    def _has_penalty(self) -> bool:
        """Whether there is a penalty that follows over-fitting, which the first meta step measures."""
        return any(isinstance(part, LogitPenalty) for part in self.hyperparameters.modules())

    @property
    def _is_penalty_off(self) -> bool:
        """Whether the penalty was zero at the last meta step (not the first) while training moves."""
        is_moving = self.meta_steps > 1 and self._last["inner_step"] > 0.0
        return self._has_penalty and is_moving and self._last.get("overfitting", 1.0) == 0.0

    def _what_it_found(self) -> Iterator[str]:
        if self._is_penalty_off:
            yield (
                "the model predicts held-out samples as well as its training batches: there is no penalty, expect what "
                "cross-entropy and a temperature give."
            )
        strengths = [value for name, value in self._summary.items() if name.split(".")[-1] == "strength"]
        if self.meta_steps and strengths and not any(strengths):
            yield (
                "labels are not smoothed now, as the held-out samples gain nothing from it: "
                "expect what cross-entropy and a temperature give."
            )
        if self.finished is not None and not self.finished.helps:
            yield "No temperature clearly improves the held-out samples: the model is calibrated on them."
