"""Whether bfloat16 can be used on this CPU: some virtual machines advertise AMX and kill the process that uses it.

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
    """What bfloat16 on this CPU dies of, such as ``SIGILL``; empty where it works.

    A child process tries it, which takes a second or two, once: this process and its children remember.

    Args:
        command: of the child process.
    """
    asked = f"{platform.node()} {os.environ.get(CAP[0], '')}"
    found = os.environ.get(VERDICT, "").rpartition(" ")
    if found[0] == asked:
        return found[2]
    status = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode
    reason = "" if 0 <= status < 0x80000000 else name_of(status)  # an exception is the caller's to see
    os.environ[VERDICT] = f"{asked} {reason}"
    return reason


def name_of(status: int) -> str:
    """The name of the signal that a negative exit status stands for; Windows has numbers.

    Examples:
        >>> name_of(-4), name_of(0xC000001D)
        ('SIGILL', '0xc000001d')
    """
    return signal.Signals(-status).name if status < 0 else hex(status)


def check_bf16(device: str, instead: str, command: Sequence[str] = TRY) -> None:
    """Refuse bfloat16 where it would kill the process.

    Args:
        device: type of the device that is to use it; only a CPU is tried.
        instead: what to ask for instead of bfloat16, as the user spells it.
        command: of the child process that tries it.

    Raises:
        InvalidValueError: a child process that used bfloat16 on this CPU died.
    """
    if device != "cpu" or not (reason := died_of(command)):
        return
    name, value = CAP
    remedy = "" if os.environ.get(name) == value else f"set {name}={value} before Python starts, or "
    raise InvalidValueError(
        f"bfloat16 kills the process on this CPU ({reason}), as where a virtual machine advertises AMX and lacks it: "
        f"{remedy}use {instead}."
    )
