"""Peak extra memory of one call, measured in a process of its own: prints bytes.

Run: ``python -m benchmarks.memory_probe``. A first, small call loads libraries and starts threads, so that only what
the call itself needs is counted.
"""

import torch

from metacal.functional import expected_calibration_error

SAMPLES, NUM_CLASSES = 50_000, 1000


def main() -> None:
    """Print the highest resident size during the call minus the resident size before it."""
    torch.set_num_threads(2)
    generator = torch.Generator().manual_seed(0)
    probs = torch.softmax(torch.randn(SAMPLES, NUM_CLASSES, generator=generator).mul_(5.0), dim=1)
    targets = probs.argmax(dim=1)
    expected_calibration_error(probs=probs[:100], targets=targets[:100])
    reset_peak()
    before = read_status("VmRSS")
    expected_calibration_error(probs=probs, targets=targets)
    print(read_status("VmHWM") - before)


def reset_peak() -> None:
    """Make the kernel forget the highest resident size so far."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def read_status(field: str) -> int:
    """Bytes of one field of /proc/self/status."""
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(field + ":"):
                return 1024 * int(line.split()[1])
    raise LookupError(field)


if __name__ == "__main__":
    main()
