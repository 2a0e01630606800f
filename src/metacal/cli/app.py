"""The ``metacal`` command: collects the subcommands and turns errors into one line and an exit status."""

import inspect
import re
import sys
import warnings
from typing import Any, NoReturn

import typer

import metacal
from metacal.cli import calibrate, demo, evaluate, export, report
from metacal.errors import MetacalError, MetacalWarning, missing_extra, missing_package
from metacal.lab.cli import data, read_run_folder, run, shift, show, train, validate

USAGE_ERROR: Any = typer.BadParameter.__mro__[1]
"""Click's own class, whose module depends on the version of typer."""

app = typer.Typer(
    name="metacal",
    help="Classifiers whose confidence can be trusted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def join_lines(text: str | None) -> str:
    """Join the lines of each docstring paragraph so that it wraps to the terminal; a line break after a colon stays."""
    return re.sub(r"(?<![:\n])\n(?!\n)", " ", inspect.cleandoc(text or ""))


LIBRARY = (evaluate.evaluate, report.report, calibrate.calibrate, export.export, demo.demo)
LAB = (train.train, shift.shift, show.ls, show.show, run.run, validate.validate)


def add_lab() -> None:
    """Add the commands of the lab and its run reader; without the extra, each command says how to install it."""
    lacking = missing_package("lab")
    if lacking is None:
        for verb in LAB:
            app.command(verb.__name__, help=join_lines(verb.__doc__), rich_help_panel="Lab")(verb)
        app.add_typer(data.app, name="data", rich_help_panel="Lab")
        report.FOLDER_READERS.append(read_run_folder)
        return

    def refuse() -> None:
        raise missing_extra("lab", lacking)

    anything = {"allow_extra_args": True, "ignore_unknown_options": True}
    for name in (*(verb.__name__ for verb in LAB), "data"):
        app.command(name, hidden=True, add_help_option=False, context_settings=anything)(refuse)


for verb in LIBRARY:
    app.command(verb.__name__, help=join_lines(verb.__doc__))(verb)
add_lab()


def show_version(wanted: bool) -> None:
    """Print the version and exit, if requested."""
    if wanted:
        typer.echo(f"metacal {metacal.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(False, "--version", callback=show_version, is_eager=True, help="Print the version."),
) -> None:
    """Classifiers whose confidence can be trusted."""


def run_app() -> None:
    """Run the command line; our warnings and errors print as one line; errors exit with 2, interrupts with 130."""
    show_others = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any, **where: Any) -> None:
        if issubclass(category, MetacalWarning):
            from metacal.cli.terminal import warn

            warn(str(message))
        else:
            show_others(message, category, *place, **where)

    try:
        with warnings.catch_warnings():
            warnings.showwarning = show
            sys.exit(app(standalone_mode=False) or 0)
    except MetacalError as error:
        fail(str(error))
    except USAGE_ERROR as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error.ctx.get_help())
            sys.exit(2)
        problem, command = error.format_message(), error.ctx.command_path if error.ctx else "metacal"
        fail(f"{problem}{'' if problem.endswith(('.', '?')) else '.'} See `{command} --help`.")
    except typer.Abort:
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def fail(problem: str) -> NoReturn:
    """Print a problem in one line and exit with 2."""
    from rich.markup import escape

    from metacal.cli.terminal import Console

    line = " ".join(problem.splitlines())  # a file's name may have several
    Console(stderr=True).print(f"[bold red]error:[/] {escape(line)}", highlight=False, soft_wrap=True)
    sys.exit(2)
