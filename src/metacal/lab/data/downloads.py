"""Where the files of named datasets come from, and the hashes by which they are known."""

from dataclasses import dataclass
from pathlib import Path

TORONTO = "https://www.cs.toronto.edu/~kriz"
SVHN = "http://ufldl.stanford.edu/housenumbers"
ZENODO = "https://zenodo.org/records"
FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"


@dataclass(frozen=True)
class RemoteFile:
    """A file to download.

    Attributes:
        name: path in the data folder.
        url: its canonical source.
        hash: ``algorithm:digest``.
        megabytes: size of the download.
        also: hashes of other good editions of the file.
    """

    name: str
    url: str
    hash: str
    megabytes: float
    also: tuple[str, ...] = ()


def _fashion(name: str, md5: str, megabytes: float, debian: str) -> RemoteFile:
    return RemoteFile(f"fashion-mnist/{name}", f"{FASHION}/{name}", f"md5:{md5}", megabytes, (f"md5:{debian}",))


DOWNLOADS: dict[str, tuple[RemoteFile, ...]] = {
    "cifar10": (
        RemoteFile(
            "cifar-10-binary.tar.gz", f"{TORONTO}/cifar-10-binary.tar.gz", "md5:c32a1d4ab5d03f1284b67883e8d87530", 170
        ),
    ),
    "cifar100": (
        RemoteFile(
            "cifar-100-binary.tar.gz", f"{TORONTO}/cifar-100-binary.tar.gz", "md5:03b5dce01913d631647c71ecec9e9cb8", 169
        ),
    ),
    "cifar10-c": (
        RemoteFile(
            "CIFAR-10-C.tar", f"{ZENODO}/2535967/files/CIFAR-10-C.tar", "md5:56bf5dcef84df0e2308c6dcbcbbd8499", 2918
        ),
    ),
    "cifar100-c": (
        RemoteFile(
            "CIFAR-100-C.tar", f"{ZENODO}/3555552/files/CIFAR-100-C.tar", "md5:11f0ed0f1191edbf9fa23466ae6021d3", 2918
        ),
    ),
    "svhn": (
        RemoteFile("train_32x32.mat", f"{SVHN}/train_32x32.mat", "md5:e26dedcc434d2e4c54c9b2d4a06d8373", 182),
        RemoteFile("test_32x32.mat", f"{SVHN}/test_32x32.mat", "md5:eb5a983be6a315427106f1b164d9cef3", 64),
    ),
    # Debian's package dataset-fashion-mnist holds the same bytes, compressed anew.
    "fashion-mnist": (
        _fashion(
            "train-images-idx3-ubyte.gz",
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            26.4,
            "cf8536b0aa1a6ac5fa3f23001093305c",
        ),
        _fashion(
            "train-labels-idx1-ubyte.gz",
            "25c81989df183df01b3e8a0aad5dffbe",
            0.03,
            "10bea18fdb374794d4bb42e356e600c9",
        ),
        _fashion(
            "t10k-images-idx3-ubyte.gz",
            "bef4ecab320f06d8554ea6380940ec79",
            4.4,
            "f78720b4224f21cce2f2ccf2d7a94c9a",
        ),
        _fashion(
            "t10k-labels-idx1-ubyte.gz",
            "bb300cfdad3c16e7a12a480ee83cd310",
            0.005,
            "0d30e22e447f3c33dab9ed536400ac01",
        ),
    ),
    # The bydate edition: the archive that scikit-learn fetches. GloVe's archive holds four sizes of vectors.
    "20newsgroups": (
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
}

EXTRACTED = {
    "cifar-10-batches-bin/data_batch_1.bin": "md5:5dd7e06a14cb22eb9f671a540d1b7c25",
    "cifar-10-batches-bin/data_batch_2.bin": "md5:5ea93a67294ea407fff1d09f752e9692",
    "cifar-10-batches-bin/data_batch_3.bin": "md5:942cd6a4bcdd0dd3c604fbe906cb4421",
    "cifar-10-batches-bin/data_batch_4.bin": "md5:ae636b3ba5c66a11e91e8cb52e771fcb",
    "cifar-10-batches-bin/data_batch_5.bin": "md5:53f37980c15c3d472c316c40844f3f0d",
    "cifar-10-batches-bin/test_batch.bin": "md5:803d5f7f4d78ea53de84dbe85f74fb6d",
}
"""Hashes of files that people extract from an archive, by the end of their path."""


def known_hashes(path: Path) -> tuple[str, ...]:
    """Hashes that a file of this name may have, the published one first; none if nothing is known about it."""
    for remote in (remote for files in DOWNLOADS.values() for remote in files):
        if path.name == Path(remote.name).name:
            return (remote.hash, *remote.also)
    return tuple(digest for end, digest in EXTRACTED.items() if path.as_posix().endswith(f"/{end}"))
