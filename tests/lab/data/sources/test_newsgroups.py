"""20 Newsgroups and GloVe on tiny files in the layouts of both editions, and on the real documents."""

import gzip

import numpy as np
import pytest
import torch
from tests.lab.data import files

from metacal.errors import DamagedFileError, InvalidValueError, MissingDataError
from metacal.lab.data import load_dataset
from metacal.lab.data.sources import newsgroups
from metacal.lab.data.sources.newsgroups import cut_header, most_frequent, to_tokens


@pytest.fixture
def folder(tmp_path):
    files.write_tar(tmp_path / "20news-bydate.tar.gz", files.newsgroup_files())
    files.write_glove(tmp_path)
    return tmp_path


def same(one, other):
    return all(
        torch.equal(getattr(getattr(one, part), name), getattr(getattr(other, part), name))
        for part in ("train", "test")
        for name in ("inputs", "targets")
    )


def test_tokens_and_vectors(folder):
    data = load_dataset("20newsgroups", folder=folder, split="bydate")
    assert data.kind == "text"
    assert data.input_shape == (1000,)
    assert data.class_names == newsgroups.GROUPS
    assert (len(data.train), len(data.test)) == (20, 20)
    assert data.train.targets.tolist() == list(range(20))
    # the word3, it isn't café-like: alpha beta gamma gamma gamma / end -> 11 words, header gone
    words = [int(token) for token in data.train.inputs[3] if token]
    assert len(words) == 12
    assert data.train.inputs[3, :988].eq(0).all()
    assert len(set(words)) == 10
    assert torch.count_nonzero(data.embeddings[0]) == 0
    the = data.train.inputs[:, 1000 - 9][0]
    assert torch.allclose(data.embeddings[the], torch.arange(100.0))
    assert int(data.embeddings.abs().sum(1).gt(0).sum()) == 3  # "unused" is not in the documents
    assert data.files == (str(folder / "20news-bydate.tar.gz"), str(folder / "glove.6B.100d.subset.txt.gz"))


def test_random_split_pools_and_is_seeded(folder):
    data, again = (load_dataset("20newsgroups", folder=folder) for _ in range(2))
    assert (len(data.train), len(data.test)) == (32, 8)
    assert same(data, again)
    assert not same(data, load_dataset("20newsgroups", folder=folder, seed=1))
    assert sorted(torch.cat([data.train.targets, data.test.targets]).tolist()) == sorted([*range(20)] * 2)


@pytest.mark.parametrize("vectors", ["plain", "zip"])
def test_folders_give_what_the_archive_gives(folder, tmp_path_factory, vectors):
    other = tmp_path_factory.mktemp("extracted")
    files.write_folder(other / "20news-bydate", files.newsgroup_files())
    files.write_glove(other, vectors)
    one, two = (load_dataset("20newsgroups", folder=place) for place in (folder, other))
    assert same(one, two)
    assert torch.equal(one.embeddings, two.embeddings)


@pytest.mark.parametrize("packed", [True, False])
def test_the_older_edition(tmp_path, packed):
    contents = files.newsgroup_files(("20_newsgroup",)) | {"20_newsgroup/README": b"no message"}
    if packed:
        files.write_tar(tmp_path / "news20.tar.gz", contents)
    else:
        files.write_folder(tmp_path, contents)
    files.write_glove(tmp_path)
    data = load_dataset("20newsgroups", folder=tmp_path)
    assert (len(data.train), len(data.test)) == (16, 4)
    with pytest.raises(InvalidValueError, match="got 20 and 0 of 20 messages"):
        load_dataset("20newsgroups", folder=tmp_path, split="bydate")


def test_missing_vectors_and_damaged_files(folder):
    glove = folder / "glove.6B.100d.subset.txt.gz"
    content = gzip.decompress(glove.read_bytes())
    for broken, message in (
        (gzip.compress(content)[:-20], "is damaged: Compressed file ended"),
        (gzip.compress(content.replace(b"alpha 0.5000", b"alpha")), "line 2 must hold a word and 100 numbers"),
        (gzip.compress(content.replace(b"alpha 0.5000", b"alpha x")), "line 2 must hold numbers"),
        (b"rubbish", "Not a gzipped file"),
    ):
        glove.write_bytes(broken)
        with pytest.raises(DamagedFileError, match=message):
            load_dataset("20newsgroups", folder=folder)
    glove.unlink()
    with pytest.raises(MissingDataError, match=r"glove.6B.100d.txt, .*metacal data fetch 20newsgroups"):
        load_dataset("20newsgroups", folder=folder)
    (folder / "glove.6B.zip").write_bytes(b"rubbish")
    with pytest.raises(DamagedFileError, match=r"glove.6B.zip is damaged: .*expected sha256:617afb2f"):
        load_dataset("20newsgroups", folder=folder)


def test_an_archive_without_messages(folder):
    files.write_tar(folder / "20news-bydate.tar.gz", {"20news-bydate-train/elsewhere/1": b"x"})
    with pytest.raises(DamagedFileError, match="no folder that is named after a newsgroup"):
        load_dataset("20newsgroups", folder=folder)


def test_messages_without_a_blank_line_are_all_body():
    assert cut_header("no header here") == "no header here"
    assert cut_header("A: b\r\n\r\nbody") == "body"


def test_words_are_dropped_before_the_last_are_kept():
    assert to_tokens([["a", "x", "a", "x", "x"]], {"a": 1}, 3).tolist() == [[0, 1, 1]]


def test_equally_frequent_words_do_not_depend_on_the_order_of_documents():
    documents = [["b", "c"], ["a", "d"]]
    assert most_frequent(documents, 3) == most_frequent(documents[::-1], 3) == {"a": 1, "b": 2, "c": 3}


@pytest.mark.data
def test_the_real_documents(data_folder):
    data = load_dataset("20newsgroups", folder=data_folder)
    assert (len(data.train), len(data.test)) == (15_077, 3_769)
    assert data.embeddings.shape == (20_001, 100)
    lengths = np.concatenate([(part.inputs != 0).sum(1).numpy() for part in (data.train, data.test)])
    assert round(lengths.mean()) == 216
    assert np.median(lengths) == 148
    with_vector = data.embeddings[1:].abs().sum(1) > 0
    assert 0.8 < float(with_vector.double().mean()) < 1.0
