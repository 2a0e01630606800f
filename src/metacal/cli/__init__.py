"""The command line: one file per command. The only place that prints, draws progress and exits."""

import sys

from metacal.errors import MissingExtraError, needs


def main() -> None:
    """Run the command line. Exit status: 0 success, 1 a requested check failed, 2 bad input, 130 interrupted."""
    try:
        with needs("cli"):
            from metacal.cli.app import run_app
    except MissingExtraError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    run_app()


__all__ = ["main"]
