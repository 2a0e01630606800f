"""`RunFolder` and `RunStore`: the only readers and writers of run folders.

A run is a folder::

    spec.json            the resolved spec          environment.json   machine, versions, commit
    splits.safetensors   row numbers of each part   history.csv        one line per epoch
    epochs/0001.safetensors   that epoch's validation logits and hyper-parameters
    checkpoints/         last, the one before, best  (see metacal.lab.training.checkpoints)
    predictions/val.safetensors, test.safetensors    logits and targets of the best checkpoint
    hyperparameters.json what was learned           scores.json        written last: the run is complete
    superclasses.json    the superclass of every class, where classes have them
    checksums.json       SHA-256 of all the others but the checkpoints, which have their own; of a complete run
    shift/cifar10-c.json figures by corruption and severity, once `metacal shift` has measured them
"""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors
import torch
from filelock import FileLock, Timeout
from pydantic import ValidationError
from torch import Tensor

from metacal.errors import InUseError, InvalidTypeError, InvalidValueError, StorageError
from metacal.evaluation.predictions import Predictions
from metacal.files import as_figures, json_text, read_json, remove_leftovers, write_json, write_text
from metacal.lab.training.environment import commit, environment
from metacal.lab.training.run_files import SCORES, RunFiles, write_tensors
from metacal.lab.training.spec import SCHEMA, RunSpec


class RunFolder(RunFiles):
    """One run on disk; nothing is created until something is written."""

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder for one process; for another one this raises at once."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.path / "run.lock")
            lock.acquire(timeout=0)
        except Timeout:
            raise InUseError(f"{self.path} is in use by another process: wait for it, or name another run.") from None
        except OSError as error:
            raise StorageError(f"{self.path} could not be written: {error.strerror or error}.") from None
        try:
            yield
        finally:
            lock.release()

    @property
    def exists(self) -> bool:
        """Whether a run was begun here."""
        return (self.path / "spec.json").exists()

    @property
    def checkpoints(self) -> Path:
        """Where its checkpoints are."""
        return self.path / "checkpoints"

    def check_free_for(self, spec: RunSpec, *, resume: bool) -> None:
        """Raise unless this spec may be run here: the folder is free, or holds this run and ``resume`` is given."""
        if not self.exists:
            return
        stored = self.read_spec()
        if stored.hash != spec.hash:
            here, there = ({**each.model_dump(mode="json"), "method": each.method.name} for each in (spec, stored))
            differing = [f"{key} ({there[key]} there, {here[key]} here)" for key in here if here[key] != there[key]]
            raise InvalidValueError(
                f"{self.path} already contains another run: {', '.join(differing) or 'its method differs'}; "
                "name another folder with --run-dir."
            )
        if not resume:
            state = "complete" if self.is_complete else "unfinished"
            raise InvalidValueError(f"{self.path} already contains this run, {state}; pass --resume to continue.")

    def check_data(self, data_hash: str, indices: Mapping[str, Tensor]) -> None:
        """Raise unless the run was begun with this data and these splits."""
        begun = self.read_environment().get("data_hash")
        splits = self.read_splits()
        same = splits.keys() == indices.keys() and all(torch.equal(splits[name], indices[name]) for name in splits)
        if begun != data_hash or not same:
            raise InvalidValueError(
                f"`dataset` must be what the run in {self.path} was begun with, got data that has changed since."
            )

    def write_spec(self, spec: RunSpec, circumstances: Mapping[str, Any]) -> None:
        """Begin a run; ``circumstances`` are kept beside the machine and the versions."""
        write_json(self.path / "environment.json", {**environment(), "commit": commit(), **circumstances})
        write_json(self.path / "spec.json", {"schema": SCHEMA, "hash": spec.hash, "spec": spec.model_dump(mode="json")})

    def read_environment(self) -> dict[str, Any]:
        """Machine, versions, and which files the data came from."""
        return self.read_object("environment.json")

    @property
    def schema(self) -> Any:
        """The version of the spec that the run was begun with; None if its file does not say."""
        try:
            return schema_of(read_json(self.path / "spec.json"))
        except StorageError:
            return None

    def read_spec(self) -> RunSpec:
        """The spec of the run that was begun here."""
        stored = read_json(self.path / "spec.json")
        if (schema := schema_of(stored)) != SCHEMA:
            raise InvalidValueError(
                f"{self.path / 'spec.json'} must be of schema {SCHEMA}, got {schema}: another version of metacal "
                "wrote this run; read it with that version, or name another folder and run it again."
            )
        try:
            spec = RunSpec.model_validate(stored["spec"])
        except (KeyError, ValidationError):
            spec = None
        if spec is None or spec.hash != stored.get("hash"):
            raise StorageError(
                f"{self.path / 'spec.json'} is damaged: its contents do not have the hash it was written with."
            )
        return spec

    def read_spec_to_build(self, *, trust_model: bool) -> RunSpec:
        """The spec of a run whose model is about to be built.

        Raises:
            InvalidValueError: the model is named by an import path, so that building it runs code that a file has
                named, and ``trust_model`` is not given.
        """
        spec = self.read_spec()
        if spec.has_own_model and not trust_model:
            raise InvalidValueError(
                f"{self.path / 'spec.json'} names a model by its import path, {spec.model!r}, which is code to be run: "
                "pass --trust-model if you trust it."
            )
        return spec

    def write_splits(self, indices: Mapping[str, Tensor]) -> None:
        """Keep which samples went where."""
        write_tensors(self.path / "splits.safetensors", indices)

    def read_splits(self) -> dict[str, Tensor]:
        """Row numbers of each part."""
        return self.read_tensors("splits.safetensors")

    def add_epoch(self, record: Mapping[str, float], tensors: Mapping[str, Tensor]) -> None:
        """Add an epoch to the history, in place of any record of that epoch or later ones."""
        epoch = int(record["epoch"])
        write_tensors(self.epoch_file(epoch), tensors)
        kept = [row for row in self.read_history() if row["epoch"] < epoch]
        self._write_history([*kept, dict(record)])

    def drop_epochs(self, done: int) -> None:
        """Forget what came after so many epochs, and what was being written when a process was killed."""
        for folder in (self.path, self.path / "epochs"):
            remove_leftovers(folder)
        rows = self.read_history()
        if rows and rows[-1]["epoch"] < done:
            raise self.damaged("history.csv", f"it ends with epoch {rows[-1]['epoch']:g} of {done}")
        if len(rows) > done:
            self._write_history([row for row in rows if row["epoch"] <= done])
        for file in sorted((self.path / "epochs").glob("*.safetensors")):
            if int(file.stem) > done:
                file.unlink()

    def read_history(self) -> list[dict[str, float]]:
        """One record per epoch, oldest first."""
        if not (self.path / "history.csv").exists():
            return []
        try:
            text = self.read("history.csv").decode()
            rows = list(csv.DictReader(io.StringIO(text, newline="")))
            if not text.endswith("\n") or any(None in (*row, *row.values()) for row in rows):
                raise ValueError("it is cut short")
            history = [{key: float(value) for key, value in row.items() if value} for row in rows]
            if any(not row["epoch"].is_integer() for row in history):
                raise ValueError("an epoch is not a whole number")
        except (KeyError, ValueError, csv.Error) as error:
            raise self.damaged("history.csv", str(error)) from None
        return history

    def epoch_file(self, epoch: int) -> Path:
        """Where an epoch's tensors are."""
        return self.path / "epochs" / f"{epoch:04d}.safetensors"

    def read_epoch(self, epoch: int) -> dict[str, Tensor]:
        """Validation logits and hyper-parameters (``omega.*``) after an epoch."""
        return self.read_tensors(self.epoch_file(epoch).relative_to(self.path).as_posix())

    def write_predictions(
        self, part: str, predictions: Predictions, domains: Tensor | None = None, domain_names: Sequence[str] = ()
    ) -> None:
        """Keep the logits of a part, with everything needed to score them again, by domain where there are any."""
        tensors = {"logits": predictions.logits, "targets": predictions.targets}
        about: dict[str, Any] = {"name": predictions.name, "class_names": predictions.class_names}
        if domains is not None:
            tensors["domains"], about["domain_names"] = domains, list(domain_names)
        # One key: several would be written in an order that changes from process to process.
        write_tensors(self.path / "predictions" / f"{part}.safetensors", tensors, {"predictions": json.dumps(about)})

    def read_predictions(self, part: str = "test") -> Predictions:
        """The logits of a part."""
        return self._read_part(part)[0]

    def read_domains(self, part: str = "test") -> tuple[Tensor, tuple[str, ...]] | None:
        """The number of each prediction's domain, and the domains' names; None for a run without domains."""
        return self._read_part(part)[1]

    def _read_part(self, part: str) -> tuple[Predictions, tuple[Tensor, tuple[str, ...]] | None]:
        name = f"predictions/{part}.safetensors"
        tensors = self.read_tensors(name)
        try:
            with safetensors.safe_open(self.path / name, framework="pt") as file:
                about = json.loads((file.metadata() or {}).get("predictions", ""))
            predictions = Predictions.from_logits(
                tensors["logits"], tensors["targets"], about["class_names"], about["name"]
            )
            return predictions, (tensors["domains"], tuple(about["domain_names"])) if "domains" in tensors else None
        except (InvalidTypeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise self.damaged(name, str(error)) from None

    def write_shift(self, name: str, study: Mapping[str, Any]) -> None:
        """Keep what was measured under a shift."""
        with self.lock():
            self.replace(f"shift/{name}.json", json_text(dict(study)))

    def read_shifts(self) -> dict[str, dict[str, Any]]:
        """What was measured under shifts, by name."""
        names = sorted(path.stem for path in (self.path / "shift").glob("*.json"))
        return {name: as_figures(self.read_object(f"shift/{name}.json")) for name in names}

    def write_hyperparameters(self, learned: Mapping[str, Any]) -> None:
        """Keep what was learned, as plain numbers."""
        write_json(self.path / "hyperparameters.json", dict(learned))

    def read_hyperparameters(self) -> dict[str, Any]:
        """What was learned; empty for a method that learns nothing."""
        learned: dict[str, Any] = as_figures(self.read_object("hyperparameters.json"))
        return learned

    def write_superclasses(self, superclasses: Sequence[int] | None) -> None:
        """Keep the superclass of every class, where classes have them."""
        if superclasses is not None:
            write_json(self.path / "superclasses.json", list(superclasses))

    def read_superclasses(self) -> tuple[int, ...] | None:
        """The superclass of every class, if classes have them."""
        path = self.path / "superclasses.json"
        if not path.exists():
            return None
        numbers = self.read_value(path.name)
        if not isinstance(numbers, list) or not all(isinstance(number, int) for number in numbers):
            raise self.damaged(path.name, "it must hold a list of integers")
        return tuple(numbers)

    def write_scores(self, scores: Mapping[str, Any]) -> None:
        """Finish the run: with the checksums of all that is in its folder, then the scores."""
        self.seal(json_text(dict(scores)))

    def read_scores(self) -> dict[str, Any]:
        """Figures of the best checkpoint on the test set."""
        scores: dict[str, Any] = as_figures(self.read_object(SCORES))
        parts = [scores.get("test"), scores.get("val", {}), {"train_seconds": scores.get("train_seconds")}]
        if "spec" not in scores or not all(map(are_figures, parts)):
            raise self.damaged(SCORES, "it is not what was written")
        return scores

    def _write_history(self, rows: list[dict[str, float]]) -> None:
        columns = list(dict.fromkeys(key for row in rows for key in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_text(self.path / "history.csv", text.getvalue())


class RunStore:
    """Runs by spec.

    Args:
        root: the folder; on a file system that machines share, if several use it.

    Examples:
        >>> from metacal.lab.training import build_spec
        >>> RunStore("runs").folder(build_spec({"dataset": "digits"})).path.parent.name
        'runs'
    """

    def __init__(self, root: str | Path) -> None:
        if "://" in str(root):
            raise InvalidValueError(
                f"The store must be a folder, got {root!r}; mount what is at a URL, or copy it with a sync tool."
            )
        self.root = Path(root)

    def folder(self, spec: RunSpec) -> RunFolder:
        """Where this run is, or will be."""
        return RunFolder(self.root / f"{spec.title}-{spec.hash[:8]}")

    def state(self, spec: RunSpec) -> str:
        """``missing``, ``begun`` or ``complete``."""
        folder = self.folder(spec)
        if folder.is_complete:
            return "complete"
        return "begun" if folder.exists else "missing"

    def folders(self) -> list[RunFolder]:
        """Every run that was begun, in order of name."""
        return [RunFolder(path.parent) for path in sorted(self.root.glob("*/spec.json"))]

    def of_other_versions(self) -> list[str]:
        """Names of runs that another version of the spec describes: they are never taken for ours."""
        return [folder.path.name for folder in self.folders() if folder.schema not in (SCHEMA, None)]

    def complete(self) -> list[RunFolder]:
        """All complete runs, in order of name."""
        return [folder for folder in self.folders() if folder.is_complete]


def schema_of(stored: Any) -> Any:
    """The version that a stored spec names; None if it names none."""
    return stored.get("schema") if isinstance(stored, dict) else None


def are_figures(value: Any) -> bool:
    """Whether a value is numbers by name."""
    return isinstance(value, dict) and all(isinstance(figure, (int, float)) for figure in value.values())
