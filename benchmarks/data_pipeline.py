"""What data costs: CIFAR batches against a plain Pillow pipeline, 20 Newsgroups against padding to 1,000.

Run: ``python -m benchmarks.data_pipeline [--only images text]``. Figures go to results/benchmarks/data_pipeline.json.
"""

import argparse
import math
import os
import random
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from benchmarks.report import Part, Row, Target, measured, publish
from benchmarks.timing import interleave
from metacal.lab.data import Batches, Examples, PadCropFlip, load_dataset
from metacal.lab.data.sources.cifar import MEAN, STD
from metacal.lab.models.global_pooling_cnn import GlobalPoolingCNN

BATCH = 128
IMAGES = 6_400
IMAGE_ROUNDS = 12
EPOCHS_A_TURN = 10
IMAGE_TARGET = 10.0
TEXT_BATCHES = 6
TEXT_ROUNDS = 4
TEXT_TARGET = 2.5
LENGTH = 1000
SAME = "The losses drift apart by float32 rounding, which Adam enlarges; in float64 the two ways are equal to 1e-15."
OURS, PLAIN = "metacal.lab.data.Batches", "Pillow + DataLoader"


class PlainImages(TorchDataset[tuple[Tensor, int]]):
    """One image at a time, as is common: Pillow pads, crops and flips, then a tensor is scaled."""

    def __init__(self, examples: Examples) -> None:
        self.pixels = np.ascontiguousarray(examples.inputs.numpy().transpose(0, 2, 3, 1))
        self.labels = examples.targets.tolist()
        self.mean, self.std = torch.tensor(MEAN).view(3, 1, 1), torch.tensor(STD).view(3, 1, 1)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, number: int) -> tuple[Tensor, int]:
        padded = ImageOps.expand(Image.fromarray(self.pixels[number]), border=4, fill=0)
        left, top = random.randint(0, 8), random.randint(0, 8)
        image = padded.crop((left, top, left + 32, top + 32))
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        tensor = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().float().div_(255)
        return tensor.sub_(self.mean).div_(self.std), self.labels[number]


def measure_images() -> Part:
    """Batches a second of an epoch of augmented 32 x 32 images, nothing done with them."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (IMAGES, 3, 32, 32), dtype=torch.uint8, generator=generator)
    examples = Examples(pixels, torch.randint(10, (IMAGES,), generator=generator))
    ours = Batches(examples, BATCH, transform=PadCropFlip(MEAN, STD))
    plain = PlainImages(examples)
    one = DataLoader(plain, BATCH, shuffle=True)
    two = DataLoader(plain, BATCH, shuffle=True, num_workers=2, persistent_workers=True)

    def epochs() -> float:
        # As many as make a turn about as long as the others': a busy moment hits all alike.
        return float(sum(len(y) for number in range(EPOCHS_A_TURN) for _, y in ours.epoch(number)))

    variants: dict[str, Callable[[], float]] = {
        OURS: epochs,
        PLAIN: lambda: float(sum(len(y) for _, y in one)),
        "Pillow + DataLoader, 2 workers": lambda: float(sum(len(y) for _, y in two)),
    }
    for loader in (ours, two):  # start the workers, and warm up
        next(iter(loader))
    timings = interleave(variants, IMAGE_ROUNDS, patience=math.inf)
    speed = {
        name: len(ours) * (EPOCHS_A_TURN if name == OURS else 1) / timing.seconds for name, timing in timings.items()
    }
    rows: list[Row] = [
        {
            "pipeline": name,
            "processes": 3 if "workers" in name else 1,
            "batches/s": each,
            "ours / it": speed[OURS] / each,
        }
        for name, each in speed.items()
    ]
    title = (
        f"CIFAR pipeline: {IMAGES:,} images, batches of {BATCH}, pad-crop-flip, scaling; best of {IMAGE_ROUNDS} turns"
    )
    target = Target(
        "our batches/s / those of Pillow + DataLoader", speed[OURS] / speed[PLAIN], IMAGE_TARGET, at_least=True
    )
    return Part(title, rows, [target], ["One thread in every process; two workers have two cores, the others one."])


def measure_text() -> Part:
    """Training steps on randomly composed batches of documents, in length chunks and padded to 1,000."""
    examples, embeddings, note = documents()
    batches = list(islice(Batches(examples, BATCH, seed=0).epoch(0), TEXT_BATCHES))
    variants = {
        "length chunks of 8": text_trainer(partial(GlobalPoolingCNN, chunk=8), embeddings, batches),
        "padded to 1,000": text_trainer(partial(GlobalPoolingCNN, chunk=None), embeddings, batches),
        "padded to 1,000, its layers as they are": text_trainer(
            partial(LayersAsTheyAre, chunk=None), embeddings, batches
        ),
    }
    timings = interleave(variants, TEXT_ROUNDS, patience=math.inf)
    chunked, padded, _ = timings.values()
    an_epoch = math.ceil(len(examples) / BATCH) / TEXT_BATCHES
    rows: list[Row] = [
        {
            "way": name,
            "ms a step": 1e3 * timing.seconds / TEXT_BATCHES,
            "s an epoch": timing.seconds * an_epoch,
            "time / ours": timing.seconds / chunked.seconds,
            "loss at the end": f"{timing.value:.5f}",
        }
        for name, timing in timings.items()
    ]
    title = (
        f"20 Newsgroups: {TEXT_BATCHES} training steps (forward, backward, Adam) of the global-pooling CNN, "
        f"batch {BATCH}, 1 thread, best of {TEXT_ROUNDS} turns"
    )
    ratio = padded.seconds / chunked.seconds
    return Part(
        title, rows, [Target("padded to 1,000 / length chunks", ratio, TEXT_TARGET, at_least=True)], [note, SAME]
    )


class LayersAsTheyAre(GlobalPoolingCNN):
    """The network as its layers are written down: `Conv1d` and `MaxPool1d`, filters first."""

    def _features(self, tokens: Tensor) -> Tensor:
        words = nn.functional.embedding(tokens, self.embeddings)
        found: Tensor = self.convolutions(words.transpose(1, 2))
        return found.amax(2)


def text_trainer(
    network: Callable[[int, Tensor], GlobalPoolingCNN], embeddings: Tensor, batches: list[tuple[Tensor, Tensor]]
) -> Callable[[], float]:
    """Training steps over the same batches; every turn goes on with the same network."""
    torch.manual_seed(0)
    model = network(20, embeddings)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def steps() -> float:
        torch.manual_seed(1)  # the same dropout for both ways, so that their losses can be compared
        for x, y in batches:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return loss.item()

    return steps


def documents() -> tuple[Examples, Tensor, str]:
    """Training documents with their word vectors: the real ones, else random ones of like lengths."""
    folder = os.environ.get("METACAL_TEST_DATA")
    if folder:
        dataset = load_dataset("20newsgroups", folder=folder)
        assert dataset.embeddings is not None
        lengths = (dataset.train.inputs != 0).sum(1).float()
        note = f"Real documents, {float(lengths.mean()):.0f} words on average (median {float(lengths.median()):.0f})."
        return dataset.train, dataset.embeddings, note
    generator = torch.Generator().manual_seed(0)
    lengths = torch.empty(15_077).log_normal_(math.log(148), 0.87, generator=generator).clamp_(1, LENGTH).int()
    tokens = torch.randint(1, 20_001, (len(lengths), LENGTH), dtype=torch.int32, generator=generator)
    tokens[torch.arange(LENGTH) < LENGTH - lengths[:, None]] = 0
    targets = torch.randint(20, (len(lengths),), generator=generator)
    note = f"Random documents, {float(lengths.float().mean()):.0f} words on average: METACAL_TEST_DATA names no folder."
    return Examples(tokens, targets), torch.randn(20_001, 100, generator=generator), note


PARTS = {"images": measure_images, "text": measure_text}


def main() -> None:
    """Measure, print, save; exit with 1 if a target was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.data_pipeline", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", choices=PARTS, metavar="NAME", help="run these parts; nothing is saved without --json"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to save figures")
    parser.add_argument("--wait", type=float, default=0.0, help="seconds to wait at most for a quiet machine")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    parts = {name: measured(PARTS[name], arguments.wait) for name in arguments.only or PARTS}
    publish("data_pipeline", parts, {"pillow": version("pillow")}, arguments.json, is_whole=not arguments.only)


if __name__ == "__main__":
    main()
