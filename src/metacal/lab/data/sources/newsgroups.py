"""20 Newsgroups (the bydate or the 19,997 edition) as tokens with GloVe vectors, prepared as published."""

import gzip
import io
import string
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metacal.errors import InvalidValueError
from metacal.functional.arguments import check_choice, check_inside, check_integer
from metacal.lab.data.dataset import Dataset, Examples
from metacal.lab.data.files import READ_ERRORS, RemoteFile, Shape, Source, damaged, read_members
from metacal.seeding import generator

GROUPS = (
    *("alt.atheism", "comp.graphics", "comp.os.ms-windows.misc", "comp.sys.ibm.pc.hardware", "comp.sys.mac.hardware"),
    *("comp.windows.x", "misc.forsale", "rec.autos", "rec.motorcycles", "rec.sport.baseball", "rec.sport.hockey"),
    *("sci.crypt", "sci.electronics", "sci.med", "sci.space", "soc.religion.christian", "talk.politics.guns"),
    *("talk.politics.mideast", "talk.politics.misc", "talk.religion.misc"),
)
VOCABULARY, LENGTH, DIMENSIONS = 20_000, 1000, 100
GLOVE = f"glove.6B.{DIMENSIONS}d"
DOCUMENTS = (  # prefer the 19,997 edition to bydate, and folders to archives
    *("20_newsgroup", "20_newsgroups", "20news-bydate"),
    *("news20.tar.gz", "20_newsgroup*.tar.gz", "20news-bydate.tar.gz", "20news-bydate*.tar.gz"),
)
VECTORS = (
    *(f"{GLOVE}.txt", f"glove.6B/{GLOVE}.txt", f"{GLOVE}.txt.gz", "glove.6B.zip"),
    *(f"{GLOVE}*.txt", f"{GLOVE}*.txt.gz"),
)
SPACES = str.maketrans(dict.fromkeys(string.punctuation.replace("'", ""), " "))
"""All punctuation except the apostrophe, as in the tokeniser behind the published figures."""
SPLIT = 4
"""Stream number of this module's random numbers."""


def load(folder: Path, *, split: str = "random", test_share: float = 0.2, seed: int = 0) -> Dataset:
    """Messages of 20 newsgroups as tokens ``(n, 1000)``.

    Headers are removed up to the first blank line. Words are lower-case, separated by spaces and punctuation. Only the
    20,000 most frequent words of all messages are kept (as published, counting test messages), and of each message the
    last 1,000 of these.

    ``split="random"`` (as published) pools all messages and draws a test set with a seed that is not a run's seed;
    ``bydate`` keeps the test set of that edition.
    """
    check_choice("split", split, ("random", "bydate"))
    check_inside("test_share", test_share)
    check_integer("seed", seed, 0)
    documents, vectors = NEWSGROUPS.find(folder)
    names, texts = read_documents(documents)
    words = [cut_header(text).lower().translate(SPACES).split() for text in texts]
    vocabulary = most_frequent(words, VOCABULARY)
    everything = Examples(
        torch.from_numpy(to_tokens(words, vocabulary, LENGTH)),
        torch.tensor([GROUPS.index(name.parent.name) for name in names]),
    )
    if split == "random":
        order = torch.randperm(len(names), generator=generator(SPLIT, seed))
        count = int(test_share * len(names))
        test, train = order[:count].sort().values, order[count:].sort().values
    else:
        is_test = torch.tensor(["20news-bydate-test" in name.parts for name in names])
        test, train = is_test.nonzero()[:, 0], (~is_test).nonzero()[:, 0]
    if not len(test) or not len(train):
        raise InvalidValueError(
            f"`split` must leave training and test messages, got {len(train)} and {len(test)} of {len(names)} messages "
            f"in {documents} with split={split!r}, test_share={test_share}."
        )
    about: dict[str, Any] = {"embeddings": read_vectors(vectors, vocabulary), "files": (str(documents), str(vectors))}
    return Dataset(NEWSGROUPS.name, "text", everything.select(train), everything.select(test), GROUPS, **about)


def read_documents(path: Path) -> tuple[list[PurePosixPath], list[str]]:
    """Read names and texts of all messages, sorted by group and number."""
    members = read_members(path, lambda name: name.parent.name in GROUPS and name.name.isdigit())
    found = [(name, content.decode("latin-1")) for name, content in members]
    if not found:
        raise damaged(path, "it has no folder that is named after a newsgroup and holds messages")
    found.sort(key=lambda pair: (pair[0].parent.name, int(pair[0].name), str(pair[0])))
    return [name for name, _ in found], [text for _, text in found]


def cut_header(message: str) -> str:
    """Remove the header, which ends at the first blank line; a message without a blank line has no header."""
    head, blank, body = message.replace("\r\n", "\n").partition("\n\n")
    return body if blank else head


def most_frequent(documents: Sequence[Sequence[str]], size: int) -> dict[str, int]:
    """Number the most frequent words 1, 2, ...; ties are in alphabetical order.

    Examples:
        >>> most_frequent([["b", "a", "a"], ["c", "b"]], 2)
        {'a': 1, 'b': 2}
    """
    counts = Counter(word for words in documents for word in words)
    ranked = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:size]
    return {word: number for number, (word, _) in enumerate(ranked, start=1)}


def to_tokens(documents: Sequence[Sequence[str]], vocabulary: dict[str, int], length: int) -> NDArray[np.int32]:
    """Return rows ``(n, length)``: the last ``length`` words that are in the vocabulary, left-padded with 0.

    Examples:
        >>> to_tokens([["a", "x", "b"], ["b", "a", "a", "b"]], {"a": 1, "b": 2}, 3).tolist()
        [[0, 1, 2], [1, 1, 2]]
    """
    tokens = np.zeros((len(documents), length), np.int32)
    for row, words in zip(tokens, documents, strict=True):
        known = [vocabulary[word] for word in words if word in vocabulary][-length:]
        row[length - len(known) :] = known
    return tokens


def read_vectors(path: Path, vocabulary: Mapping[str, int]) -> Tensor:
    """Read GloVe vectors, float32 ``(words + 1, 100)``: row i is word i; the padding and unknown words are zeros."""
    vectors = np.zeros((len(vocabulary) + 1, DIMENSIONS), np.float32)
    numbers = {word.encode(): number for word, number in vocabulary.items()}
    try:
        with _open_vectors(path) as lines:
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
        raise damaged(path, error) from None
    return torch.from_numpy(vectors)


@contextmanager
def _open_vectors(path: Path) -> Iterator[IO[bytes]]:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive, archive.open(f"{GLOVE}.txt") as member:
            yield io.BufferedReader(member, 2**20)  # type: ignore[type-var]
    else:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            yield file  # type: ignore[misc]


NEWSGROUPS = Source(
    "20newsgroups",
    "18,846 or 19,997 messages of 20 newsgroups, with GloVe vectors",
    load,
    (DOCUMENTS, VECTORS),
    f"{GLOVE}.txt, {GLOVE}.txt.gz, glove.6B.zip or {GLOVE}*.txt.gz, with 20_newsgroup, 20news-bydate, "
    "news20.tar.gz or 20news-bydate*.tar.gz",
    (  # The bydate archive is the one that scikit-learn fetches; GloVe's holds four sizes of vectors.
        RemoteFile(
            "20news-bydate.tar.gz",
            "https://ndownloader.figshare.com/files/5975967",
            "sha256:8f1b2514ca22a5ade8fbb9cfa5727df95fa587f4c87b786e15c759fa66d95610",
            14,
        ),
        RemoteFile(
            "glove.6B.zip",
            "https://nlp.stanford.edu/data/glove.6B.zip",
            "sha256:617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb",
            862,
        ),
    ),
    Shape(16_000, (250,), 20, "text"),  # of the 1,000 tokens about 216 are words, and the network skips padding
    test_set='20 % of all messages, drawn with seed 0; `split="bydate"`: the test set of that edition',
)
