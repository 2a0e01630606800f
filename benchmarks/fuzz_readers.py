"""What is fuzzed: each file reader with valid files to start from, a mutation of its format, and what must hold.

A reader either gives a value that keeps its contract or raises a `MetacalError`. Anything else is a finding.
"""

import gzip
import io
import json
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import torch

from benchmarks import fuzz_mutations as mutations
from benchmarks.fuzz_mutations import Mutation
from metacal.errors import MetacalError
from metacal.evaluation.prediction_file import PredictionFile
from metacal.evaluation.predictions import Predictions, gather, read_predictions

LONGEST = 20_000
"""Bytes of an input at most; longer files to start from would be cut off."""

PROBS = np.array([[0.75, 0.25], [0.125, 0.875], [0.5, 0.5]])
TARGETS = np.array([0, 1, 1])


@dataclass(frozen=True)
class Reader:
    """How a reader is fuzzed.

    Attributes:
        suffix: of the file that is written.
        read: reads it and checks what comes out; an AssertionError is a finding too.
        seeds: valid files.
        mutate: a mutation of its format; None has bytes alone.
    """

    suffix: str
    read: Callable[[Path], object]
    seeds: Callable[[], Iterable[bytes]]
    mutate: Mutation | None = None


def predictions(path: Path) -> None:
    """Read a file of predictions and hold it to what `Predictions` promises."""
    check(read_predictions(path))


def any_predictions(path: Path) -> None:
    """The same of a file that may have top-label confidences alone."""
    file = PredictionFile(path, top_label=True)
    if not file.is_top_label:
        return check(gather(file))
    for batch in file.batches():
        assert batch.targets is not None and 0.0 <= float(batch.scores.min()) <= float(batch.scores.max()) <= 1.0


def samples(*names: str) -> Callable[[], list[bytes]]:
    folder = Path(__file__).parent.parent / "tests" / "evaluation" / "samples"
    return lambda: [(folder / name).read_bytes() for name in names]


def inspect_archives() -> list[bytes]:
    """Inspect's archives of a few samples: of several epochs, and with log-probabilities."""
    folder = Path(__file__).parent.parent / "tests" / "evaluation" / "samples"
    with zipfile.ZipFile(folder / "inspect-epochs.eval") as archive:
        epochs = [archive.read(name) for name in archive.namelist() if name.startswith("samples/")]
    log = json.loads((folder / "inspect.json").read_bytes())
    once = [json.dumps(sample).encode() for sample in log["samples"]]
    return [archived({f"samples/{k}_epoch_1.json": each for k, each in enumerate(some[:6])}) for some in (epochs, once)]


def archived(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def tensors() -> list[bytes]:
    logits, targets = torch.from_numpy(PROBS), torch.from_numpy(TARGETS)
    half = {"probs": logits.bfloat16(), "labels": targets.to(torch.uint8), "epoch": 3}
    return [saved(lambda file, each=each: torch.save(each, file)) for each in ({"logits": logits, "y": targets}, half)]


def safe_tensors() -> list[bytes]:
    from safetensors.numpy import save

    return [save({"probs": PROBS, "targets": TARGETS})]


def check(said: Predictions) -> None:
    assert said.scores.ndim == 2 and said.scores.shape == (len(said.targets), said.num_classes)
    assert said.num_classes >= 2 and len(said) > 0 and len(said.class_names) == said.num_classes
    assert all(isinstance(name, str) for name in said.class_names)
    assert bool(said.scores.isfinite().all()), "scores that are not finite"
    assert int(said.targets.min()) >= 0 and int(said.targets.max()) < said.num_classes, "targets out of range"
    if not said.is_logits:
        assert bool((said.scores >= 0).all()) and bool(((said.scores.sum(1) - 1).abs() < 0.01).all()), (
            "no probabilities"
        )


def rows(*fields: Any) -> bytes:
    return "".join(json.dumps(field) + "\n" for field in fields).encode()


def json_lines() -> list[bytes]:
    lists = [{"probs": row.tolist(), "target": int(t)} for row, t in zip(PROBS, TARGETS, strict=True)]
    named = [{"logit_cat": 1.5, "logit_dog": -2, "label": "cat"}, {"logit_cat": 0, "logit_dog": 3, "label": "dog"}]
    return [rows(*lists), rows(*named), rows({"probs": {"a": 0.5, "b": 0.5}, "y": "a"}), rows({"p": 0.25, "y": True})]


def comma_separated() -> list[bytes]:
    return [
        b"p_0,p_1,label\n0.75,0.25,0\n0.125,0.875,1\n",
        b"id,logit_cat,logit_dog,target\na,1.5,-2,cat\nb,0,3,dog\n",
        b"p_1;label\n0,25;true\n0,5;false\n",
    ]


def arrays(write: Callable[..., None] = np.savez) -> list[bytes]:
    named = {"class_names": np.array(["a", "b"])}
    return [
        saved(write, probs=PROBS, targets=TARGETS),
        saved(write, logits=PROBS.astype(np.float32), y=TARGETS.astype(np.uint8), **named),
        saved(np.savez_compressed, p=PROBS[:, 1], label=np.array(["0", "1", "1"])),
    ]


def saved(write: Callable[..., None], *values: Any, **named: Any) -> bytes:
    buffer = io.BytesIO()
    write(buffer, *values, **named)
    return buffer.getvalue()


def single_array(path: Path) -> None:
    """An NPY file of scores beside good targets, then as the targets beside good scores."""
    targets, scores = path.with_name("good_targets.npy"), path.with_name("good.npy")
    np.save(targets, TARGETS)
    np.save(scores, PROBS)
    roles: tuple[tuple[Path, dict[str, Any]], ...] = (
        (path, {"probs": path.stem, "target": targets.name}),
        (path, {"logits": path.stem, "target": targets.name}),
        (scores, {"probs": scores.stem, "target": path.name}),
    )
    for file, options in roles:
        with suppress(MetacalError):
            check(read_predictions(file, **options))


def tables(write: Callable[[Any, Any], None]) -> Callable[[], list[bytes]]:
    def make() -> list[bytes]:
        first = {"p_0": PROBS[:, 0], "p_1": PROBS[:, 1], "label": TARGETS}
        lists = {"probs": pa.array(PROBS.tolist()), "target": pa.array(["0", "1", "1"]).dictionary_encode()}
        return [saved(write, pa.table(each)) for each in (first, lists)]

    return make


def tables_like(write: Callable[[Any, Any], None]) -> Mutation:
    """A table of random types and values under random names; or the given file with a few bytes changed."""
    kinds = [
        *(pa.float16(), pa.float32(), pa.float64(), pa.int8(), pa.uint64(), pa.bool_(), pa.string(), pa.large_string()),
        *(
            pa.string_view(),
            pa.binary(),
            pa.null(),
            pa.date32(),
            pa.timestamp("ns"),
            pa.decimal128(10, 2),
            pa.duration("s"),
        ),
        *(
            pa.list_(pa.float64()),
            pa.list_(pa.float32(), 2),
            pa.large_list(pa.string()),
            pa.list_(pa.list_(pa.int64())),
        ),
        *(pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.float64())),
        *(pa.struct([("cat", pa.float64()), ("dog", pa.float64())]), pa.time64("us")),
        *(
            pa.list_(pa.struct([("a", pa.int64())])),
            pa.list_(pa.null()),
            pa.list_(pa.bool_()),
            pa.list_view(pa.float32()),
        ),
    ]

    def column(kind: Any, length: int, random: Random) -> Any:
        pool = [
            *mutations.VALUES,
            0.5,
            [0.5, 0.5],
            [1.0, 0.0],
            ["a"],
            "cat",
            {"cat": 0.5, "dog": 0.5},
            b"x",
            [[1]],
            [None],
        ]
        fitting = [value for value in pool if fits(value, kind)] or [None]
        fitting = [value for value in fitting if value is not None] or fitting if random.random() < 0.8 else fitting
        return pa.array([random.choice(fitting) for _ in range(length)], type=kind)

    def fits(value: Any, kind: Any) -> bool:
        try:
            pa.array([value], type=kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError, UnicodeEncodeError):
            return False
        return True

    def mutate(data: bytes, random: Random) -> bytes:
        if random.random() < 0.5:
            return mutations.some_bytes(data, random)
        length = random.choice((0, 1, 2, 5))
        names = random.choices((*mutations.NAMES, "probs.cat", "p_0"), k=random.choice((1, 2, 3, 4)))
        columns = [column(random.choice(kinds), length, random) for _ in names]
        return saved(lambda file: write(file, pa.Table.from_arrays(columns, names=names)))

    return mutate


def write_parquet(file: Any, table: Any) -> None:
    pa.parquet.write_table(table, file)


def write_arrow(file: Any, table: Any) -> None:
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def calibrator(path: Path) -> None:
    """Load, predict, and save again what was loaded."""
    from metacal.posthoc import Calibrator

    found = Calibrator.load(path)
    if found.num_classes_ > 1000:
        return
    scores = torch.eye(found.num_classes_, dtype=torch.float64) * 3
    said = found.predict_proba(logits=scores)
    assert bool(said.isfinite().all()) and bool((said >= 0).all()), "no probabilities"
    assert bool(((said.sum(1) - 1).abs() < 1e-6).all()), "probabilities that do not sum to 1"
    found.save(path)


def calibrators() -> list[bytes]:
    import tempfile

    from metacal.posthoc import CALIBRATORS

    draw, found = torch.Generator().manual_seed(0), []
    logits = torch.randn(80, 3, generator=draw, dtype=torch.float64)
    targets = torch.multinomial(logits.softmax(1), 1, generator=draw)[:, 0]
    with tempfile.TemporaryDirectory() as folder:
        for name, kind in CALIBRATORS.items():
            kind().fit(logits=logits, targets=targets, class_names=["a", "b", "c"]).save(Path(folder) / name)
            found.append((Path(folder) / name).read_bytes())
    return found


@cache
def finished_run() -> Path:
    """The folder of a small complete run that learns something."""
    import tempfile

    from metacal.lab.training import RunFolder, build_spec, run

    place = Path(tempfile.mkdtemp(prefix="metacal-fuzz-"))
    settings = {"dataset": "digits", "method": "meta", "epochs": 2, "milestones": [1], "train_size": 64, "val_size": 20}
    spec = build_spec({**settings, "model_options": {"hidden": [4]}})
    folder = RunFolder(place / "run")
    run(spec, folder)
    predicted = folder.read_predictions("test")
    few = Predictions.from_logits(predicted.logits[:5], predicted.targets[:5], predicted.class_names, "test")
    folder.write_predictions("test", few)
    for leftover in folder.path.glob("*checksums*"):  # as folders of before: every change gets past them
        leftover.unlink()
    return folder.path


def in_a_run(name: str) -> Callable[[Path], None]:
    """Read all of a run whose file of this name is the one at hand, and prepare its report."""

    def read(path: Path) -> None:
        from metacal.lab.cli.validate import problem_of
        from metacal.lab.training import RunFolder
        from metacal.lab.training.read_run import read_run
        from metacal.reporting import prepare_report

        whole = finished_run()
        copy = whole.with_name("copy")
        if not copy.exists():
            shutil.copytree(whole, copy)
        shutil.copyfile(path, copy / name)
        folder = RunFolder(copy)
        calls: tuple[Callable[[], object], ...] = (
            lambda: prepare_report([read_run(copy)], "report", 10),
            lambda: folder.drop_epochs(2),
            lambda: problem_of(folder),
            folder.read_splits,
            folder.read_environment,
            lambda: folder.read_spec_to_build(trust_model=False),
        )
        for call in calls:
            with suppress(MetacalError):
                call()

    return read


def run_file(name: str) -> Callable[[], list[bytes]]:
    return lambda: [(finished_run() / name).read_bytes()]


def checkpoint(path: Path) -> None:
    """Go on from a checkpoint."""
    from metacal.lab.training import RunFolder, run

    whole = finished_run()
    copy = whole.with_name("resumed")
    if not copy.exists():
        shutil.copytree(whole, copy)
    (copy / "scores.json").unlink(missing_ok=True)
    shutil.copyfile(path, copy / "checkpoints" / "last.ckpt")
    (copy / "checkpoints" / "previous.ckpt").unlink(missing_ok=True)
    run(RunFolder(copy).read_spec(), RunFolder(copy), resume=True)


def cifar(path: Path) -> None:
    from metacal.lab.data.sources.cifar import read_examples

    read_examples(path, {path.name: path.read_bytes()}, (path.name,), 10)


def svhn(path: Path) -> None:
    from metacal.lab.data.sources.svhn import read_mat

    found = read_mat(path)
    assert len(found.inputs) == len(found.targets) > 0 and set(found.targets.tolist()) <= set(range(10))


def mat_files() -> list[bytes]:
    from scipy.io import savemat

    images, labels = np.zeros((32, 32, 3, 2), np.uint8), np.array([[1], [10]])
    return [
        saved(savemat, {"X": images, "y": labels.astype(kind)}, do_compression=packed)
        for packed in (True, False)
        for kind in ("u1", "f8")
    ]


def glove(path: Path) -> None:
    from metacal.lab.data.sources.newsgroups import read_vectors

    found = read_vectors(path, {"the": 1, "cat": 2})
    assert found.shape == (3, 100)


def vectors() -> list[bytes]:
    line = " ".join(["0.5"] * 100)
    return [f"the {line}\ncat {line}\nother {line}\n".encode()]


def newsgroups(path: Path) -> None:
    from metacal.lab.data.sources.newsgroups import read_documents

    read_documents(path)


def messages() -> list[bytes]:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for number in (1, 2):
            info = tarfile.TarInfo(f"20_newsgroups/sci.med/{number}")
            info.size = 12
            archive.addfile(info, io.BytesIO(b"From: a\n\nb c"))
    return [buffer.getvalue()[:4096]]


def own_data(path: Path) -> None:
    from metacal.lab.data.sources.own import load_npz

    found = load_npz(path)
    assert len(found.train.inputs) == len(found.train.targets)


def own_arrays() -> list[bytes]:
    return [saved(np.savez, inputs=np.zeros((8, 3), np.float32), targets=np.arange(8) % 2)]


def in_gzip(mutate: Mutation) -> Mutation:
    return lambda data, random: gzip.compress(mutate(gzip.decompress(data), random), 1, mtime=0)


RUN_JSON = ("spec.json", "environment.json", "scores.json", "hyperparameters.json")
READERS = {
    "jsonl": Reader(".jsonl", predictions, json_lines, mutations.json_lines),
    "json": Reader(".json", any_predictions, samples("inspect.json", "pipeline.json"), mutations.json_file),
    "json-logs": Reader(
        ".jsonl",
        any_predictions,
        samples("lm-eval.jsonl", "options.jsonl", "verbalised.jsonl", "samples.jsonl", "pipeline-top.jsonl"),
        mutations.json_lines,
    ),
    "eval": Reader(".eval", any_predictions, inspect_archives, mutations.zipped(mutations.json_file)),
    "tensors": Reader(".pt", any_predictions, tensors, mutations.zipped(mutations.some_bytes, 1.0)),
    "safetensors": Reader(".safetensors", any_predictions, safe_tensors, mutations.safetensors),
    "npz": Reader(".npz", predictions, arrays, mutations.zipped(mutations.npy)),
    "npy": Reader(".npy", single_array, lambda: [saved(np.save, each) for each in (PROBS, TARGETS)], mutations.npy),
    "csv": Reader(".csv", predictions, comma_separated, mutations.separated),
    "csv.gz": Reader(
        ".csv.gz", predictions, lambda: map(gzip.compress, comma_separated()), in_gzip(mutations.separated)
    ),
    "parquet": Reader(".parquet", predictions, tables(write_parquet), tables_like(write_parquet)),
    "arrow": Reader(".arrow", predictions, tables(write_arrow), tables_like(write_arrow)),
    "calibrator": Reader(".safetensors", calibrator, calibrators, mutations.safetensors),
    "checkpoint": Reader(".ckpt", checkpoint, run_file("checkpoints/last.ckpt"), mutations.checkpoint),
    **{f"run-{name}": Reader(".json", in_a_run(name), run_file(name), mutations.json_file) for name in RUN_JSON},
    "run-history.csv": Reader(".csv", in_a_run("history.csv"), run_file("history.csv"), mutations.separated),
    "run-predictions": Reader(
        ".safetensors",
        in_a_run("predictions/test.safetensors"),
        run_file("predictions/test.safetensors"),
        mutations.safetensors,
    ),
    "run-epoch": Reader(
        ".safetensors", in_a_run("epochs/0001.safetensors"), run_file("epochs/0001.safetensors"), mutations.safetensors
    ),
    "cifar": Reader(".bin", cifar, lambda: [bytes(3073), bytes(2 * 3073)]),
    "svhn": Reader(".mat", svhn, mat_files, mutations.mat),
    "glove": Reader(".txt", glove, vectors),
    "newsgroups": Reader(".tar", newsgroups, messages, mutations.some_bytes),
    "dataset-npz": Reader(".npz", own_data, own_arrays, mutations.zipped(mutations.npy)),
}
