"""The ``metacal`` command: gathers the verbs and turns errors into one line and an exit status."""

import sys

import typer
from rich.console import Console
from rich.markup import escape

import metacal
from metacal.cli import calibrate, data, demo, evaluate, report, train
from metacal.errors import MetacalError

app = typer.Typer(
    name="metacal",
    help="Classifiers whose confidence can be trusted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command("demo")(demo.demo)
app.command("train")(train.train)
app.command("report")(report.report)
app.add_typer(data.app, name="data")
app.command("evaluate")(evaluate.evaluate)
app.command("calibrate")(calibrate.calibrate)


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


def main() -> None:
    """Run the command line. Exit status: 0 good, 1 a check asked for failed, 2 bad input, 130 interrupted."""
    try:
        app()
    except MetacalError as error:
        Console(stderr=True).print(f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
