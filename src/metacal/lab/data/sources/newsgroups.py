"""20 Newsgroups (the bydate or the 19,997 edition) as tokens with GloVe vectors, prepared as published."""

import math
from pathlib import Path, PurePosixPath

import torch

from metacal.errors import InvalidValueError
from metacal.functional.arguments import check_choice, check_inside, check_integer
from metacal.lab.data.dataset import Dataset, Examples
from metacal.lab.data.files import damaged, first_found, missing, read_members
from metacal.lab.data.sources import glove
from metacal.lab.data.text import cut_header, most_frequent, split_words, to_tokens
from metacal.seeding import generator

GROUPS = (
    "alt.atheism",
    "comp.graphics",
    "comp.os.ms-windows.misc",
    "comp.sys.ibm.pc.hardware",
    "comp.sys.mac.hardware",
    "comp.windows.x",
    "misc.forsale",
    "rec.autos",
    "rec.motorcycles",
    "rec.sport.baseball",
    "rec.sport.hockey",
    "sci.crypt",
    "sci.electronics",
    "sci.med",
    "sci.space",
    "soc.religion.christian",
    "talk.politics.guns",
    "talk.politics.mideast",
    "talk.politics.misc",
    "talk.religion.misc",
)
FOLDERS = ("20_newsgroup", "20_newsgroups", "20news-bydate")
ARCHIVES = ("news20.tar.gz", "20_newsgroup*.tar.gz", "20news-bydate.tar.gz", "20news-bydate*.tar.gz")
VOCABULARY = 20_000
LENGTH = 1000
DEPTH = 3
"""Parts of a message's path in a folder: part/group/number, or group/number."""
SPLIT = 4
"""Sets the random numbers of this module apart from those of others with the same seed."""


def find(folder: Path) -> tuple[Path, ...]:
    """The documents (the 19,997 edition before bydate, folders before archives) and the word vectors."""
    extracted = (folder / "20news-bydate-train").is_dir() and (folder / "20news-bydate-test").is_dir()
    documents = first_found(folder, FOLDERS) or (folder if extracted else first_found(folder, ARCHIVES))
    if documents is None:
        raise missing(
            "20newsgroups",
            folder,
            "20_newsgroup, 20news-bydate, 20news-bydate-train with 20news-bydate-test, news20.tar.gz or "
            "20news-bydate*.tar.gz",
        )
    return documents, glove.find(folder)


def load(folder: Path, *, split: str = "random", test_share: float = 0.2, seed: int = 0) -> Dataset:
    """Messages of 20 newsgroups as tokens ``(n, 1000)``.

    Headers are cut at the first blank line; words are lower-case, separated by space and punctuation; words outside the
    20,000 most frequent of all messages are dropped (as published: test messages have a say in which words are known,
    in nothing that is learned); of the rest the last 1,000 are kept.

    Args:
        folder: the data folder.
        split: ``random`` (as published) pools all messages and draws a test set; ``bydate`` keeps that edition's own.
        test_share: share of the messages in a random test set.
        seed: of the random test set; not the seed of a run.
    """
    check_choice("split", split, ("random", "bydate"))
    check_inside("test_share", test_share)
    check_integer("seed", seed, 0)
    documents, vectors = find(folder)
    names, texts = read_documents(documents)
    words = [split_words(cut_header(text)) for text in texts]
    vocabulary = most_frequent(words, VOCABULARY)
    tokens = torch.from_numpy(to_tokens(words, vocabulary, LENGTH))
    targets = torch.tensor([GROUPS.index(name.parent.name) for name in names])
    if split == "random":
        order = torch.randperm(len(names), generator=generator(SPLIT, seed))
        count = int(test_share * len(names))
        test_rows, train_rows = order[:count].sort().values, order[count:].sort().values
    else:
        is_test = torch.tensor(["20news-bydate-test" in name.parts for name in names])
        test_rows, train_rows = is_test.nonzero()[:, 0], (~is_test).nonzero()[:, 0]
    if not len(test_rows) or not len(train_rows):
        raise InvalidValueError(
            f"`split` must leave training and test messages, got {len(train_rows)} and {len(test_rows)} of "
            f"{len(names)} messages in {documents} with split={split!r}, test_share={test_share}."
        )
    everything = Examples(tokens, targets)
    return Dataset(
        "20newsgroups",
        "text",
        everything.select(train_rows),
        everything.select(test_rows),
        GROUPS,
        embeddings=glove.read_vectors(vectors, vocabulary),
        files=(str(documents), str(vectors)),
    )


def read_documents(path: Path) -> tuple[list[PurePosixPath], list[str]]:
    """Names and texts of all messages by group and number, in whatever order a folder or archive has them."""
    groups = set(GROUPS)
    deepest = DEPTH if path.is_dir() else math.inf  # a data folder may hold other copies further down

    def wanted(name: PurePosixPath) -> bool:
        return name.parent.name in groups and name.name.isdigit() and len(name.parts) <= deepest

    found = [(name, content.decode("latin-1")) for name, content in read_members(path, wanted)]
    if not found:
        raise damaged(path, "no message was found in a folder with the name of a newsgroup")
    found.sort(key=lambda pair: (pair[0].parent.name, int(pair[0].name), str(pair[0])))
    return [name for name, _ in found], [text for _, text in found]
