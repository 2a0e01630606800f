"""How the learning of omega goes: the numbers worth knowing, and a verdict that says what to do."""

import math
import warnings
from dataclasses import dataclass

from metacal.metalearning.finish import Finish
from metacal.metalearning.history import History
from metacal.metalearning.hyperparameter import Hyperparameter

FEW = 5
"""Held-out samples per class below which what is learned about single classes is mostly noise."""

OFTEN = 0.1
"""Share of skipped meta steps from which something is wrong."""


@dataclass(frozen=True)
class Progress:
    """Where the learning stands.

    Attributes:
        hyperparameters: as they are now.
        history: of the meta steps.
        meta_steps: due so far.
        skipped: of them, for a gradient that was not finite.
        samples: held-out samples, if their number is known.
        num_classes: K.
        finished: what `MetaCalibrator.finish` found, if it was called.
    """

    hyperparameters: Hyperparameter
    history: History
    meta_steps: int
    skipped: int
    samples: int | None
    num_classes: int
    finished: Finish | None

    def describe(self) -> str:
        """A line of numbers, and a line that says what they mean."""
        return f"{self._numbers()}\nVerdict: {' '.join(self.verdicts())}"

    def _numbers(self) -> str:
        values = self.hyperparameters.summary().items()
        parts = [", ".join(f"{name} {float(value):.4g}" for name, value in values)]
        last = {name: float(value) for name, value in self.history.latest().items()}
        if last:
            parts.append(f"meta-loss {last['meta_loss']:.4g}")
            parts.append(f"meta-gradient norm {last['gradient_norm']:.2e}")
            parts.append(f"effective inner step {last['inner_step']:.3g}")
        parts.append(f"{self.meta_steps} meta steps" + (f", {self.skipped} skipped" if self.skipped else ""))
        return "; ".join(parts)

    def verdicts(self) -> list[str]:
        """Sentences: what keeps it from helping, or that nothing does."""
        found = [*self._what_stops_it(), *self._what_it_found()]
        return found or ["the hyper-parameters move."]

    def _what_stops_it(self) -> list[str]:
        if not self.meta_steps:
            return ["no meta step was taken yet."]
        found = []
        norm = float(self.history.latest()["gradient_norm"])
        if self.skipped > OFTEN * self.meta_steps or not math.isfinite(norm):
            found.append(
                f"{self.skipped} of {self.meta_steps} meta steps were skipped, as their gradient was not finite: "
                "lower the learning rate, or look for infinite values in the held-out samples."
            )
        elif norm == 0.0:
            found.append("no gradient reaches the hyper-parameters: is the learning rate 0, or the last layer frozen?")
        stuck = self.hyperparameters.stuck()
        if stuck:
            found.append(f"every entry of {', '.join(stuck)} is on a bound and stays there.")
        samples = self.finished.samples if self.finished else self.samples
        if samples is not None and samples < FEW * self.num_classes:
            found.append(
                f"{samples} held-out samples are few for {self.num_classes} classes: hold out at least "
                f"{FEW * self.num_classes}, or learn a single strength (ScalarLabelSmoothing)."
            )
        return found

    def _what_it_found(self) -> list[str]:
        found = []
        strengths = [v for name, v in self.hyperparameters.summary().items() if name.split(".")[-1] == "strength"]
        if self.meta_steps and strengths and all(float(strength) == 0.0 for strength in strengths):
            found.append(
                "labels are not smoothed now, as the held-out samples gain nothing from it: "
                "expect what cross-entropy and a temperature give."
            )
        if self.finished is not None and not self.finished.helps:
            found.append("No temperature clearly improves the held-out samples: the model is calibrated on them.")
        return found


def warn_of_skipped(stacklevel: int) -> None:
    """Warn that a meta step was not taken."""
    warnings.warn(
        "A meta-gradient was not finite: that meta step was skipped, omega is unchanged; see `skipped`.",
        stacklevel=stacklevel,
    )
