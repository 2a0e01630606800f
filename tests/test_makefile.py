"""What the Makefile's targets do, with a stand-in for Python."""

import json
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent
RECORDED = ("calibration", "data_pipeline", "evaluate_stream", "meta_step", "meta_step_size", "startup", "temperature")


def test_a_benchmark_that_misses_its_target_stops_no_other(tmp_path):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "python $*" >> {tmp_path}/asked\n[ "$2" != benchmarks.calibration ]\n')
    python.chmod(0o755)
    words = ["make", "--no-print-directory", "--old-file=.venv-bench/.ready", "bench", f"BENCH={tmp_path}"]
    outside = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}  # `make test` is one
    run = subprocess.run(words, cwd=ROOT, env=outside, capture_output=True, text=True)
    assert run.returncode == 2 and run.stdout == "Failed, or missed a target: calibration\n"
    results = [ROOT / "results" / "benchmarks" / f"{name}.json" for name in RECORDED]
    recorded = {json.loads(path.read_text(encoding="utf-8"))["about"]["command"] for path in results}
    assert set((tmp_path / "asked").read_text().splitlines()) == recorded
