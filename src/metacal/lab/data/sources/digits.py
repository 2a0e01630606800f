"""scikit-learn's handwritten digits: 1,797 images of 8 x 8 pixels that need no download."""

import numpy as np

from metacal.lab.data.arrays import from_arrays
from metacal.lab.data.dataset import Dataset

LEVELS = 16
"""The images have the values 0..16."""


def load(*, test_share: float = 0.2, seed: int = 0) -> Dataset:
    """Digits as uint8 images ``(n, 1, 8, 8)``, their 17 grey levels spread over 0..255.

    scikit-learn has no test set: 20 % of every class (359 images) are drawn with seed 0, the same for
    everyone who does not ask for another.

    Args:
        test_share: share of the images in the test set.
        seed: of that split; not the seed of a run.
    """
    from sklearn.datasets import load_digits

    found = load_digits()
    images = np.rint(found.images * (255.0 / LEVELS)).astype(np.uint8)
    names = [str(name) for name in found.target_names]
    return from_arrays(
        images, found.target.astype(np.int64), name="digits", class_names=names, test_share=test_share, seed=seed
    )
