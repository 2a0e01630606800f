"""Data: from files and arrays to batches.

`load_dataset` gives a `Dataset`, `make_splits` its training, meta, validation and test sets, `Batches` batches of them.
"""

from metacal.data.arrays import from_arrays
from metacal.data.augmentation import Normalise, PadCropFlip, make_transform, pad_crop_flip
from metacal.data.batches import Batches
from metacal.data.corruptions import CORRUPTIONS, corrupt
from metacal.data.dataset import Dataset, Examples
from metacal.data.folder import data_folder
from metacal.data.registry import SOURCES, load_dataset
from metacal.data.sources.simulated import simulated_oracle
from metacal.data.splits import Splits, make_splits, split_off

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
    "split_off",
]
