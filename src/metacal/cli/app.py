"""The ``metacal`` command: gathers the verbs and turns errors into one line and an exit status."""

import inspect
import re
import sys
import warnings
from typing import Any

import typer

import metacal
from metacal.cli import calibrate, evaluate, report
from metacal.errors import MetacalError, MetacalWarning
from metacal.lab.cli import data, demo, ls, run, shift, show, train, validate

app = typer.Typer(
    name="metacal",
    help="Classifiers whose confidence can be trusted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def flowing(text: str | None) -> str:
    r"""A docstring whose paragraphs flow with the terminal's width; only what follows a colon starts a line.

    Examples:
        >>> flowing("One paragraph,\nof two lines.\n\nExamples:\nmetacal demo")
        'One paragraph, of two lines.\n\nExamples:\nmetacal demo'
    """
    return re.sub(r"(?<![:\n])\n(?!\n)", " ", inspect.cleandoc(text or ""))


VERBS = (
    demo.demo,
    train.train,
    shift.shift,
    report.report,
    ls.ls,
    show.show,
    run.run,
    validate.validate,
    evaluate.evaluate,
    calibrate.calibrate,
)
for verb in VERBS:
    app.command(verb.__name__, help=flowing(verb.__doc__))(verb)
app.add_typer(data.app, name="data")


def show_version(wanted: bool) -> None:
    """Print the version and leave, if asked to."""
    if wanted:
        typer.echo(f"metacal {metacal.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(False, "--version", callback=show_version, is_eager=True, help="Print the version."),
) -> None:
    """Classifiers whose confidence can be trusted."""


def run_app() -> None:
    """Run the verb that was typed; warnings and errors of ours are one line; errors exit with 2, interrupts 130."""
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
            app()
    except MetacalError as error:
        from rich.markup import escape

        from metacal.cli.terminal import Console

        line = " ".join(str(error).splitlines())  # a file's name may have several
        Console(stderr=True).print(f"[bold red]error:[/] {escape(line)}", highlight=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
