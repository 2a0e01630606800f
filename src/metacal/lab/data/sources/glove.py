"""GloVe word vectors from their text format: packed, compressed or plain."""

import gzip
import io
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
import torch
from torch import Tensor

from metacal.lab.data.files import READ_ERRORS, damaged, first_found, missing

DIMENSIONS = 100
NAME = f"glove.6B.{DIMENSIONS}d.txt"
PATTERNS = (
    NAME,
    f"glove.6B/{NAME}",
    f"{NAME}.gz",
    "glove.6B.zip",
    f"glove.6B.{DIMENSIONS}d*.txt",
    f"glove.6B.{DIMENSIONS}d*.txt.gz",
)


def find(folder: Path) -> Path:
    """The file that the vectors are read from; complete ones before any other edition."""
    found = first_found(folder, PATTERNS)
    if found is None:
        raise missing("20newsgroups", folder, f"{NAME}, {NAME}.gz, glove.6B.zip or glove.6B.{DIMENSIONS}d*.txt.gz")
    return found


def read_vectors(path: Path, vocabulary: Mapping[str, int]) -> Tensor:
    """float32 ``(words + 1, 100)``: row i is the vector of word i, or zeros; row 0, the padding, is zeros."""
    vectors = np.zeros((len(vocabulary) + 1, DIMENSIONS), np.float32)
    numbers = {word.encode(): number for word, number in vocabulary.items()}
    try:
        with _opened(path) as lines:
            for count, line in enumerate(lines, start=1):
                word, _, values = line.partition(b" ")
                if word in numbers:
                    row = values.split()
                    if len(row) != DIMENSIONS:
                        raise damaged(path, f"line {count:,} must hold a word and {DIMENSIONS} numbers")
                    vectors[numbers[word]] = row
    except ValueError as error:
        raise error if type(error) is not ValueError else damaged(path, f"line {count:,} must hold numbers") from None
    except (*READ_ERRORS, zipfile.BadZipFile, KeyError) as error:
        raise damaged(path, str(error) or type(error).__name__) from None
    return torch.from_numpy(vectors)


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive, archive.open(NAME) as member:
            yield io.BufferedReader(member, 2**20)  # type: ignore[type-var]
    elif path.suffix == ".gz":
        with gzip.open(path) as file:
            yield file  # type: ignore[misc]
    else:
        with path.open("rb") as file:
            yield file
