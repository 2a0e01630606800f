"""Runs as data: what is run (`RunSpec`, `Method`), and the folders that hold what came out."""

from metacal.runs.domains import Domains
from metacal.runs.method import METHODS, Method, Term
from metacal.runs.recipes import are_of_hardware, build_spec, read_assignments, read_hardware
from metacal.runs.spec import Hardware, RunSpec
from metacal.runs.store import RunFolder

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
