"""Real data as feature matrices: scikit-learn's digits, and 20 Newsgroups as TF-IDF reduced to 200 dimensions."""

import os
import tarfile
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from threadpoolctl import threadpool_limits
from torch import Tensor


@lru_cache(maxsize=2)
def features_and_labels(dataset: str) -> tuple[Tensor, Tensor]:
    """float32 ``(n, d)``, standardised, and int64 ``(n,)``."""
    with threadpool_limits(1):  # more threads sum in other parts, and a rounded feature changes a whole run
        raw, labels = load_digits(return_X_y=True) if dataset == "digits" else newsgroups()
        features = torch.from_numpy(np.ascontiguousarray(raw, dtype=np.float32))
        return (features - features.mean()) / features.std(), torch.from_numpy(np.asarray(labels)).long()


def newsgroups() -> tuple[np.ndarray, np.ndarray]:
    """20 Newsgroups (bydate training part, headers cut), found through METACAL_TEST_DATA."""
    archive = Path(os.environ.get("METACAL_TEST_DATA", ".").split(os.pathsep)[0]) / "20news-bydate.tar.gz"
    if not archive.is_file():
        raise SystemExit(f"20 Newsgroups was looked for at {archive}; set METACAL_TEST_DATA to its folder.")
    texts, groups = [], []
    with tarfile.open(archive) as tar:
        for member in tar:
            parts = Path(member.name).parts
            file = tar.extractfile(member) if member.isfile() and any("train" in part for part in parts) else None
            if file is not None:
                texts.append(file.read().decode("latin-1").partition("\n\n")[2])
                groups.append(parts[-2])
    order = np.argsort([f"{group}/{len(text)}/{text[:80]}" for group, text in zip(groups, texts, strict=True)])
    vectors = TfidfVectorizer(max_features=20000, sublinear_tf=True).fit_transform([texts[i] for i in order])
    reduced = TruncatedSVD(200, random_state=0).fit_transform(vectors)
    names = sorted(set(groups))
    return reduced, np.array([names.index(groups[i]) for i in order])
