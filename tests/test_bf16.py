"""bfloat16 on a CPU that dies of it, shown with the child process replaced by one that dies; and one that works."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from metacal.bf16 import CAP, TRY, VERDICT, check_bf16, died_of
from metacal.errors import InvalidValueError

ROOT = Path(__file__).parent.parent
REMEDY = "set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 before Python starts, or use precision=32."
NOT_TO_BE_RUN = ("/no/such/command",)


def child(text):
    return (sys.executable, "-c", text)


@pytest.fixture
def unknown(monkeypatch):
    """Nothing is known of this machine."""
    monkeypatch.setenv(VERDICT, "")


def test_what_the_child_dies_of_is_remembered_until_the_cap_changes(bf16_dies, monkeypatch):
    assert died_of(NOT_TO_BE_RUN) == "SIGILL"
    monkeypatch.setenv(*CAP)
    assert died_of(child("")) == "" and died_of(NOT_TO_BE_RUN) == ""


def test_what_was_found_on_another_machine_does_not_count(unknown, monkeypatch):
    monkeypatch.setenv(VERDICT, "another-machine  SIGILL")
    assert died_of(child("")) == ""


def test_an_exception_in_the_child_is_no_death(unknown):
    assert died_of(child("raise RuntimeError")) == ""


def test_the_steps_run_in_bfloat16():
    """That they are steps torch can run; whether this CPU survives them is what the probe finds out."""
    ended = subprocess.run(TRY, capture_output=True, text=True, check=False)
    assert ended.returncode <= 0, ended.stderr


def test_asking_loads_no_torch():
    """The suite asks before torch is loaded: a cap that comes later is none."""
    asked = "import sys, metacal.bf16; print('torch' in sys.modules)"
    assert subprocess.run(child(asked), capture_output=True, text=True).stdout == "False\n"


def test_only_a_cpu_is_tried(bf16_dies, monkeypatch):
    with pytest.raises(InvalidValueError, match="SIGILL"):
        check_bf16("cpu", instead="precision=32")
    monkeypatch.setenv(VERDICT, "")
    check_bf16("cuda", instead="precision=32", command=NOT_TO_BE_RUN)


def test_a_cap_that_does_not_help_is_no_remedy(unknown, monkeypatch):
    monkeypatch.setenv(*CAP)
    with pytest.raises(InvalidValueError) as refused:
        check_bf16("cpu", instead="precision=32", command=child("import os; os.abort()"))
    assert str(refused.value).endswith(
        "(SIGABRT), as where a virtual machine advertises AMX and lacks it: use precision=32."
    )


def test_the_command_line_refuses_in_one_sentence(bf16_dies, tmp_path):
    words = ["train", "dataset=digits", "epochs=1", "precision=bf16", "--run-dir", str(tmp_path / "run")]
    ended = subprocess.run(
        [sys.executable, "-m", "metacal", *words], capture_output=True, text=True, env={**os.environ, "COLUMNS": "120"}
    )
    assert ended.returncode == 2
    assert ended.stderr == (
        "error: bfloat16 kills the process on this CPU (SIGILL), as where a virtual machine advertises AMX and lacks "
        f"it: {REMEDY}\n"
    )
    assert not (tmp_path / "run").exists()


def test_the_suite_caps_the_instruction_set_and_skips_what_still_dies(pytestconfig, bf16_dies, unknown, monkeypatch):
    settled = pytestconfig.pluginmanager.get_plugin(str(ROOT / "conftest.py"))
    name, value = CAP
    monkeypatch.setenv(name, "x")
    monkeypatch.delenv(name)
    settled.settle_bf16("flags: avx512_bf16", NOT_TO_BE_RUN)
    assert name not in os.environ
    dying = child("import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    settled.settle_bf16("flags: amx_bf16 amx_tile", dying)
    assert os.environ[name] == value

    class Marked:
        @staticmethod
        def get_closest_marker(name):
            return name == "bf16"

    assert died_of(dying) == "SIGILL"
    with pytest.raises(pytest.skip.Exception, match="SIGILL"):
        settled.pytest_runtest_setup(Marked)
