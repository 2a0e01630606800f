"""One line on how the learning of omega goes."""

import math
import warnings

from metacal.metalearning.history import History
from metacal.metalearning.hyperparameter import Hyperparameter


def describe(hyperparameters: Hyperparameter, history: History, meta_steps: int, skipped: int) -> str:
    """The numbers worth knowing, and what keeps omega from moving if something does."""
    numbers = ", ".join(f"{name} {float(value):.4g}" for name, value in hyperparameters.summary().items())
    last = {name: float(value) for name, value in history.latest().items()}
    if not last:
        return f"{numbers}; no meta step taken yet"
    parts = [
        numbers,
        f"meta-loss {last['meta_loss']:.4g}",
        f"meta-gradient norm {last['gradient_norm']:.2e}",
        f"effective inner step {last['inner_step']:.3g}",
        f"{meta_steps} meta steps",
    ]
    if skipped:
        parts.append(f"{skipped} skipped (gradient not finite)")
    if not math.isfinite(last["gradient_norm"]):
        parts.append("the last meta-gradient was not finite")
    elif last["gradient_norm"] == 0.0:
        parts.append("omega does not move: no gradient reaches it")
    stuck = hyperparameters.stuck()
    if stuck:
        parts.append(f"does not move: every entry of {', '.join(stuck)} sits on a bound")
    return "; ".join(parts)


def warn_of_skipped(stacklevel: int) -> None:
    """Warn that a meta step was not taken."""
    warnings.warn(
        "A meta-gradient was not finite: that meta step was skipped, omega is unchanged; see `skipped`.",
        stacklevel=stacklevel,
    )
