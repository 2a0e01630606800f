"""What the fuzzer starts from is whole and short enough, and its mutations keep the format; a few of them are tried."""

import tempfile
from contextlib import suppress
from random import Random

import pytest
from benchmarks.fuzz_readers import LONGEST, READERS

from metacal.errors import MetacalError

TRIED = 40


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", READERS)
def test_seeds_are_read_and_mutations_are_refused_or_read(name, tmp_path, tmp_path_factory, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.getbasetemp()))  # of the run that they share
    reader, path = READERS[name], tmp_path / f"file{READERS[name].suffix}"
    seeds = list(reader.seeds())
    for seed in seeds:
        path.write_bytes(seed)
        reader.read(path)
    assert max(map(len, seeds)) <= LONGEST, "the fuzzer would cut it off"
    if reader.mutate is None:
        return
    made = 0
    for number in range(TRIED):
        random = Random(number)
        try:
            changed = reader.mutate(random.choice(seeds), random)
        except Exception:
            continue
        made += len(changed) <= LONGEST
        path.write_bytes(changed)
        with suppress(MetacalError):
            reader.read(path)
    assert made > TRIED / 2
