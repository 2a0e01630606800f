"""The command line: one file per verb. The only place that prints, draws progress and exits."""

from metacal.cli.app import main

__all__ = ["main"]
