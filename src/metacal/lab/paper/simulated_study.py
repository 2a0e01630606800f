"""The paper's study on simulated data: how near to the oracle's calibration does each method come, by training size?

Every method sees the same 2n labels: cross-entropy and label smoothing are fitted on all of them, meta-calibration
trains on n and looks at the other n. Cross-entropy is fitted on those n alone too, for which the others have no use.
Accuracy and ECE are those of fresh test points.
"""

import time
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from metacal.functional import expected_calibration_error
from metacal.lab.data import load_dataset, simulated_oracle
from metacal.losses import LabelSmoothingLoss
from metacal.metalearning import PAPER, MetaCalibrator, VectorLabelSmoothing

METHODS = ("oracle", "ce", "ls", "mc", "ce-n")
STEPS = 3000
LR = 0.1
OUTER = replace(PAPER, every=4, adaptive=True)
SMOOTHING = 0.05
POINTS_KEPT = 400


def fit_draw(size: int, seed: int, test_points: int = 100_000) -> dict[str, Any]:
    """Fit every method on one draw of the data: plain numbers.

    Args:
        size: n; every method but ``ce-n`` sees 2n labels.
        seed: of the data.
        test_points: fresh points to measure on.

    Returns:
        ``size``, ``seed``, ``test_points``, ``methods`` (each with ``accuracy`` and ``ece`` as fractions, and the
        ``weight`` and ``bias`` of the logit of class 1), some test ``points`` as ``[x, y, label]``, and the ``seconds``
        that it took.

    Examples:
        >>> found = fit_draw(50, 0, test_points=20_000)["methods"]
        >>> list(found), found["oracle"]["ece"] < found["ce"]["ece"]
        (['oracle', 'ce', 'ls', 'mc', 'ce-n'], True)
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # models as small as these gain nothing from more, and lose much on a busy machine
    try:
        return _fit_draw(size, seed, test_points)
    finally:
        torch.set_num_threads(threads)


def _fit_draw(size: int, seed: int, test_points: int) -> dict[str, Any]:
    started = time.perf_counter()
    data = load_dataset("simulated", n_train=2 * size, n_test=test_points, seed=seed)
    x, y = data.test.inputs.double(), data.test.targets
    found = {}
    for method in METHODS:
        model = fitted(method, data.train.inputs.double(), data.train.targets, size, seed)
        logits = model(x)
        found[method] = {
            "accuracy": float((logits.argmax(dim=1) == y).double().mean()),
            "ece": float(expected_calibration_error(logits=logits, targets=y)),
            "weight": (model.weight[1] - model.weight[0]).tolist(),
            "bias": float(model.bias[1] - model.bias[0]),
        }
    points = torch.cat((x[:POINTS_KEPT], y[:POINTS_KEPT, None]), dim=1).tolist()
    return {
        "size": size,
        "seed": seed,
        "test_points": test_points,
        "methods": found,
        "points": points,
        "seconds": time.perf_counter() - started,
    }


@torch.no_grad()
def oracle(seed: int) -> nn.Linear:
    """The model that the labels were drawn from."""
    weight, bias = simulated_oracle(seed)
    model = nn.Linear(2, 2).double()
    model.weight.copy_(torch.stack((torch.zeros_like(weight), weight)))
    model.bias.copy_(torch.stack((torch.zeros_like(bias), bias)))
    return model


def fitted(method: str, x: Tensor, y: Tensor, size: int, seed: int) -> nn.Linear:
    """A logistic regression by one method; its logits have no history."""
    if method == "oracle":
        return oracle(seed).requires_grad_(False)
    if method == "mc":
        return meta_calibrated(x[:size], y[:size], x[size:], y[size:])
    if method == "ce-n":
        return maximum_likelihood(x[:size], y[:size], 0.0)
    return maximum_likelihood(x, y, SMOOTHING if method == "ls" else 0.0)


def maximum_likelihood(x: Tensor, y: Tensor, smoothing: float) -> nn.Linear:
    """The optimum of (smoothed) cross-entropy; where there is none, because the classes can be separated, far along."""
    model = nn.Linear(2, 2).double()
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    loss = LabelSmoothingLoss(smoothing)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=500, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        value: Tensor = loss(model(x), y)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return model.requires_grad_(False)


def meta_calibrated(x: Tensor, y: Tensor, x_meta: Tensor, y_meta: Tensor) -> nn.Linear:
    """Full-batch gradient descent with learned smoothing, one strength per class."""
    model = nn.Linear(2, 2).double()
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    meta = MetaCalibrator(model, optimizer, [(x_meta, y_meta)], VectorLabelSmoothing(2), outer=OUTER)
    for _ in range(STEPS):
        loss = meta.step(x, y)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    meta.remove()
    return model.requires_grad_(False)
