"""From documents to tokens: words, a vocabulary, rows of one length."""

import string
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

SPACES = str.maketrans(dict.fromkeys(string.punctuation.replace("'", ""), " "))
"""All punctuation but the apostrophe, as in the tokeniser that the published figures were made with."""


def cut_header(message: str) -> str:
    r"""A message without its header, which ends at the first blank line; one without a blank line is all body.

    Examples:
        >>> cut_header("From: me\nSubject: x\n\nHello.\n\nBye.")
        'Hello.\n\nBye.'
    """
    head, blank, body = message.replace("\r\n", "\n").partition("\n\n")
    return body if blank else head


def split_words(text: str) -> list[str]:
    """Lower-case words; punctuation other than an apostrophe separates them.

    Examples:
        >>> split_words("Don't PANIC (yet).")
        ["don't", 'panic', 'yet']
    """
    return text.lower().translate(SPACES).split()


def most_frequent(documents: Sequence[Sequence[str]], size: int) -> dict[str, int]:
    """Numbers 1, 2, ... of the most frequent words; equally frequent ones by the alphabet, so that order has no part.

    Examples:
        >>> most_frequent([["b", "a", "a"], ["c", "b"]], 2)
        {'a': 1, 'b': 2}
    """
    counts: Counter[str] = Counter()
    for words in documents:
        counts.update(words)
    ranked = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:size]
    return {word: number for number, (word, _) in enumerate(ranked, start=1)}


def to_tokens(documents: Sequence[Sequence[str]], vocabulary: dict[str, int], length: int) -> NDArray[np.int32]:
    """Rows ``(n, length)``: the last ``length`` words that are in the vocabulary, padded with 0 on the left.

    Examples:
        >>> to_tokens([["a", "x", "b"], ["b", "a", "a", "b"]], {"a": 1, "b": 2}, 3).tolist()
        [[0, 1, 2], [1, 1, 2]]
    """
    tokens = np.zeros((len(documents), length), np.int32)
    for row, words in zip(tokens, documents, strict=True):
        known = [vocabulary[word] for word in words if word in vocabulary][-length:]
        if known:
            row[-len(known) :] = known
    return tokens
