"""Runs as data: what is run (`RunSpec`, `Method`), and the folders that hold what came out."""

from typing import TYPE_CHECKING, Any

from metacal.errors import needs

with needs("lab"):
    from metacal.lab.runs.domains import Domains
    from metacal.lab.runs.method import METHODS, Method, Term
    from metacal.lab.runs.recipes import are_of_hardware, build_spec, read_assignments, read_hardware
    from metacal.lab.runs.spec import Hardware, RunSpec

if TYPE_CHECKING:
    from metacal.lab.runs.run_folder import RunFolder

__all__ = [
    "METHODS",
    "Domains",
    "Hardware",
    "Method",
    "RunFolder",
    "RunSpec",
    "Term",
    "are_of_hardware",
    "build_spec",
    "read_assignments",
    "read_hardware",
]


def __getattr__(name: str) -> Any:
    """Import `RunFolder` on first use: what a run is can be said without torch."""
    if name == "RunFolder":
        with needs("lab"):
            from metacal.lab.runs.run_folder import RunFolder
        return RunFolder
    raise AttributeError(f"module 'metacal.lab.runs' has no attribute {name!r}")
