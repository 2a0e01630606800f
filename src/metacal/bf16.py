"""Check whether bfloat16 works on this CPU: on some virtual machines it kills the process that uses it.

torch takes oneDNN's kernels, oneDNN asks the CPU what it can do, and where that promises AMX and lacks it, the first
product in bfloat16 is an illegal instruction. No exception handler can catch that, so a child process tries first.
Nothing here loads torch: the test suite asks before it does.
"""

import os
import platform
import signal
import subprocess
import sys
from collections.abc import Sequence

from metacal.errors import InvalidValueError

CAP = ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
"""The environment variable, and its value, that keep oneDNN from AMX; read when torch is loaded."""

VERDICT = "METACAL_BF16_ON_CPU"
"""The environment variable that tells child processes what was found: machine, cap, and what the child died of."""

STEPS = """
import torch
from torch import nn
for dtype in (torch.float32, torch.bfloat16):
    net = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(1152, 64), nn.Linear(64, 5)).to(dtype)
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.float32):
        net(torch.ones(16, 3, 8, 8, dtype=dtype)).float().sum().backward()
x = torch.ones(2, 4, 32, 64, dtype=torch.bfloat16, requires_grad=True)
nn.functional.scaled_dot_product_attention(x, x, x).sum().backward()
(x @ x.mT).sum().backward()
"""
TRY = (sys.executable, "-c", STEPS)


def died_of(command: Sequence[str] = TRY) -> str:
    """Return the signal that kills a child process using bfloat16 on this CPU, such as ``SIGILL``; empty if it works.

    It takes a second or two, once: this process and its children remember.
    """
    asked = f"{platform.node()} {os.environ.get(CAP[0], '')}"
    found = os.environ.get(VERDICT, "").rpartition(" ")
    if found[0] == asked:
        return found[2]
    status = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode
    reason = ""  # of a status that is not a signal's: an exception is the caller's to see
    if status < 0:
        reason = signal.Signals(-status).name
    elif status >= 0x80000000:  # Windows has numbers
        reason = hex(status)
    os.environ[VERDICT] = f"{asked} {reason}"
    return reason


def check_bf16(device: str, instead: str, command: Sequence[str] = TRY) -> None:
    """Raise `InvalidValueError` if bfloat16 on a ``device`` of this type would kill the process.

    Only a CPU is tried; ``instead`` is what to ask for instead of bfloat16, as the user spells it.
    """
    if device != "cpu" or not (reason := died_of(command)):
        return
    name, value = CAP
    remedy = "" if os.environ.get(name) == value else f"set {name}={value} before Python starts, or "
    raise InvalidValueError(
        f"bfloat16 kills the process on this CPU ({reason}), as where a virtual machine advertises AMX and lacks it: "
        f"{remedy}use {instead}."
    )
