"""DECE: its cost against the all-pairs form and against the number of classes, and how well it tracks ECE."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from benchmarks.data import missing_predictions, real_predictions
from benchmarks.report import Part, Row, Target
from benchmarks.timing import interleave
from metacal.functional import dece, expected_calibration_error, soft_binned_ece

BATCH = 128
LARGE_BATCH = 1024
MINIBATCHES = 500
ALL_PAIRS_TARGET = 50.0
LINEAR_TARGET = 1.0
ROUNDS = 300


class GuardedSigmoid(torch.autograd.Function):
    """A scaled sigmoid in two branches, each safe for one sign, that keeps its derivative, as published."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, scale: float) -> Tensor:
        """Either branch over all entries, then a choice; one half at zero."""
        scaled = scale * values
        positive = torch.where(values > 0, 1.0 / (1.0 + torch.exp(-scaled)), values.new_full((1,), 0.5))
        grown = torch.exp(scaled)
        chosen = torch.where(values < 0, grown / (1.0 + grown), positive)
        ctx.save_for_backward(scale * chosen * (1.0 - chosen))
        return chosen

    @staticmethod
    def backward(ctx: Any, *pulls: Tensor) -> tuple[Tensor, None]:
        """Chain rule."""
        return pulls[0] * ctx.saved_tensors[0], None


def guarded_sigmoid(values: Tensor, scale: float) -> Tensor:
    """`GuardedSigmoid` as a function."""
    result: Tensor = GuardedSigmoid.apply(values, scale)  # type: ignore[no-untyped-call]
    return result


def lean_sigmoid(values: Tensor, scale: float) -> Tensor:
    """Torch's own."""
    return torch.sigmoid(scale * values)


def all_pairs_dece(
    logits: Tensor,
    targets: Tensor,
    sigmoid: Callable[[Tensor, float], Tensor] = lean_sigmoid,
    num_bins: int = 15,
    tau_a: float = 100.0,
    tau_b: float = 0.01,
) -> Tensor:
    """DECE as the definition has it: soft ranks of all K classes from an n x K x K tensor, then the true class's."""
    probs = torch.softmax(logits, dim=1)
    differences = (probs.unsqueeze(2) - probs.unsqueeze(1)).transpose(1, 2)
    ranks = 0.5 + sigmoid(differences, tau_a).sum(dim=2)
    accuracies = torch.relu(2.0 - ranks.gather(1, targets.unsqueeze(1)).squeeze(1))
    confidences = probs.max(dim=1).values
    slopes = torch.arange(1, num_bins + 1, dtype=probs.dtype)
    offsets = -torch.cumsum(torch.arange(num_bins, dtype=probs.dtype) / num_bins, dim=0)
    members = torch.softmax((confidences.unsqueeze(1) * slopes + offsets) / tau_b, dim=1) + 1e-6
    masses = members.sum(dim=0)
    bin_accuracies = (members * accuracies.unsqueeze(1)).sum(dim=0) / masses
    bin_confidences = (members * confidences.unsqueeze(1)).sum(dim=0) / masses
    return (masses / len(targets) * (bin_accuracies - bin_confidences).abs()).sum()


def measure_dece() -> Part:
    """DECE forward and backward against the n x K x K form, on one thread and on two."""
    rows: list[Row] = []
    targets_kept = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for size, num_classes in ((BATCH, 10), (BATCH, 100), (LARGE_BATCH, 100), (BATCH, 1000)):
            logits, targets = _batch(num_classes, size)
            timings = interleave(_forms(logits, targets), ROUNDS if size * num_classes < 20_000 else 10)
            ours = timings["metacal"].seconds
            for name, timing in timings.items():
                row: Row = {"threads": threads, "n": size, "K": num_classes, "form": name, "ms": 1e3 * timing.seconds}
                rows.append(row | {"time / ours": timing.seconds / ours, "value": f"{timing.value:.6f}"})
            if num_classes == 100:
                ratio = timings["n x K x K, as published"].seconds / ours
                name = f"DECE, n = {size}, K = 100, {threads} thread(s), published n x K x K form's time / ours"
                targets_kept.append(Target(name, ratio, ALL_PAIRS_TARGET, at_least=True))
    note = (
        "At n = 128, K = 100 ours is bound by the overhead of some twenty small operations, which threads do not help."
    )
    return Part("DECE forward + backward against the n x K x K form", rows, targets_kept, [note])


def _forms(logits: Tensor, targets: Tensor) -> dict[str, Callable[[], float]]:
    return {
        "metacal": _forward_backward(lambda: dece(logits=logits, targets=targets), logits),
        "n x K x K, as published": _forward_backward(
            lambda: all_pairs_dece(logits, targets, sigmoid=guarded_sigmoid), logits
        ),
        "n x K x K, leanest": _forward_backward(lambda: all_pairs_dece(logits, targets), logits),
    }


def measure_classes() -> Part:
    """DECE forward and backward over the number of classes."""
    sizes = (10, 100, 1000, 10000)
    batches = {num_classes: _batch(num_classes) for num_classes in sizes}

    def variant(num_classes: int) -> Callable[[], float]:
        logits, targets = batches[num_classes]
        return _forward_backward(lambda: dece(logits=logits, targets=targets), logits)

    timings = interleave({str(num_classes): variant(num_classes) for num_classes in sizes}, ROUNDS)
    per_class = {num_classes: 1e6 * timings[str(num_classes)].seconds / num_classes for num_classes in sizes}
    rows: list[Row] = [{"K": k, "ms": 1e3 * timings[str(k)].seconds, "microseconds / K": per_class[k]} for k in sizes]
    growth = max(per_class[after] / per_class[before] for before, after in pairwise(sizes))
    target = Target("DECE, largest growth of cost / K over a tenfold K", growth, LINEAR_TARGET, at_least=False)
    return Part("DECE forward + backward over the number of classes, n = 128", rows, [target])


def measure_agreement() -> Part:
    """DECE and SB-ECE of minibatches against their ECE, on real predictions made more and less confident."""
    rows: list[Row] = []
    for name, (probs, targets) in real_predictions().items():
        figures = _minibatch_figures(probs, targets)
        for measure, values in figures.items():
            rows.append(
                {
                    "predictions": name,
                    "measure": measure,
                    "mean": float(values.mean()),
                    "Pearson with ECE": _correlation(values, figures["ECE"]),
                    "Spearman with ECE": _correlation(_ranks(values), _ranks(figures["ECE"])),
                }
            )
    missing = missing_predictions()
    note = (
        f"{MINIBATCHES} minibatches of {BATCH} drawn without replacement, seed 0; logits are log probs / T, with T "
        "spread evenly in log T from 0.5 to 2; SB-ECE with power 1."
    )
    title = f"DECE against ECE over {MINIBATCHES} minibatches of {BATCH}"
    return Part(title, rows, notes=(note,) if missing is None else (note, missing))


def _minibatch_figures(probs: Tensor, targets: Tensor) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    log_probs = probs.clamp(min=torch.finfo(probs.dtype).tiny).log()
    exponents = torch.linspace(-1.0, 1.0, MINIBATCHES)
    rows = []
    for exponent in exponents.tolist():
        drawn = torch.randperm(len(targets), generator=generator)[:BATCH]
        logits, labels = log_probs[drawn] / 2.0**exponent, targets[drawn]
        rows.append(
            [
                float(expected_calibration_error(logits=logits, targets=labels)),
                float(dece(logits=logits, targets=labels)),
                float(soft_binned_ece(logits=logits, targets=labels, power=1.0, temperature=0.01)),
                float(soft_binned_ece(logits=logits, targets=labels, power=1.0, temperature=0.0001)),
            ]
        )
    columns = torch.tensor(rows, dtype=torch.float64).unbind(1)
    return dict(zip(("ECE", "DECE", "SB-ECE, T = 0.01", "SB-ECE, T = 0.0001"), columns, strict=True))


def _batch(num_classes: int, size: int = BATCH) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = 3.0 * torch.randn(size, num_classes, generator=generator)
    return logits.requires_grad_(), torch.randint(num_classes, (size,), generator=generator)


def _forward_backward(forward: Callable[[], Tensor], logits: Tensor) -> Callable[[], float]:
    def run() -> float:
        value = forward()
        torch.autograd.grad(value, logits)
        return value.item()

    return run


def _ranks(values: Tensor) -> Tensor:
    return values.argsort().argsort().double()


def _correlation(first: Tensor, second: Tensor) -> float:
    return float(torch.corrcoef(torch.stack((first, second)))[0, 1])
