"""`RunStore`: many runs under one folder, each where its spec says; tables that share a run find it there."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from metacal.lab.training.run_folder import RunFolder
from metacal.lab.training.spec import SCHEMA, RunSpec


class RunStore:
    """Runs by spec.

    Args:
        root: the folder.

    Examples:
        >>> from metacal.lab.training import build_spec
        >>> RunStore("runs").folder(build_spec({"dataset": "digits"})).path.parent.name
        'runs'
    """

    push_seconds = 0.0
    """From one copy of a run in progress to the next."""

    def __init__(self, root: str | Path) -> None:
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

    def pull(self, spec: RunSpec) -> None:
        """Have a run in its folder; it is there already, unless the store is elsewhere."""

    def push(self, spec: RunSpec) -> None:
        """Have a run in the store; it is there already, unless the store is elsewhere."""

    @contextmanager
    def lease(self, spec: RunSpec) -> Iterator[None]:
        """Hold a run where it is kept; the lock of its folder does that, unless the store is elsewhere."""
        yield

    @contextmanager
    def outlines(self) -> Iterator[list[RunFolder]]:
        """Every run that was begun, in order of name; of a store that is elsewhere, specs and scores alone."""
        yield [RunFolder(path.parent) for path in sorted(self.root.glob("*/spec.json"))]

    def of_other_versions(self) -> list[str]:
        """Names of runs that another version of the spec describes: they are never taken for ours."""
        with self.outlines() as folders:
            return [folder.path.name for folder in folders if folder.schema not in (SCHEMA, None)]

    def complete(self) -> Iterator[RunFolder]:
        """Outlines of all complete runs, in order of name, each for as long as it takes to go to the next."""
        with self.outlines() as folders:
            yield from (folder for folder in folders if folder.is_complete)
