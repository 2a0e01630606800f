"""Downloads from a real server on this machine, and the check of what is there."""

import hashlib
import threading
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.lab.data import files

from metacal.errors import DamagedFileError, DownloadError, InvalidValueError, MissingDataError
from metacal.lab.data import SOURCES, fetch, load_dataset
from metacal.lab.data.files import RemoteFile


class Handler(SimpleHTTPRequestHandler):
    """Serves a folder and keeps quiet."""

    asked: list[str] = []  # noqa: RUF012

    def log_message(self, *arguments):
        self.asked.append(self.path)


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Address of a server and the folder it serves: a tiny CIFAR-10 whose hash counts as the published one."""
    folder = tmp_path / "served"
    folder.mkdir()
    path = folder / "cifar-10-binary.tar.gz"
    files.write_tar(path, files.cifar10_files()[0])
    digest = "md5:" + hashlib.md5(path.read_bytes()).hexdigest()
    remote = RemoteFile(path.name, "http://127.0.0.1:9/nowhere", digest, 0.1)
    monkeypatch.setitem(SOURCES, "cifar10", replace(SOURCES["cifar10"], downloads=(remote,)))
    monkeypatch.setattr(fetch, "RETRIES", 0)
    Handler.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{found.server_port}", folder
        found.shutdown()
        thread.join()


class Bar:
    """What pooch calls on a progress bar."""

    total, seen = 0, 0

    def update(self, size):
        self.seen += size

    def reset(self):
        self.seen = 0

    def close(self):
        pass


def test_fetch_downloads_checks_and_does_so_once(server, tmp_path):
    url, served = server
    bar, target = Bar(), tmp_path / "data"
    (path,) = fetch.fetch_dataset("cifar10", folder=target, mirror=f"{url}/", progress=lambda remote: bar)
    assert path == target / "cifar-10-binary.tar.gz"
    assert path.read_bytes() == (served / path.name).read_bytes()
    assert bar.seen == path.stat().st_size
    assert len(load_dataset("cifar10", folder=target).train) == 20
    fetch.fetch_dataset("cifar10", folder=target, mirror=url)
    assert len(Handler.asked) == 1
    path.write_bytes(b"altered")
    fetch.fetch_dataset("cifar10", folder=target, mirror=url)
    assert len(Handler.asked) == 2
    assert path.read_bytes() == (served / path.name).read_bytes()


def test_a_download_with_another_hash_leaves_nothing_behind(server, tmp_path):
    url, served = server
    good = (served / "cifar-10-binary.tar.gz").read_bytes()
    (served / "cifar-10-binary.tar.gz").write_bytes(good[:100])
    target = tmp_path / "data"
    with pytest.raises(DamagedFileError, match=r"is not the published file: expected md5:\w{32}, found md5:\w{32}\.$"):
        fetch.fetch_dataset("cifar10", folder=target, mirror=url)
    assert list(target.iterdir()) == []


def test_a_file_that_was_there_stays_when_the_download_fails(server, tmp_path):
    url, served = server
    (served / "cifar-10-binary.tar.gz").unlink()
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(b"mine")
    with pytest.raises(DownloadError, match="404"):
        fetch.fetch_dataset("cifar10", folder=tmp_path, mirror=url)
    assert (tmp_path / "cifar-10-binary.tar.gz").read_bytes() == b"mine"


@pytest.mark.parametrize("mirror", [None, "no-address"])
def test_no_server(server, tmp_path, mirror):
    with pytest.raises(DownloadError, match="could not be"):
        fetch.fetch_dataset("cifar10", folder=tmp_path, mirror=mirror)


def test_a_folder_that_cannot_be_written(server, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DownloadError, match="could not be saved"):
        fetch.fetch_dataset("cifar10", folder=tmp_path / "file", mirror=server[0])


def test_built_in_and_unknown_names(tmp_path):
    assert fetch.fetch_dataset("digits", folder=tmp_path) == [] == fetch.check_dataset("digits")
    with pytest.raises(InvalidValueError, match="nearest: cifar10"):
        fetch.fetch_dataset("cifar01", folder=tmp_path)


def test_check_names_expected_and_found_hash(server, tmp_path):
    url, _ = server
    with pytest.raises(MissingDataError, match="metacal data fetch cifar10"):
        fetch.check_dataset("cifar10", folder=tmp_path / "data")
    (path,) = fetch.fetch_dataset("cifar10", folder=tmp_path / "data", mirror=url)
    (verdict,) = fetch.check_dataset("cifar10", folder=tmp_path / "data")
    assert verdict.is_good
    assert verdict.path == path
    assert verdict.found == verdict.expected
    path.write_bytes(path.read_bytes()[:-1])
    found = hashlib.md5(path.read_bytes()).hexdigest()
    message = (
        rf"{path}: expected {verdict.expected}, found md5:{found}. To get .*fetch cifar10 --data-dir {path.parent}$"
    )
    with pytest.raises(DamagedFileError, match=message):
        fetch.check_dataset("cifar10", folder=tmp_path / "data")


def test_check_reads_files_that_have_no_published_hash(tmp_path):
    path = tmp_path / "cifar-100-binary.subset.tar.gz"
    files.write_tar(path, files.cifar100_files())
    (verdict,) = fetch.check_dataset("cifar100", folder=tmp_path)
    assert verdict.is_good is None
    assert verdict.expected is None
    assert verdict.found.startswith("md5:")
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DamagedFileError, match="is damaged"):
        fetch.check_dataset("cifar100", folder=tmp_path)


def test_the_table_is_well_formed():
    for name, source in SOURCES.items():
        assert name == source.name
        assert source.built_in or source.downloads
        for remote in source.downloads:
            for digest in (remote.hash, *remote.also):
                algorithm, _, value = digest.partition(":")
                assert len(value) == 2 * hashlib.new(algorithm).digest_size
                assert int(value, 16)
            assert remote.url.startswith("http")
            assert remote.megabytes > 0


def test_stock(tmp_path):
    files.write_tar(tmp_path / "cifar-100-binary.subset.tar.gz", files.cifar100_files())
    stock = {each.source.name: each for each in fetch.take_stock(tmp_path)}
    assert list(stock) == list(SOURCES)
    assert stock["digits"].source.built_in
    assert stock["cifar100"].files == (tmp_path / "cifar-100-binary.subset.tar.gz",)
    assert stock["cifar100"].megabytes > 0.01
    assert stock["svhn"].files == ()
    assert stock["svhn"].megabytes == 246
