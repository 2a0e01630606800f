"""Read prediction files that others published and compare their figures with a recomputation in NumPy.

``python -m benchmarks.real_files FOLDER`` wants a folder with ``nannyml-0.13.1-py3-none-any.whl``,
``aequitas-0.42.0.tar.gz`` and ``inspect_ai-0.3.150.tar.gz`` (``pip download --no-deps``, the last two with
``--no-binary :all:``), and the two NPZ files of netcal's examples. Files are read without an option where their names
leave no doubt; the others need the option that the error names. The exit status is 1 if a figure is off by over 1e-9,
or NLL and Brier score of float32 probabilities, whose logarithms and squares are rounded to float32, by over 1e-8.
"""

import argparse
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metacal.evaluation import PredictionFile, evaluate_file

NANNYML, AEQUITAS = "nannyml-0.13.1-py3-none-any.whl", "aequitas-0.42.0.tar.gz"
DATA, SAMPLES = "nannyml/datasets/data", "aequitas-0.42.0/src/aequitas_webapp/sample_data"
INSPECT, LOGS = "inspect_ai-0.3.150.tar.gz", "inspect_ai-0.3.150/tests/log/test_eval_log"
CARDS = ["prepaid_card", "highstreet_card", "upmarket_card"]
TOLERANCE, ROUNDED = 1e-9, 1e-8


class Real(NamedTuple):
    """A file: where it is, the columns of scores and target that NumPy is told of, and options that are needed."""

    member: str
    archive: str | None = None
    scores: str = ""
    target: str = ""
    options: tuple[tuple[str, Any], ...] = ()


FILES = (
    Real("wideresnet-16-4-cifar-10.npz"),
    Real("densenet-bc-100-cifar-100.npz"),
    Real(f"{DATA}/mc_reference.csv", NANNYML, "cards", "y_true"),
    Real(f"{DATA}/synthetic_sample_reference.csv", NANNYML, "y_pred_proba", "work_home_actual"),
    Real(f"{DATA}/california_housing_reference.csv", NANNYML, "y_pred_proba", "clf_target"),
    Real(f"{DATA}/synthetic_car_loan_reference.csv", NANNYML, "y_pred_proba", "repaid", (("target", "repaid"),)),
    Real(f"{DATA}/synthetic_car_loan_dq_reference.csv", NANNYML, "y_pred_proba", "repaid", (("target", "repaid"),)),
    Real(f"{DATA}/employment_MA_reference.pq", NANNYML, "predicted_probability", "employed", (("target", "employed"),)),
    Real(f"{SAMPLES}/compas_for_aequitas.csv", AEQUITAS, "score", "label_value"),
    Real(f"{SAMPLES}/adult_rf_binary.csv", AEQUITAS, "score", "label_value"),
    Real(f"{SAMPLES}/nyc_sqf_for_aequitas.csv", AEQUITAS, "score", "label_value", (("drop_unlabelled", True),)),
    Real(f"{LOGS}/log_streaming.eval", INSPECT),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder, are_equal = parser.parse_args().folder, True
    with tempfile.TemporaryDirectory() as place:
        for real in FILES:
            path = folder / real.member if real.archive is None else unpack(folder / real.archive, real.member, place)
            evaluation = evaluate_file(PredictionFile(path, top_label=True, **dict(real.options)), num_resamples=10)
            expected = recompute(path, real)
            differences = {name: abs(evaluation.figures[name] - value) for name, value in expected.items()}
            off = max(differences.values())
            rounded = ("nll", "brier") if path.suffix == ".npz" else ()
            are_equal &= all(
                value <= (ROUNDED if name in rounded else TOLERANCE) for name, value in differences.items()
            )
            shown = ", ".join(f"{name}={value}" for name, value in real.options) or "no option"
            print(f"{path.name}: {evaluation.rows:,} rows, {shown}, {len(expected)} figures, off by {off:.1e}")
    raise SystemExit(0 if are_equal else 1)


def unpack(archive: Path, member: str, place: str) -> Path:
    """Extract one file of a wheel or a source archive."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return Path(wheel.extract(member, place))
    with tarfile.open(archive) as source:
        source.extract(member, place, filter="data")
    return Path(place, member)


def recompute(path: Path, real: Real) -> dict[str, float]:
    """Accuracy, ECE, Brier score and, where it is finite, NLL by their definitions."""
    if path.suffix == ".eval":  # two questions asked twice: one answered alike and right, one in two ways
        return {"accuracy": 0.5, "ece": 0.25}
    probs, targets = read(path, real)
    confidences, correct = probs.max(1), probs.argmax(1) == targets
    bins = np.clip(np.ceil(confidences * 15).astype(int) - 1, 0, 14)
    gaps = [abs((correct - confidences)[bins == place].sum()) for place in range(15)]
    true = probs[np.arange(len(targets)), targets]
    figures = {
        "accuracy": correct.mean(),
        "ece": sum(gaps) / len(targets),
        "brier": ((probs - np.eye(probs.shape[1])[targets]) ** 2).sum(1).mean(),
    }
    return figures | ({"nll": -np.log(true).mean()} if true.min() > 0.0 else {})


def read(path: Path, real: Real) -> tuple[NDArray[Any], NDArray[Any]]:
    """Scores of every class and class numbers, with NumPy and pandas alone."""
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            return arrays["predictions"].astype(np.float64), arrays["ground_truth"].reshape(-1)
    frame = pd.read_parquet(path) if path.suffix == ".pq" else pd.read_csv(path)
    frame = frame[frame[real.target].notna()]
    if real.scores == "cards":
        probs = frame[[f"y_pred_proba_{card}" for card in CARDS]].to_numpy()
        return probs, frame[real.target].map(CARDS.index).to_numpy()
    positive = frame[real.scores].to_numpy(dtype=np.float64)
    return np.stack((1.0 - positive, positive), 1), frame[real.target].to_numpy().astype(int)


if __name__ == "__main__":
    main()
