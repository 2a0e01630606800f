"""Corruptions beside PyPI's imagecorruptions: images a second, and how strong each severity is.

Run: ``make bench-corruptions``, or ``python -m benchmarks.corruptions --peer .venv-corruptions/bin/python``. The peer
runs in a process of its own environment. Figures go to results/benchmarks/corruptions.json. Images are CIFAR-10's test
images where METACAL_DATA has them, else smooth random ones.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.report import Part, Row, Target, measured, publish
from benchmarks.timing import interleave
from metacal.errors import MetacalError
from metacal.lab.data import load_dataset
from metacal.lab.data.corruptions import CORRUPTIONS, SEVERITIES, corrupt

IMAGES, PEER_IMAGES, PSNR_IMAGES, ROUNDS, SEVERITY = 2048, 48, 256, 5, 3
TIMES_FASTER = 20.0
OTHER_FORMULA = {"elastic_transform": "the peer has no affine move and another field"}
NOTES = {
    **OTHER_FORMULA,
    "frost": "photographs there, generated textures here",
    "snow": "the peer keeps a corner of the enlarged flakes, CIFAR-C their middle",
}


class Peer:
    """The peer's process.

    Args:
        python: of its environment.
        images: uint8 ``(n, 3, H, W)`` to corrupt.
        folder: for files.
    """

    def __init__(self, python: str, images: Tensor, folder: Path) -> None:
        script = Path(__file__).parent / "corruptions_peer.py"
        self.process = subprocess.Popen(
            [python, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.images, self.out = folder / "images.npy", folder / "out.npy"
        np.save(self.images, images.permute(0, 2, 3, 1).contiguous().numpy())

    def corrupt(self, name: str, severity: int, *, keep: bool = False) -> Tensor | None:
        """Corrupt all images with the constants of CIFAR-C; the result if it is to be kept."""
        assert self.process.stdin is not None and self.process.stdout is not None
        request = {
            "name": name,
            "severity": severity,
            "constants": peer_constants(name),
            "images": str(self.images),
            "out": str(self.out) if keep else None,
        }
        self.process.stdin.write(json.dumps(request) + "\n")
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"The peer's process ended at {name}: run `make bench-corruptions`, which sets it up.")
        return torch.from_numpy(np.load(self.out)).permute(0, 3, 1, 2) if keep else None

    def close(self) -> None:
        """End it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(10)


def peer_constants(name: str) -> Any:
    """Constants of CIFAR-C as the peer's functions take them; None leaves its own."""
    if name in OTHER_FORMULA:
        return None
    constants = CORRUPTIONS[name].constants
    if name == "zoom_blur":
        return [np.arange(1.0, furthest, 0.01).tolist() for furthest in constants]
    return list(constants)


def measure_speed(peer: Peer, images: Tensor) -> Part:
    """Images a second at severity 3, one thread on either side."""
    rows: list[Row] = []
    for name in CORRUPTIONS:
        corrupt(images[:256], name, SEVERITY, seed=0)  # tables and textures are made once
        timings = interleave(
            {
                "ours": lambda name=name: float(len(corrupt(images, name, SEVERITY, seed=0))),  # type: ignore[misc]
                "peer": lambda name=name: float(peer.corrupt(name, SEVERITY) is None),  # type: ignore[misc]
            },
            ROUNDS,
        )
        ours, theirs = len(images) / timings["ours"].seconds, PEER_IMAGES / timings["peer"].seconds
        rows.append(
            {"corruption": name, "ours, images/s": ours, "peer, images/s": theirs, "times faster": ours / theirs}
        )
    ratios = [float(row["times faster"] or 0) for row in rows]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return Part(
        f"Images a second, 32 x 32, severity {SEVERITY}, one thread, best of {ROUNDS} turns",
        rows,
        [
            Target("geometric mean of times faster", mean, TIMES_FASTER, at_least=True),
            Target("least of times faster", min(ratios), 1.0, at_least=True),
        ],
        [
            f"Ours: batches of {len(images):,}; peer: {PEER_IMAGES} images one by one, as its interface has it; both "
            "with the constants of CIFAR-C (elastic: its own).",
        ],
    )


def measure_effect(peer: Peer, images: Tensor) -> Part:
    """PSNR of corrupted against clean images on either side; of ours against the peer's where nothing is random."""
    rows: list[Row] = []
    gaps = []
    for name in CORRUPTIONS:
        for severity in SEVERITIES:
            ours = corrupt(images, name, severity, seed=0)
            theirs = peer.corrupt(name, severity, keep=True)
            assert theirs is not None
            strength, other = psnr(ours, images), psnr(theirs, images)
            rows.append(
                {
                    "corruption": name,
                    "severity": severity,
                    "ours to clean, dB": strength,
                    "peer to clean, dB": other,
                    "difference": strength - other,
                    "ours to peer, dB": psnr(ours, theirs)
                    if torch.equal(ours, corrupt(images, name, severity, seed=1))
                    else None,
                    "note": NOTES.get(name, ""),
                }
            )
            if name not in NOTES:
                gaps.append(abs(strength - other))
    return Part(
        f"How strong: PSNR over {len(images)} images, the same constants on either side",
        rows,
        [Target("largest difference where constants and formula agree, dB", max(gaps), 1.0, at_least=False)],
        ["PSNR of the mean squared error over all images; 8-bit results on both sides."],
    )


def psnr(first: Tensor, second: Tensor) -> float:
    """Peak signal-to-noise ratio in dB of 8-bit images."""
    error = (first.double() - second.double()).square().mean().item()
    return 10.0 * math.log10(255.0**2 / error) if error else math.inf


def test_images(count: int) -> Tensor:
    """Real images where they are there, else smooth random ones."""
    try:
        return load_dataset("cifar10").test.inputs[:count]
    except MetacalError:
        random = torch.Generator().manual_seed(0)
        coarse = torch.rand(count, 3, 6, 6, generator=random)
        smooth = torch.nn.functional.interpolate(coarse, size=(32, 32), mode="bicubic").clamp_(0, 1)
        return smooth.mul_(255).to(torch.uint8)


def main() -> None:
    """Measure, print, save; exit with 1 if a target was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.corruptions", description=__doc__)
    parser.add_argument("--peer", default=".venv-corruptions/bin/python", help="Python of the peer's environment")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    images = test_images(IMAGES)

    def beside_peer(measure: Callable[[Peer, Tensor], Part], shown: Tensor, given: Tensor) -> Part:
        with tempfile.TemporaryDirectory() as folder, closing(Peer(arguments.peer, given, Path(folder))) as peer:
            return measure(peer, shown)

    few, several = images[:PEER_IMAGES], images[:PSNR_IMAGES]
    parts = {
        "speed": measured(lambda: beside_peer(measure_speed, images, few)),
        "effect": measured(lambda: beside_peer(measure_effect, several, several)),
    }
    publish("corruptions", parts)


if __name__ == "__main__":
    main()
