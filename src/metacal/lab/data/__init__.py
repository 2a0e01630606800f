"""Data: from files and arrays to batches.

`load_dataset` returns a `Dataset`, `make_splits` divides it into training, meta, validation and test sets, and
`Batches` yields their batches.
"""

from metacal.lab.data.batches import Batches, Normalise, PadCropFlip, Splits, make_splits, make_transform, pad_crop_flip
from metacal.lab.data.corruptions import CORRUPTIONS, corrupt
from metacal.lab.data.dataset import Dataset, Examples, from_arrays
from metacal.lab.data.files import data_folder
from metacal.lab.data.sources import SOURCES, load_dataset
from metacal.lab.data.sources.built_in import simulated_oracle

__all__ = [
    "CORRUPTIONS",
    "SOURCES",
    "Batches",
    "Dataset",
    "Examples",
    "Normalise",
    "PadCropFlip",
    "Splits",
    "corrupt",
    "data_folder",
    "from_arrays",
    "load_dataset",
    "make_splits",
    "make_transform",
    "pad_crop_flip",
    "simulated_oracle",
]
