"""`read_run` reads a run folder as a `RunView`, for ``metacal report``."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from metacal.errors import InvalidValueError, MetacalError, StorageError
from metacal.lab.training.run_folder import RunFolder
from metacal.lab.training.spec import READABLE
from metacal.reporting.runs import RunView
from metacal.reporting.shift import prepare_shift


def read_run(folder: Path) -> RunView:
    """Read the run stored in a folder.

    Raises:
        InvalidValueError: the folder holds no run, or one that is not complete.
        StorageError: a file of it is damaged.
    """
    run = RunFolder(folder)
    if not run.exists:
        raise InvalidValueError(
            f"`{folder}` must be a prediction file or a run folder, got a folder without a run; "
            "to read prediction files in it, name each of them."
        )
    if not run.is_complete:
        raise InvalidValueError(
            f"`{folder}` must be the folder of a complete run, got an unfinished one; "
            f"continue it with: metacal train --run-dir {folder} --resume"
        )
    try:
        return _view(run)
    except MetacalError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise StorageError(
            f"{folder} is damaged: its files do not fit together ({type(error).__name__}: {error}). Restore it from a "
            "copy, or run it again in another folder."
        ) from None


def _view(run: RunFolder) -> RunView:
    """Return the view of a complete run; damaged files may raise any error."""
    spec, predictions, history = run.read_spec(), run.read_predictions("test"), run.read_history()
    shifts = tuple(run.read_shifts().values())
    for study in shifts:
        prepare_shift(study)
    domains = run.read_scores().get("domains")
    tested = "" if domains is None else f" (tested on {len(domains['each'])} domains, {domains['source']})"
    learned: dict[str, Any] = {}
    for name, value in run.read_hyperparameters().items():  # with several hyper-parameters, each has an object
        learned.update(value if isinstance(value, dict) else {name: value})
    smoothing = None
    if "soft_labels" in learned:
        smoothing = torch.tensor(learned["soft_labels"], dtype=torch.float64).fill_diagonal_(0.0)
    columns = dict.fromkeys(name for row in history for name in row if name != "epoch")
    return RunView(
        name=f"{READABLE.get(spec.method.name, spec.method.name)}, {Path(spec.dataset).name}, seed {spec.seed}",
        method=spec.method.name,
        dataset=spec.dataset + tested,
        class_names=predictions.class_names,
        epochs={name: [row.get(name, float("nan")) for row in history] for name in columns},
        strengths=_strengths(run, history),
        smoothing=smoothing,
        l2={name: torch.tensor(learned[name]) for name in ("weight", "bias") if name in learned} or None,
        superclasses=run.read_superclasses(),
        predictions=predictions,
        shifts=shifts,
    )


def _strengths(run: RunFolder, history: list[dict[str, float]]) -> Tensor | None:
    """Smoothing strengths ``(epochs, K)``, or ``(epochs, 1)`` if only the mean is stored; None if not learned."""
    rows = []
    for epoch, record in enumerate(history, start=1):
        found = [value for name, value in run.read_epoch(epoch).items() if name.endswith("strength")]
        if not found and "strength" not in record:
            return None
        rows.append((found[0] if found else torch.tensor(record["strength"])).reshape(-1).double())
    return torch.stack(rows) if rows else None
