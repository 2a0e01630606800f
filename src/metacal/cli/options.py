"""Options shared by several commands: the columns of a prediction file, and paths to write."""

from pathlib import Path
from typing import Annotated

import typer

from metacal.errors import InvalidValueError

Probs = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMNS",
        help="Columns (or NPZ keys) of the probabilities: a name, several with commas, or a pattern such as 'p_*'. "
        "Several arrays (n, K) of an NPZ are models to compare.",
    ),
]
Logits = Annotated[
    str | None,
    typer.Option(metavar="COLUMNS", help="The same for logits (raw scores before the softmax)."),
]
Target = Annotated[str | None, typer.Option(metavar="COLUMN", help="Column (or NPZ key, or NPY file) of the target.")]
ClassNames = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="The classes in the order of the scores: names with commas, or a text file with one per line.",
    ),
]
Percent = Annotated[bool, typer.Option("--percent", help="Probabilities or confidences are percentages.")]
Format = Annotated[
    str,
    typer.Option("--format", help="Format of JSON: auto (by structure), table, lm-eval, inspect, pipeline or samples."),
]
Multilabel = Annotated[
    bool, typer.Option("--multilabel", help="Each row has several labels, each with a probability and a target 0 or 1.")
]
Ignore = Annotated[
    int | None, typer.Option(metavar="LABEL", help="Leave out pixels or tokens with this target, such as 255 or -100.")
]
DropUnlabelled = Annotated[bool, typer.Option("--drop-unlabelled", help="Leave out rows without a target.")]
JSONFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Also write all numbers as JSON.")]
Sample = Annotated[
    int, typer.Option(min=100, help="Keep at most this many rows, chosen at random, for figures that need rows.")
]
Resamples = Annotated[int, typer.Option(min=10, help="Resamples for the intervals of calibration errors.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of resamples and row samples.")]


def read_class_names(text: str | None) -> list[str] | None:
    """Read names separated by commas, or the lines of a file; None stays None."""
    if text is None:
        return None
    if Path(text).is_file():
        from metacal.evaluation.tables import readable

        with readable(Path(text)):
            lines = Path(text).read_text(encoding="utf-8-sig").splitlines()
        names = [line.strip() for line in lines if line.strip()]
    else:
        names = [name.strip() for name in text.split(",")]
    if len(set(names)) != len(names) or not all(names):
        raise InvalidValueError(f"`--class-names` must hold different names, or name a file that does, got {text!r}.")
    return names


def check_places(**places: Path | None) -> None:
    """Raise unless every file can be written; paths by option name, None if not given."""
    for option, path in places.items():
        if path is None:
            continue
        if path.is_dir():
            raise InvalidValueError(f"`--{option}` must name a file that can be written, got the folder {path}.")
        if not path.parent.is_dir():
            raise InvalidValueError(f"`--{option}` must name a file in a folder that exists, got {path}.")
