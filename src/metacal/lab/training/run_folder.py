"""`RunFolder` and `RunStore`: the only readers and writers of run folders.

A run is a folder::

    spec.json            the resolved spec          environment.json   machine, versions, commit
    splits.safetensors   row numbers of each part   history.csv        one line per epoch
    epochs/0001.safetensors   validation logits and hyper-parameters after that epoch
    checkpoints/         last, previous and best     (see metacal.lab.training.checkpoints)
    predictions/val.safetensors, test.safetensors    logits and targets of the best checkpoint
    hyperparameters.json the learned values         scores.json        written last: the run is complete
    superclasses.json    the superclass of every class, if there are superclasses
    checksums.json       SHA-256 of all other files except checkpoints; written just before the scores (not by 0.1)
    shift/cifar10-c.json figures by corruption and severity, written by `metacal shift`
"""

import csv
import hashlib
import io
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import safetensors.torch
from filelock import FileLock, Timeout
from pydantic import ValidationError
from torch import Tensor

from metacal import files
from metacal.errors import InUseError, InvalidTypeError, InvalidValueError, StorageError
from metacal.evaluation.predictions import Predictions
from metacal.lab.training.environment import commit, environment
from metacal.lab.training.spec import SCHEMA, RunSpec

CHECKSUMS, SCORES = "checksums.json", "scores.json"
CHECKED = (
    *("spec.json", "environment.json", "splits.safetensors", "history.csv", "hyperparameters.json"),
    *("superclasses.json", "epochs/*.safetensors", "predictions/*.safetensors", "shift/*.json"),
)
"""Files with a checksum, besides the scores."""
FROM_BEST_CHECKPOINT = (SCORES, "hyperparameters.json", "predictions/val.safetensors", "predictions/test.safetensors")
"""Files that are written at the end of a run, from its best checkpoint."""


class RunFolder:
    """One run on disk; nothing is created until something is written."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def exists(self) -> bool:
        """Whether a run was started here."""
        return (self.path / "spec.json").exists()

    @property
    def is_complete(self) -> bool:
        """Whether the run has its scores."""
        return (self.path / SCORES).exists()

    @property
    def checkpoints(self) -> Path:
        """The checkpoints of the run."""
        return self.path / "checkpoints"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder for this process; others get an error. A new folder is removed if nothing was written."""
        is_new, file = not self.path.exists(), self.path / "run.lock"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = FileLock(file)
            lock.acquire(timeout=0)
        except Timeout:
            raise InUseError(f"{self.path} is in use by another process; wait for it, or use another folder.") from None
        except OSError as error:
            raise StorageError(f"{self.path} could not be written: {error.strerror or error}.") from None
        try:
            yield
        finally:
            if is_new and list(self.path.iterdir()) == [file]:
                with suppress(OSError):
                    file.unlink()
                    self.path.rmdir()
            lock.release()

    def check_free_for(self, spec: RunSpec, *, resume: bool) -> None:
        """Raise unless this spec may run here: the folder is free, or holds this run and ``resume`` is True."""
        if not self.exists:
            return
        stored = self.read_spec()
        if stored.hash != spec.hash:
            here, there = ({**each.model_dump(mode="json"), "method": each.method.name} for each in (spec, stored))
            differing = [f"{key} ({there[key]} there, {here[key]} here)" for key in here if here[key] != there[key]]
            raise InvalidValueError(
                f"{self.path} already contains another run: {', '.join(differing) or 'its method differs'}; "
                "choose another folder with --run-dir."
            )
        state = "complete" if self.is_complete else "unfinished"
        if not resume:
            raise InvalidValueError(f"{self.path} already contains this run, {state}; pass --resume to continue.")

    def write_spec(self, spec: RunSpec, circumstances: Mapping[str, Any]) -> None:
        """Start a run; ``circumstances`` is stored with the environment."""
        files.write_json(self.path / "environment.json", {**environment(), "commit": commit(), **circumstances})
        files.write_json(
            self.path / "spec.json", {"schema": SCHEMA, "hash": spec.hash, "spec": spec.model_dump(mode="json")}
        )

    def read_environment(self) -> dict[str, Any]:
        """Read machine, versions, and data files."""
        return dict(self._read_json("environment.json"))

    @property
    def schema(self) -> Any:
        """The spec version of the run; None if its file does not say."""
        with suppress(StorageError, AttributeError):
            return files.read_json(self.path / "spec.json").get("schema")
        return None

    def read_spec(self) -> RunSpec:
        """Read the spec of the run."""
        file = self.path / "spec.json"
        stored, schema = files.read_json(file), self.schema
        if schema != SCHEMA:
            raise InvalidValueError(
                f"{file} must be of schema {SCHEMA}, got {schema}: another version of metacal wrote this run; read it "
                "with that version, or run it again in another folder."
            )
        with suppress(KeyError, ValidationError):
            spec = RunSpec.model_validate(stored["spec"])
            if spec.hash == stored.get("hash"):
                return spec
        raise StorageError(f"{file} is damaged: its contents do not have the hash it was written with.")

    def read_spec_to_build(self, *, trust_model: bool) -> RunSpec:
        """Read the spec in order to build its model; a model given by import path runs code, and must be trusted."""
        spec = self.read_spec()
        if spec.has_own_model and not trust_model:
            raise InvalidValueError(
                f"{self.path / 'spec.json'} names a model by import path, {spec.model!r}, whose code would be run: "
                "pass --trust-model if you trust it."
            )
        return spec

    def write_splits(self, indices: Mapping[str, Tensor]) -> None:
        """Store the row numbers of each part."""
        write_tensors(self.path / "splits.safetensors", indices)

    def read_splits(self) -> dict[str, Tensor]:
        """Read the row numbers of each part."""
        return self._read_tensors("splits.safetensors")

    def add_epoch(self, record: Mapping[str, float], tensors: Mapping[str, Tensor]) -> None:
        """Add an epoch to the history, replacing that epoch and later ones."""
        epoch = int(record["epoch"])
        write_tensors(self.path / f"epochs/{epoch:04d}.safetensors", tensors)
        kept = [row for row in self.read_history() if row["epoch"] < epoch]
        files.write_text(self.path / "history.csv", files.csv_text([*kept, record]))

    def drop_epochs(self, done: int) -> None:
        """Remove records of epochs after the first ``done``, and temporary files of killed processes."""
        for folder in (self.path, self.path / "epochs"):
            files.remove_leftovers(folder)
        rows = self.read_history()
        if rows and rows[-1]["epoch"] < done:
            raise self._damaged("history.csv", f"it ends with epoch {rows[-1]['epoch']:g} of {done}")
        if len(rows) > done:
            kept = [row for row in rows if row["epoch"] <= done]
            files.write_text(self.path / "history.csv", files.csv_text(kept))
        for file in (self.path / "epochs").glob("*.safetensors"):
            if int(file.stem) > done:
                file.unlink()

    def read_history(self) -> list[dict[str, float]]:
        """Read one record per epoch, oldest first."""
        if not (self.path / "history.csv").exists():
            return []
        try:
            text = self._read("history.csv").decode()
            rows = list(csv.DictReader(io.StringIO(text, newline="")))
            if not text.endswith("\n") or any(None in (*row, *row.values()) for row in rows):
                raise ValueError("it is cut short")
            history = [{key: float(value) for key, value in row.items() if value} for row in rows]
            if any(not row["epoch"].is_integer() for row in history):
                raise ValueError("an epoch is not a whole number")
        except (KeyError, ValueError, csv.Error) as error:
            raise self._damaged("history.csv", str(error)) from None
        return history

    def read_epoch(self, epoch: int) -> dict[str, Tensor]:
        """Read validation logits and hyper-parameters (``omega.*``) after an epoch."""
        return self._read_tensors(f"epochs/{epoch:04d}.safetensors")

    def write_predictions(
        self, part: str, predictions: Predictions, domains: Tensor | None = None, domain_names: Sequence[str] = ()
    ) -> None:
        """Store the logits and targets of a part, with domains if there are any."""
        tensors = {"logits": predictions.logits, "targets": predictions.targets}
        about: dict[str, Any] = {"name": predictions.name, "class_names": predictions.class_names}
        if domains is not None:
            tensors["domains"], about["domain_names"] = domains, list(domain_names)
        # A single key: the order of several would change from process to process.
        write_tensors(self.path / f"predictions/{part}.safetensors", tensors, {"predictions": json.dumps(about)})

    def read_predictions(self, part: str = "test") -> Predictions:
        """Read the predictions of a part."""
        return self._read_part(part)[0]

    def read_domains(self, part: str = "test") -> tuple[Tensor, tuple[str, ...]] | None:
        """Read the domain number of each prediction and the domain names; None for a run without domains."""
        return self._read_part(part)[1]

    def _read_part(self, part: str) -> tuple[Predictions, tuple[Tensor, tuple[str, ...]] | None]:
        name = f"predictions/{part}.safetensors"
        found = self._read_tensors(name)
        try:
            with safetensors.safe_open(self.path / name, framework="pt") as file:
                about = json.loads((file.metadata() or {}).get("predictions", ""))
            logits, targets, domains = found["logits"], found["targets"], found.get("domains")
            predictions = Predictions.from_logits(logits, targets, about["class_names"], about["name"])
            if domains is not None and domains.shape != targets.shape:
                raise ValueError("it must hold a domain for each target")
            return predictions, None if domains is None else (domains, tuple(about["domain_names"]))
        except (InvalidTypeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise self._damaged(name, str(error)) from None

    def write_hyperparameters(self, learned: Mapping[str, Any]) -> None:
        """Store the learned values as plain numbers."""
        files.write_json(self.path / "hyperparameters.json", learned)

    def read_hyperparameters(self) -> dict[str, Any]:
        """Read the learned values; empty if nothing is learned."""
        return dict(files.as_figures(self._read_json("hyperparameters.json")))

    def write_superclasses(self, superclasses: Sequence[int] | None) -> None:
        """Store the superclass of every class, if there are any."""
        if superclasses is not None:
            files.write_json(self.path / "superclasses.json", list(superclasses))

    def read_superclasses(self) -> tuple[int, ...] | None:
        """Read the superclass of every class, if there are any."""
        name = "superclasses.json"
        if not (self.path / name).exists():
            return None
        numbers = self._read_json(name, list)
        if not all(isinstance(number, int) for number in numbers):
            raise self._damaged(name, "it must hold a list of integers")
        return tuple(numbers)

    def write_shift(self, name: str, study: Mapping[str, Any]) -> None:
        """Store figures under shift; if killed, the checksum may be missing, but is never wrong."""
        file, text = f"shift/{name}.json", files.json_text(study)
        with self.lock():
            others = {other: value for other, value in self._checksums().items() if other != file}
            if others:
                files.write_json(self.path / CHECKSUMS, others)
            files.write_text(self.path / file, text)
            if others:
                files.write_json(self.path / CHECKSUMS, {**others, file: digest(text.encode())})

    def read_shifts(self) -> dict[str, dict[str, Any]]:
        """Read figures under shift, by name."""
        names = sorted(path.stem for path in (self.path / "shift").glob("*.json"))
        return {name: files.as_figures(self._read_json(f"shift/{name}.json")) for name in names}

    def write_scores(self, scores: Mapping[str, Any]) -> None:
        """Complete the run: write the checksums of all files, then the scores."""
        text = files.json_text(scores)
        paths = [path for pattern in CHECKED for path in sorted(self.path.glob(pattern))]
        checksums = {path.relative_to(self.path).as_posix(): digest(files.read_bytes(path)) for path in paths}
        files.write_json(self.path / CHECKSUMS, {**checksums, SCORES: digest(text.encode())})
        files.write_text(self.path / SCORES, text)

    def read_scores(self) -> dict[str, Any]:
        """Read the test figures of the best checkpoint."""
        scores: dict[str, Any] = files.as_figures(self._read_json(SCORES))
        parts = (scores.get("test"), scores.get("val", {}), {"train_seconds": scores.get("train_seconds")})
        are_figures = (
            isinstance(part, dict) and all(isinstance(x, int | float) for x in part.values()) for part in parts
        )
        if "spec" not in scores or not all(are_figures):
            raise self._damaged(SCORES, "it does not hold the scores of a run")
        return scores

    def damaged_files(self) -> Iterator[str]:
        """Yield an error message for each damaged file."""
        for name in self._checksums():
            try:
                if (self.path / name).exists():
                    self._read(name)
            except StorageError as error:
                yield str(error)

    def _checksums(self) -> dict[str, str]:
        path = self.path / CHECKSUMS
        if not self.is_complete or not path.exists():
            return {}
        found = files.read_json(path)
        if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
            raise StorageError(f"{path} is damaged: it must hold a checksum for each file. Delete it to skip checks.")
        return found

    def _read(self, name: str) -> bytes:
        data, expected = files.read_bytes(self.path / name), self._checksums().get(name)
        if expected is not None and expected != digest(data):
            raise self._damaged(name, "its contents do not have the checksum they were written with")
        return data

    def _read_json(self, name: str, kind: type = dict) -> Any:
        data = self._read(name)
        try:
            found = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise self._damaged(name, f"it must hold JSON ({error})") from None
        if not isinstance(found, kind):
            raise self._damaged(name, f"it must hold a JSON {'object' if kind is dict else 'array'}")
        return found

    def _read_tensors(self, name: str) -> dict[str, Tensor]:
        data = self._read(name)
        try:
            return dict(safetensors.torch.load(data))
        except (safetensors.SafetensorError, ValueError, KeyError, RuntimeError) as error:
            raise self._damaged(name, str(error)) from None

    def _damaged(self, name: str, reason: str) -> StorageError:
        """Return the error for a damaged file, with what to do about it."""
        if name in FROM_BEST_CHECKPOINT:
            again = f"metacal train --run-dir {shlex.quote(str(self.path))} --resume"
            fix = f"Delete {self.path / SCORES} and repeat the end of the run: {again}"
        elif name.startswith("shift/"):
            fix = "Delete it and measure the shift again."
        elif name == "history.csv" and not self.is_complete:
            fix = "Delete it to continue the run without its earlier history."
        else:
            fix = "Restore it from a copy, or run it again in another folder."
        return StorageError(f"{self.path / name} is damaged: {reason.rstrip('.')}. {fix}")


class RunStore:
    """A folder of runs, which are found by spec.

    Args:
        root: the folder; if several machines use it, on a file system that they share.

    Examples:
        >>> from metacal.lab.training import build_spec
        >>> RunStore("runs").folder(build_spec({"dataset": "digits"})).path.parent.name
        'runs'
    """

    def __init__(self, root: str | Path) -> None:
        if "://" in str(root):
            raise InvalidValueError(
                f"The store must be a folder, got {root!r}; mount the URL, or copy its files with a sync tool."
            )
        self.root = Path(root)

    def folder(self, spec: RunSpec) -> RunFolder:
        """Return the folder of this run."""
        return RunFolder(self.root / f"{spec.title}-{spec.hash[:8]}")

    def state(self, spec: RunSpec) -> str:
        """``missing``, ``unfinished`` or ``complete``."""
        folder = self.folder(spec)
        return "complete" if folder.is_complete else "unfinished" if folder.exists else "missing"

    def folders(self) -> list[RunFolder]:
        """All started runs, sorted by name."""
        return [RunFolder(path.parent) for path in sorted(self.root.glob("*/spec.json"))]

    def complete(self) -> list[RunFolder]:
        """All complete runs, sorted by name."""
        return [folder for folder in self.folders() if folder.is_complete]

    def of_other_versions(self) -> list[str]:
        """Names of runs with another spec version, which are ignored."""
        return [folder.path.name for folder in self.folders() if folder.schema not in (SCHEMA, None)]


def digest(data: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write tensors to a file, replacing it."""
    data = safetensors.torch.save(
        {name: value.detach().cpu().contiguous() for name, value in tensors.items()}, metadata
    )
    files.write_whole(path, lambda file: file.write(data))
