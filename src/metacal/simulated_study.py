"""The paper's study on simulated data: how near to the oracle's calibration does each method come, by training size?

Every method sees the same 2n labels: cross-entropy and label smoothing are fitted on all of them, meta-calibration
trains on n and looks at the other n. Accuracy and ECE are those of fresh test points.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

from metacal.data import load_dataset
from metacal.data.sources.simulated import simulated_oracle
from metacal.functional import expected_calibration_error
from metacal.losses import LabelSmoothing
from metacal.metalearning import MetaCalibrator, VectorLabelSmoothing

METHODS = ("oracle", "ce", "ls", "mc")
STEPS = 3000
LR = 0.1
SMOOTHING = 0.05


@dataclass(frozen=True)
class SimulatedScore:
    """What one method reached on one draw of the data: fractions.

    Attributes:
        method: ``oracle``, ``ce``, ``ls`` or ``mc``.
        size: n; the method saw 2n labels.
        seed: of the data.
        accuracy: on the test points.
        ece: on the test points, 15 bins.
    """

    method: str
    size: int
    seed: int
    accuracy: float
    ece: float

    def as_dict(self) -> dict[str, float | int | str]:
        """For JSON."""
        return asdict(self)


def simulated_scores(
    sizes: Iterable[int], seeds: Iterable[int], methods: Iterable[str] = METHODS, test_points: int = 100_000
) -> list[SimulatedScore]:
    """Scores of every method, size and seed.

    Examples:
        >>> scores = simulated_scores([50], [0], methods=["oracle", "ce"], test_points=20_000)
        >>> [score.method for score in scores], scores[0].ece < scores[1].ece
        (['oracle', 'ce'], True)
    """
    wanted = list(methods)
    return [score for size in sizes for seed in seeds for score in _scores_of_draw(size, seed, wanted, test_points)]


def _scores_of_draw(size: int, seed: int, methods: list[str], test_points: int) -> list[SimulatedScore]:
    data = load_dataset("simulated", n_train=2 * size, n_test=test_points, seed=seed)
    scores = []
    for method in methods:
        logits = fitted(method, data.train.inputs.double(), data.train.targets, size, seed)(data.test.inputs.double())
        correct = (logits.argmax(dim=1) == data.test.targets).double().mean()
        ece = expected_calibration_error(logits=logits, targets=data.test.targets)
        scores.append(SimulatedScore(method, size, seed, float(correct), float(ece)))
    return scores


@torch.no_grad()
def oracle(seed: int) -> nn.Linear:
    """The model that the labels were drawn from."""
    weight, bias = simulated_oracle(seed)
    model = nn.Linear(2, 2).double()
    model.weight.copy_(torch.stack((torch.zeros_like(weight), weight)))
    model.bias.copy_(torch.stack((torch.zeros_like(bias), bias)))
    return model


def fitted(method: str, x: Tensor, y: Tensor, size: int, seed: int) -> nn.Module:
    """A logistic regression by one method; its logits have no history."""
    if method == "oracle":
        return oracle(seed).requires_grad_(False)
    if method == "mc":
        return meta_calibrated(x[:size], y[:size], x[size:], y[size:])
    return maximum_likelihood(x, y, SMOOTHING if method == "ls" else 0.0)


def maximum_likelihood(x: Tensor, y: Tensor, smoothing: float) -> nn.Module:
    """The optimum of (smoothed) cross-entropy; where there is none, because the classes can be separated, far along."""
    model = nn.Linear(2, 2).double()
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    loss = LabelSmoothing(smoothing)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=500, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        value: Tensor = loss(model(x), y)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return model.requires_grad_(False)


def meta_calibrated(x: Tensor, y: Tensor, x_meta: Tensor, y_meta: Tensor) -> nn.Module:
    """Full-batch gradient descent with a learned smoothing strength a class; the look-ahead is through all weights."""
    model = nn.Linear(2, 2).double()
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    meta = MetaCalibrator(model, model, VectorLabelSmoothing(2), every=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    for _ in range(STEPS):
        loss = meta.step(x, y, meta=(x_meta, y_meta), lr=LR)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    meta.remove()
    return model.requires_grad_(False)
