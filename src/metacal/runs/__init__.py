"""Runs as data: what is run (`RunSpec`, `Method`), and the folders that hold what came out."""

from metacal.runs.method import METHODS, Method, Term
from metacal.runs.recipes import build_spec, read_assignments
from metacal.runs.spec import Hardware, RunSpec
from metacal.runs.store import RunFolder

__all__ = ["METHODS", "Hardware", "Method", "RunFolder", "RunSpec", "Term", "build_spec", "read_assignments"]
