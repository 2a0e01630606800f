"""`read_predictions`: a whole prediction file in memory; `sample_predictions`: as much of it as is wanted there."""

from collections.abc import Sequence
from pathlib import Path

import torch

from metacal.evaluation.batches import PredictionFile
from metacal.evaluation.predictions import Predictions
from metacal.evaluation.reservoir import SAMPLE, Reservoir


def read_predictions(
    path: str | Path,
    *,
    probs: str | None = None,
    logits: str | None = None,
    target: str | None = None,
    class_names: Sequence[str] | None = None,
) -> Predictions:
    r"""Read a file of predictions: CSV, Parquet, Arrow, Feather, NPZ, NPY or JSON lines.

    Args:
        path: the file.
        probs: columns or key of the probabilities: a name, several with commas, or a pattern (``"p_*"``).
        logits: the same for logits. With neither, columns are found by their names: ``prob_*``, ``p_*``,
            ``logit_*``, or one column ``probs`` or ``logits`` that holds lists; keys ``probs``, ``predictions``
            or ``logits`` of an NPZ.
        target: column or key of the target (or the file, of an NPY); by default ``target``, ``label``, ``y``,
            ``ground_truth``, ...
        class_names: the classes in the order of the scores, where the columns' names do not say.

    Raises:
        InvalidFileError: the file cannot be read as predictions; the message names the row or column and the fix.

    Examples:
        >>> import pathlib, tempfile
        >>> file = pathlib.Path(tempfile.mkdtemp(), "said.csv")
        >>> _ = file.write_text("p_cat,p_dog,label\n0.9,0.1,cat\n0.3,0.7,cat\n")
        >>> said = read_predictions(file)
        >>> said.class_names, said.targets.tolist(), said.name
        (('cat', 'dog'), [0, 0], 'said')
    """
    file = PredictionFile(path, probs=probs, logits=logits, target=target, class_names=class_names)
    return gather(file)


def sample_predictions(file: PredictionFile, sample: int = SAMPLE, seed: int = 0) -> Predictions:
    """At most ``sample`` rows of an opened file with targets, drawn at random; all of them if there are no more."""
    reservoir = Reservoir.for_classes(file.num_classes, sample, seed)
    for batch in file.batches():
        assert batch.targets is not None
        reservoir.add(batch.scores, batch.targets)
    total, row_numbers = (None, None) if reservoir.is_complete else (reservoir.seen, reservoir.row_numbers)
    scores, targets = reservoir.rows()
    return Predictions(scores, file.is_logits, targets, file.class_names, file.name, total, row_numbers)


def gather(file: PredictionFile) -> Predictions:
    """All rows of an opened file with targets."""
    batches = list(file.batches())
    scores = torch.cat([batch.scores for batch in batches]).contiguous()
    targets = torch.cat([batch.targets for batch in batches if batch.targets is not None])
    make = Predictions.from_logits if file.is_logits else Predictions.from_probs
    return make(scores, targets, file.class_names, file.name)
