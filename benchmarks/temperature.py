"""Temperature by likelihood: metacal's fit against every library that finds one: ``python -m benchmarks.temperature``.

Labels are drawn from ``softmax(logits)`` and every fit sees ``T * logits`` in float32, for true temperatures 0.3, 1, 3
and 10. A library counts as correct where it comes within 1e-4 of the optimum, found by bracketing the slope in
float64. The exit status is 1 if a target is missed.
"""

import argparse
import warnings
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq
from torch import Tensor

from benchmarks.report import Part, Row, Target, measured, publish
from benchmarks.timing import interleave
from metacal.functional import fit_temperature

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # deprecations within the peers' own imports
    from netcal.scaling import TemperatureScaling as NetcalScaling
    from sklearn.calibration import _TemperatureScaling as SklearnScaling

    try:
        from probmetrics.calibrators import TemperatureScalingCalibrator
        from probmetrics.distributions import CategoricalLogits
    except ImportError:
        TemperatureScalingCalibrator = None

METACAL, SKLEARN, NETCAL, PROBMETRICS = "metacal", "scikit-learn", "netcal float64", "probmetrics"
SKLEARN_WIDE = "scikit-learn float64"
SIZES = ((1_000_000, 10), (50_000, 1000))
TEMPERATURES = (0.3, 1.0, 3.0, 10.0)
THREADS = 2
ROUNDS = 5
PATIENCE = 6.0
SPEED_TARGET, PRECISION_TARGET = 5.0, 1e-4
RESULTS = Path("results/benchmarks/temperature.json")

Calls = dict[str, Callable[[], float]]


def main() -> None:
    """Measure, save, print; exit with 1 if a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="FILE", help=f"where to save; {RESULTS}")
    parser.add_argument("--wait", type=float, default=0.0, metavar="SECONDS", help="wait so long for a quiet machine")
    parser.add_argument("--threads", type=int, default=THREADS, help=f"of torch; {THREADS}")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    publish("temperature", {"temperature": measured(measure, arguments.wait)}, _versions(), arguments.json)


def measure() -> Part:
    """Time every library at every size and temperature."""
    rows: list[Row] = []
    targets = []
    for samples, num_classes in SIZES:
        size = f"{samples:,} x {num_classes:,}"
        for temperature in TEMPERATURES:
            logits, labels = drawn(samples, num_classes, temperature)
            optimum = exact_temperature(logits, labels, temperature)
            timings = interleave(calls(logits, labels), ROUNDS, PATIENCE)
            errors = {name: abs(timing.value / optimum - 1.0) for name, timing in timings.items()}
            ours = timings[METACAL].seconds
            for name, timing in timings.items():
                rows.append(
                    {
                        "size": size,
                        "true T": temperature,
                        "library": name,
                        "ms": 1e3 * timing.seconds,
                        "time / ours": timing.seconds / ours,
                        "T": f"{timing.value:.6f}",
                        "off by": f"{errors[name]:.1e}",
                        "rounds": timing.rounds,
                    }
                )
            correct = [
                timing.seconds
                for name, timing in timings.items()
                if name != METACAL and errors[name] <= PRECISION_TARGET
            ]
            case = f"{size}, T = {temperature:g}"
            fastest = min(correct) / ours if correct else float("inf")
            targets.append(Target(f"{case}: fastest correct peer's time / ours", fastest, SPEED_TARGET, at_least=True))
            targets.append(Target(f"{case}: off the optimum by", errors[METACAL], PRECISION_TARGET, at_least=False))
    notes = [
        "Best of the rounds, libraries taking turns; float32 logits, arrays are handed over in each library's own form "
        "beforehand (netcal: float64 probabilities). A library that has used 20 s takes no further turns.",
    ]
    if TemperatureScalingCalibrator is None:
        notes.append("probmetrics is not installed and was left out.")
    return Part("Temperature by likelihood", rows, targets, notes)


def drawn(samples: int, num_classes: int, temperature: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """float32 logits ``T`` times those that the labels were drawn from."""
    generator = torch.Generator().manual_seed(seed)
    scale = 2.0 if num_classes <= 100 else 3.0
    logits = torch.randn(samples, num_classes, generator=generator).mul_(scale)
    labels = torch.multinomial(torch.softmax(logits, dim=1), 1, generator=generator).squeeze(1)
    return logits.mul_(temperature), labels


def exact_temperature(logits: Tensor, labels: Tensor, near: float) -> float:
    """The optimum for these very logits: the root of the slope of the NLL in 1 / T, in float64."""

    def slope(inverse: float) -> float:
        total = 0.0
        for scores, targets in zip(torch.split(logits, 20_000), torch.split(labels, 20_000), strict=True):
            wide = scores.double()
            means = (torch.softmax(wide * inverse, dim=1) * wide).sum(dim=1)
            total += float((means - wide.gather(1, targets.unsqueeze(1)).squeeze(1)).sum())
        return total

    return 1.0 / float(brentq(slope, 0.9 / near, 1.1 / near, xtol=1e-12, rtol=1e-9))


def calls(logits: Tensor, labels: Tensor) -> Calls:
    """One fit by each library, data in its own form."""
    array, numbers = logits.numpy(), labels.numpy()
    probs = torch.softmax(logits.double(), dim=1).numpy()

    wide = array.astype(np.float64)

    def of_sklearn(scores: NDArray[Any]) -> float:
        return 1.0 / float(SklearnScaling().fit(scores, numbers).beta_)

    def of_netcal() -> float:
        scaling = NetcalScaling()
        scaling.fit(probs, numbers, tensorboard=False)
        return 1.0 / float(np.asarray(scaling.temperature).reshape(-1)[0])

    found: Calls = {
        METACAL: lambda: fit_temperature(logits=logits, targets=labels).temperature,
        SKLEARN: lambda: of_sklearn(array),
        SKLEARN_WIDE: lambda: of_sklearn(wide),
        NETCAL: of_netcal,
    }
    if TemperatureScalingCalibrator is not None:

        def of_probmetrics() -> float:
            calibrator = TemperatureScalingCalibrator()
            calibrator.fit_torch(CategoricalLogits(logits), labels)
            return 1.0 / float(calibrator.invtemp_)

        found[PROBMETRICS] = of_probmetrics
    return found


def _versions() -> dict[str, str]:
    found = {}
    for name in ("scikit-learn", "netcal", "probmetrics"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


if __name__ == "__main__":
    main()
