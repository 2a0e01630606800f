"""How over-confident cross-entropy is in the regimes that were tried for the ``cpu`` scale.

Run: ``python -m benchmarks.scale_regimes RUN...`` on folders that ``metacal train ... method=ce`` has made; the table
goes to results/scales/regimes.csv: figures of the checkpoint of best validation accuracy.
"""

import argparse
import csv
from pathlib import Path

from benchmarks.report import save_about, typed
from metacal.lab.training import RunFolder

OUTPUT = Path("results/scales/regimes.csv")


def regime(folder: RunFolder) -> dict[str, object]:
    """One line: what was trained, and how it did on the validation set."""
    spec = folder.read_spec()
    assert spec.method.name == "ce", "scales are fixed on cross-entropy alone"
    scores, val = folder.read_scores(), folder.read_predictions("val")
    return {
        "dataset": spec.dataset,
        "train_size": spec.train_size,
        "epochs": spec.epochs,
        "seed": spec.seed,
        "measured_at_epoch": scores["best_epoch"],
        "val_ece_percent": 100 * scores["val"]["ece"],
        "val_accuracy_percent": 100 * scores["val"]["accuracy"],
        "val_confidence_percent": 100 * float(val.probs.amax(dim=1).double().mean()),
    }


def main() -> None:
    """Write the table, in the order of the folders."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale_regimes", description=__doc__)
    parser.add_argument("runs", nargs="+", help="folders of complete runs")
    folders = [RunFolder(name) for name in parser.parse_args().runs]
    rows = [regime(folder) for folder in folders]
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    with OUTPUT.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    seconds = sum(folder.read_scores()["train_seconds"] for folder in folders)
    seeds = sorted({folder.read_spec().seed for folder in folders})
    save_about(OUTPUT, typed("scale_regimes"), seeds=seeds, train_seconds=round(seconds, 1))
    print(OUTPUT.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
