"""How over-confident cross-entropy is in the regimes that were tried for the ``cpu`` preset.

Run: ``python -m benchmarks.preset_regimes RUN...`` on folders that ``metacal train ... method=ce`` has made; the table
goes to results/presets/regimes.csv. A run that was stopped part-way shows its last epoch; a complete one the checkpoint
of best validation accuracy.
"""

import csv
import sys
from pathlib import Path

from benchmarks.report import save_about
from metacal.runs import RunFolder

OUTPUT = Path("results/presets/regimes.csv")
COLUMNS = (
    "dataset",
    "train_size",
    "epochs",
    "seed",
    "measured_at_epoch",
    "val_ece_percent",
    "val_accuracy_percent",
    "val_confidence_percent",
)


def regime(folder: RunFolder) -> dict[str, object]:
    """One line: what was trained, and how it did on the validation set."""
    spec = folder.read_spec()
    assert spec.method.name == "ce", "presets are fixed on cross-entropy alone"
    about = {"dataset": spec.dataset, "train_size": spec.train_size, "epochs": spec.epochs, "seed": spec.seed}
    if not folder.is_complete:
        last = folder.read_history()[-1]
        accuracy = 100 * (1 - last["val_error"])
        found = {"measured_at_epoch": int(last["epoch"]), "val_ece_percent": 100 * last["val_ece"]}
        return {**about, **found, "val_accuracy_percent": accuracy, "val_confidence_percent": ""}
    scores, val = folder.read_scores(), folder.read_predictions("val")
    return {
        **about,
        "measured_at_epoch": scores["best_epoch"],
        "val_ece_percent": 100 * scores["val"]["ece"],
        "val_accuracy_percent": 100 * scores["val"]["accuracy"],
        "val_confidence_percent": 100 * float(val.probs.amax(dim=1).double().mean()),
    }


def main() -> None:
    """Write the table, in the order of the folders."""
    folders = [RunFolder(name) for name in sys.argv[1:]]
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    with OUTPUT.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(regime(folder) for folder in folders)
    save_about(
        OUTPUT,
        " ".join(["python -m benchmarks.preset_regimes", *sys.argv[1:]]),
        seeds=sorted({folder.read_spec().seed for folder in folders}),
        train_seconds=sum(folder.read_scores()["train_seconds"] for folder in folders if folder.is_complete),
    )
    print(OUTPUT.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
