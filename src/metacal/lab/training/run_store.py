"""`RunStore`: many runs under one folder, each where its spec says; tables that share a run find it there."""

from pathlib import Path

from metacal.errors import InvalidValueError
from metacal.lab.training.run_folder import RunFolder
from metacal.lab.training.spec import SCHEMA, RunSpec


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
