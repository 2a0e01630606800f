"""Streaming a file larger than memory should be: ``python -m benchmarks.evaluate_stream``.

Writes a Parquet file of 20 million rows of 10 float32 probabilities and a label, reads it as batches and does nothing
else, then streams it into accuracy, NLL, Brier score, ECE and MCE with a reservoir of rows beside, each in a process of
its own that reports its time and its highest resident size. The file is deleted afterwards. The exit status is 1 if a
target is missed.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.data import synthetic_predictions
from benchmarks.memory_probe import read_status
from benchmarks.report import Part, Row, Target, measured, publish
from metacal.evaluation.prediction_file import BATCH_ELEMENTS, PredictionFile
from metacal.evaluation.predictions import SAMPLE, Reservoir
from metacal.evaluation.streaming import StreamedScores
from metacal.evaluation.threads import one_thread

ROWS, NUM_CLASSES = 20_000_000, 10
ROUNDS = 5
NAMES = {
    "read": "reading its batches alone",
    "read_bounded": "the same, in bounded memory",
    "stream": "streaming it into figures",
}
SPEED_TARGET, MEMORY_TARGET_MB = 0.5, 600.0
RESULTS = Path("results/benchmarks/evaluate_stream.json")


def main() -> None:
    """Measure, save, print; exit with 1 if a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS, help=f"of the file; {ROWS:,}")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="FILE", help=f"where to save; {RESULTS}")
    parser.add_argument("--wait", type=float, default=0.0, metavar="SECONDS", help="wait so long for a quiet machine")
    parser.add_argument("--probe", nargs=2, metavar=("WHAT", "FILE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.probe:
        print(json.dumps(probe(*arguments.probe)))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "predictions.parquet"
        write_file(path, arguments.rows)
        part = measured(lambda: measure(path, arguments.rows), arguments.wait)
    publish("evaluate_stream", {"stream": part}, {"pyarrow": version("pyarrow")}, arguments.json)


def write_file(path: Path, rows: int) -> None:
    """Write probabilities ``p_0`` ... and ``label`` in row groups of a million."""
    schema = pa.schema([(f"p_{k}", pa.float32()) for k in range(NUM_CLASSES)] + [("label", pa.int64())])
    with pq.ParquetWriter(path, schema) as writer:
        for number, first in enumerate(range(0, rows, 1_000_000)):
            probs, labels = synthetic_predictions(min(1_000_000, rows - first), NUM_CLASSES, seed=number)
            columns = [column.numpy() for column in probs.t().contiguous()]
            writer.write_table(pa.table([*columns, labels.numpy()], schema=schema))


def measure(path: Path, rows: int) -> Part:
    """Read and stream in turns, in new processes; keep the best time and the highest memory of each."""
    best: dict[str, dict[str, float]] = {}
    for _ in range(ROUNDS):
        for what in NAMES:
            command = [sys.executable, "-m", "benchmarks.evaluate_stream", "--probe", what, str(path)]
            found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            known = best.setdefault(what, found)
            best[what] = found | {
                "seconds": min(known["seconds"], found["seconds"]),
                "peak_mb": max(known["peak_mb"], found["peak_mb"]),
            }
    table: list[Row] = [
        {
            "what": NAMES[what],
            "seconds": found["seconds"],
            "million rows / s": rows / found["seconds"] / 1e6,
            "peak MB": found["peak_mb"],
        }
        for what, found in best.items()
    ]
    size = f"{rows:,} x {NUM_CLASSES} Parquet ({path.stat().st_size / 1e6:,.0f} MB)"
    reading = min(best["read"]["seconds"], best["read_bounded"]["seconds"])
    speed = reading / best["stream"]["seconds"]
    figures = ", ".join(f"{name} {best['stream'][name]:.6f}" for name in ("accuracy", "nll", "brier", "ece", "mce"))
    return Part(
        f"Streaming a {size}",
        table,
        [
            Target("speed of streaming / of the faster way of merely reading", speed, SPEED_TARGET, at_least=True),
            Target("highest resident size, MB", best["stream"]["peak_mb"], MEMORY_TARGET_MB, at_least=False),
        ],
        notes=(
            f"Best of {ROUNDS} processes each, taking turns; time without the start of Python and imports, memory with "
            "them. Reading is pyarrow's ParquetFile.iter_batches, with its own settings and as we call it. A seeded "
            f"reservoir of {SAMPLE:,} rows is filled meanwhile. Found: {figures}.",
        ),
    )


def probe(what: str, file: str) -> dict[str, float]:
    """Do one of the two in this process and say what it took."""
    start = time.perf_counter()
    figures: dict[str, float] = {}
    if what == "read":
        with pq.ParquetFile(file) as parquet:
            for _ in parquet.iter_batches():
                pass
    elif what == "read_bounded":
        with pq.ParquetFile(file, pre_buffer=False, buffer_size=2**20) as parquet:
            for _ in parquet.iter_batches(batch_size=BATCH_ELEMENTS // NUM_CLASSES):
                pass
    else:
        opened = PredictionFile(file)
        streamed, reservoir = StreamedScores(opened.is_logits), Reservoir(SAMPLE)
        with one_thread():
            for batch in opened.batches():
                assert batch.targets is not None
                streamed.update(batch.scores, batch.targets)
                reservoir.add(batch.scores, batch.targets)
        figures = streamed.figures()
    return figures | {"seconds": time.perf_counter() - start, "peak_mb": read_status("VmHWM") / 1e6}


if __name__ == "__main__":
    main()
