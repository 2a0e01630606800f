"""Fuzz a file reader, guided by coverage: any bytes give a value that keeps its contract, or a MetacalError.

``python -m benchmarks.fuzz jsonl --seconds 1800`` needs atheris, in an environment of its own. Mutations know the
format, so that what is behind a header or a checksum is reached too. Every distinct exception is kept once, with the
input that raised it, and the fuzzing continues; an input that takes more than 10 seconds or 2 GB ends it. What was run
is added to ``results/house/fuzz.json``: CPU minutes, executions and findings of each reader at each commit.
"""

import argparse
import os
import resource
import sys
import tempfile
import time
import traceback
import warnings
from contextlib import suppress
from pathlib import Path
from random import Random

import atheris  # type: ignore[import-untyped, import-not-found, unused-ignore]

INSTRUMENTED = ["benchmarks", "metacal"]

with atheris.instrument_imports(include=INSTRUMENTED):
    from benchmarks.fuzz_readers import LONGEST, READERS
    from metacal.errors import MetacalError

RECORD = Path("results/house/fuzz.json")
SLOWEST, MOST_MB = 10, 2048


def record(reader: str, wall_seconds: float, **counts: float) -> None:
    """Add what was run to what the record has of this reader at this commit."""
    from benchmarks.report import describe_run  # not before, or what it imports would not be instrumented
    from metacal.files import read_json, write_json

    known = read_json(RECORD)["readers"] if RECORD.exists() else {}
    about = describe_run(f"python -m benchmarks.fuzz {reader}") | {"wall_seconds": round(wall_seconds, 2)}
    commits, commit = known.setdefault(reader, {}), str(about["commit"])
    before = commits.get(commit, {})
    commits[commit] = {name: round(before.get(name, 0) + count, 1) for name, count in counts.items()}
    write_json(RECORD, {"about": about, "readers": known})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reader", choices=READERS)
    parser.add_argument("--seconds", type=float, default=1800, help="of CPU time")
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "metacal-fuzz", help="findings")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    reader, out = READERS[options.reader], options.out / options.reader
    corpus = out / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    scratch = Path(tempfile.mkdtemp(prefix="metacal-fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    path = scratch / f"file{reader.suffix}"
    with atheris.instrument_imports(include=INSTRUMENTED):  # what a reader imports when it is called
        for number, seed in enumerate(reader.seeds()):
            (corpus / f"seed-{number}").write_bytes(seed)
            path.write_bytes(seed)
            with suppress(MetacalError):
                reader.read(path)
    found: set[tuple[str, ...]] = set()
    executions = read = 0
    started, spent = time.monotonic(), time.process_time()

    def once(data: bytes) -> None:
        nonlocal executions, read
        executions += 1
        path.write_bytes(data)
        try:
            reader.read(path)
            read += 1
        except MetacalError:
            pass
        except BaseException as error:
            frames = traceback.extract_tb(error.__traceback__)
            ours = [frame for frame in frames if "metacal" in frame.filename] or frames
            key = (type(error).__name__, f"{ours[-1].filename}:{ours[-1].lineno}")
            if key not in found:
                found.add(key)
                kept = out / f"finding-{len(found)}{reader.suffix}"
                kept.write_bytes(data)
                print(f"FINDING {options.reader} {kept}", *traceback.format_exception(error), sep="\n", flush=True)
        minutes, wall = (time.process_time() - spent) / 60, time.monotonic() - started
        if minutes * 60 > options.seconds:
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(
                f"{options.reader}: {minutes:.1f} CPU minutes "
                f"({wall / 60:.1f} of the clock), {executions:,} executions, {read:,} read, "
                f"{len(found)} findings, {memory:,.0f} MB at most",
                flush=True,
            )
            record(options.reader, wall, cpu_minutes=minutes, executions=executions, read=read, findings=len(found))
            os._exit(1 if found else 0)

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        random = Random(seed)
        if reader.mutate is not None and random.random() < 0.6:
            try:
                fresh = reader.mutate(data, random)
            except Exception:  # no longer of the format: bytes then
                fresh = b""
            if 0 < len(fresh) <= most:
                return fresh
        return bytes(atheris.Mutate(data, most))

    words = [sys.argv[0], str(corpus), f"-timeout={SLOWEST}", f"-rss_limit_mb={MOST_MB}", f"-max_len={LONGEST}"]
    words += [f"-artifact_prefix={out}/", f"-seed={options.seed}", "-print_final_stats=1", "-reload=0", "-verbosity=1"]
    atheris.Setup(words, once, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
