"""scikit-learn: `MetaCalibratedClassifier` beside LogisticRegression, MLPClassifier and CalibratedClassifierCV.

Every classifier gets the same labelled samples. scikit-learn's own data sets are split in half by each seed; with
METACAL_DATA (or METACAL_TEST_DATA) naming a folder that holds 20 Newsgroups (bydate), its documents follow, as TF-IDF
reduced to 200 dimensions, with that edition's own test set.
"""

import os
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from comparison import Said, arguments, compare, save
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.decomposition import TruncatedSVD
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

from metacal.errors import MissingDataError
from metacal.integrations.sklearn import MetaCalibratedClassifier, PosthocCalibratedClassifier
from metacal.lab.data.sources.newsgroups import GROUPS, NEWSGROUPS, cut_header, read_documents

Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def halves(load: Callable) -> Callable[[int], Split]:
    """Training and test samples of one of scikit-learn's data sets, standardised."""

    def split(seed: int) -> Split:
        X, y = load(return_X_y=True)
        X, X_test, y, y_test = train_test_split(X, y, test_size=0.5, random_state=seed, stratify=y)
        scaler = StandardScaler().fit(X)
        return scaler.transform(X), scaler.transform(X_test), y, y_test

    return split


def newsgroups(folder: Path) -> Callable[[int], Split]:
    """20 Newsgroups by date; nothing but the classifiers depends on the seed."""
    names, texts = read_documents(NEWSGROUPS.find(folder)[0])
    labels = np.array([GROUPS.index(name.parent.name) for name in names])
    is_test = np.array(["20news-bydate-test" in name.parts for name in names])
    bodies = np.array([cut_header(text) for text in texts], dtype=object)
    vectorizer = TfidfVectorizer(max_features=20_000, sublinear_tf=True).fit(bodies[~is_test])
    reduction = TruncatedSVD(200, random_state=0).fit(vectorizer.transform(bodies[~is_test]))
    X = reduction.transform(vectorizer.transform(bodies))
    X = X / X[~is_test].std()
    return lambda seed: (X[~is_test], X[is_test], labels[~is_test], labels[is_test])


def classifiers(seed: int, quick: bool) -> dict[str, object]:
    passes = {"max_iter": 5} if quick else {}
    logistic = LogisticRegression(max_iter=1000)
    mlp = MLPClassifier((128,), random_state=seed, **passes)
    return {
        "LogisticRegression": logistic,
        "... CalibratedClassifierCV": CalibratedClassifierCV(logistic, method="sigmoid"),
        "... PosthocCalibratedClassifier": PosthocCalibratedClassifier(logistic, random_state=seed),
        "MetaCalibratedClassifier()": MetaCalibratedClassifier(random_state=seed, **passes),
        "MLPClassifier": mlp,
        "... CalibratedClassifierCV ": CalibratedClassifierCV(mlp, method="sigmoid", cv=2 if quick else 5),
        "... PosthocCalibratedClassifier ": PosthocCalibratedClassifier(mlp, random_state=seed),
        "MetaCalibratedClassifier((128,))": MetaCalibratedClassifier((128,), random_state=seed, **passes),
    }


def run(name: str, split: Callable[[int], Split], quick: bool) -> Callable[[int], Said]:
    def fit_and_predict(seed: int) -> Said:
        X, X_test, y, y_test = split(seed)
        probs = classifiers(seed, quick)[name].fit(X, y).predict_proba(X_test)
        return torch.from_numpy(np.log(np.clip(probs, 1e-12, 1.0))), torch.from_numpy(y_test)

    return fit_and_predict


if __name__ == "__main__":
    options = arguments(__doc__)
    warnings.simplefilter("ignore", ConvergenceWarning)
    tasks = {
        "wine, 89 labels": halves(load_wine),
        "breast cancer, 284 labels": halves(load_breast_cancer),
        "digits, 898 labels": halves(load_digits),
    }
    folder = os.environ.get("METACAL_DATA") or os.environ.get("METACAL_TEST_DATA")
    if folder and not options.quick:
        try:
            tasks["20 Newsgroups by date, 11,314 labels"] = newsgroups(Path(folder))
        except MissingDataError as error:
            print(f"Without 20 Newsgroups: {error}")
    found = {}
    path, options.json = options.json, None
    for title, split in tasks.items():
        names = classifiers(0, options.quick)
        found[title] = compare(title, {name: run(name, split, options.quick) for name in names}, options)
        if options.quick:
            break
    if path:
        save(path, options.seeds, {"tasks": found})
