"""`DrawStore`: what was fitted on draws of simulated data, one small file each, beside the runs."""

from pathlib import Path
from typing import Any

from metacal.errors import StorageError
from metacal.files import as_figures, read_json, write_json
from metacal.lab.paper.exhibits import Draw

VERSION = 2
"""Of how models are fitted on a draw; part of every file's name."""


class DrawStore:
    """Records of draws by what was drawn.

    Args:
        root: the folder of all runs.

    Examples:
        >>> DrawStore("runs").path(Draw(20, 0, 100_000)).as_posix()
        'runs/simulated/v2-n20-seed0-test100000.json'
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root) / "simulated"

    def path(self, draw: Draw) -> Path:
        """Where a draw's record is, or will be."""
        return self.root / f"v{VERSION}-n{draw.size}-seed{draw.seed}-test{draw.test_points}.json"

    def has(self, draw: Draw) -> bool:
        """Whether it is there."""
        return self.path(draw).exists()

    def read(self, draw: Draw) -> dict[str, Any]:
        """What was fitted on a draw: see `metacal.lab.paper.simulated_study.fit_draw`."""
        return self.read_file(self.path(draw))

    def read_file(self, path: Path) -> dict[str, Any]:
        """A record by its file."""
        record: dict[str, Any] = as_figures(read_json(path))
        if not isinstance(record, dict) or not {"size", "methods", "points"} <= record.keys():
            raise StorageError(f"{path} is damaged: not what was written. Without it the draw is made again.")
        return record

    def write(self, draw: Draw, record: dict[str, Any]) -> None:
        """Keep it."""
        write_json(self.path(draw), record)
