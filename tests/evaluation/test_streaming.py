"""Streams: the figures of all rows at once, whatever the batches; a fair sample."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.evaluation.files import NAMES, columns, draw, write

from metacal import functional as F
from metacal.evaluation import PredictionFile, Predictions, StreamedScores, evaluate_file, evaluate_predictions
from metacal.evaluation.predictions import Reservoir
from metacal.functional.intervals import mean_interval, power_sums

FUNCTIONS = {
    "nll": F.negative_log_likelihood,
    "brier": F.brier_score,
    "ece": F.expected_calibration_error,
    "mce": lambda **keywords: F.expected_calibration_error(**keywords, norm="max"),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["logits", "probs"])
@pytest.mark.parametrize("by_columns", [True, False])
def test_same_as_the_functions(kind, dtype, by_columns):
    logits, probs, targets = draw(n=3000, num_classes=5, dtype=dtype)
    scores = logits if kind == "logits" else probs
    streamed = StreamedScores(is_logits=kind == "logits")
    for part, labels in zip(scores.split(700), targets.split(700)):
        streamed.update(part.t().contiguous().t() if by_columns else part, labels)
    keywords = {kind: scores, "targets": targets}
    figures = streamed.figures()
    for name, function in FUNCTIONS.items():
        assert figures[name] == pytest.approx(function(**keywords).item(), rel=1e-6), name
    assert streamed.figures()["accuracy"] == (scores.argmax(1) == targets).double().mean().item()
    assert torch.equal(streamed.statistics.counts, F.bin_statistics(**keywords).counts)
    if kind == "probs":
        assert torch.equal(streamed.statistics.confidence_units, F.bin_statistics(**keywords).confidence_units)
    losses = -torch.log_softmax(logits.double(), 1).gather(1, targets[:, None]).squeeze(1)
    assert streamed.intervals()["nll"] == pytest.approx(mean_interval(3000, power_sums(losses)), rel=1e-6)


def test_ties_are_settled_as_everywhere_else():
    probs = torch.tensor([[0.5, 0.5], [0.5, 0.5], [0.25, 0.75]])
    streamed = StreamedScores(is_logits=False)
    streamed.update(probs, torch.tensor([0, 1, 1]))
    assert streamed.figures()["accuracy"] == pytest.approx(2 / 3)
    logits = StreamedScores(is_logits=True)
    logits.update(torch.zeros(3, 4), torch.tensor([0, 1, 0]))
    assert logits.figures()["accuracy"] == pytest.approx(2 / 3)


def test_certain_and_hopeless_rows():
    streamed = StreamedScores(is_logits=False)
    streamed.update(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1]))
    assert streamed.figures()["nll"] == float("inf")
    assert streamed.figures()["brier"] == 1.0
    assert streamed.figures()["ece"] == 0.5
    huge = StreamedScores(is_logits=True)
    huge.update(torch.tensor([[1e4, 0.0], [1e4, 0.0]]), torch.tensor([0, 1]))
    assert huge.figures()["nll"] == pytest.approx(5e3)


def test_the_reservoir_is_fair_seeded_and_blind_to_batches():
    rows, targets = torch.arange(1000.0).unsqueeze(1), torch.arange(1000)
    kept = np.zeros(1000)
    for seed in range(300):
        reservoir = Reservoir(50, seed)
        for part, labels in zip(rows.split(90), targets.split(90)):
            reservoir.add(part, labels)
        scores, labels = reservoir.rows()
        assert len(labels) == 50
        assert torch.equal(scores.squeeze(1).long(), labels)
        assert torch.equal(reservoir.row_numbers, labels)
        assert labels.tolist() == sorted(set(labels.tolist()))
        assert reservoir.seen == 1000
        assert not reservoir.is_complete
        kept[labels.numpy()] += 1
    assert 13.5 < kept[:500].mean() < 16.5
    assert kept.max() < 35  # 15 expected of each
    assert abs(kept[::2].mean() - 15.0) < 1.0
    assert abs(kept[1::2].mean() - 15.0) < 1.0
    for size in (1, 7, 1000):
        other = Reservoir(50, seed=299)
        for part, some in zip(rows.split(size), targets.split(size)):
            other.add(part, some)
        assert torch.equal(other.rows()[1], labels)


def test_a_reservoir_that_was_looked_at_stays_fair():
    kept = np.zeros(600)
    for seed in range(400):
        reservoir = Reservoir(40, seed)
        for part in torch.arange(600).split(130):
            reservoir.add(part.double().unsqueeze(1), part)
            reservoir.rows()
        kept[reservoir.rows()[1].numpy()] += 1
    expected = 400 * 40 / 600
    assert all(abs(some.mean() - expected) < 1.6 for some in np.split(kept, 6))  # 0.5 is a standard deviation


def test_a_reservoir_that_is_large_enough_keeps_all():
    reservoir = Reservoir(10)
    reservoir.add(torch.zeros(10, 2), torch.arange(10))
    assert reservoir.is_complete
    assert reservoir.rows()[1].tolist() == list(range(10))


def test_a_large_file_is_sampled_and_says_so(tmp_path):
    _, probs, targets = draw(n=12_000)
    path = write(tmp_path / "said.parquet", columns(probs, targets))
    keywords = {"num_resamples": 40}
    whole = evaluate_file(PredictionFile(path), **keywords)
    sampled = evaluate_file(PredictionFile(path), sample=2000, **keywords)
    assert not whole.is_sampled
    assert whole.sample_rows == whole.rows == 12_000
    assert whole.to_dict()["sampled"] == []
    assert sampled.is_sampled
    assert (sampled.rows, sampled.sample_rows) == (12_000, 2000)
    for name in ("accuracy", "nll", "brier", "ece", "mce"):  # of all rows, either way
        assert sampled.figures[name] == pytest.approx(whole.figures[name], rel=1e-6), name
        width = whole.figures[f"{name}_high"] - whole.figures[f"{name}_low"]
        assert sampled.figures[f"{name}_high"] - sampled.figures[f"{name}_low"] == pytest.approx(width, rel=1e-4)
    for name in ("adaptive_ece", "smooth_ece"):
        assert sampled.figures[name] != whole.figures[name]
        assert sampled.figures[name] == pytest.approx(whole.figures[name], abs=0.03)
    named = sampled.to_dict()["sampled"]
    assert "adaptive_ece" in named
    assert "aurc" in named
    assert "ece" not in named
    assert "nll_low" not in named
    again = evaluate_file(PredictionFile(path), sample=2000, **keywords)
    assert again == sampled
    assert evaluate_file(PredictionFile(path), sample=2000, seed=1, **keywords) != sampled


def test_intervals_of_streamed_figures_stay_in_their_domain(tmp_path):
    probs, targets = torch.tensor([[0.999, 0.001]]).repeat(3000, 1), torch.zeros(3000, dtype=torch.int64)
    targets[7] = 1
    path = write(tmp_path / "said.parquet", columns(probs, targets, names=("a", "b")))
    figures = evaluate_file(PredictionFile(path), sample=200, num_resamples=10).figures
    assert figures["accuracy"] == pytest.approx(1 - 1 / 3000)
    assert figures["accuracy_high"] < 1.0
    assert 0.0 <= figures["brier_low"] < figures["brier"] < figures["brier_high"] < 0.01


def test_a_row_is_right_by_its_scores_and_the_first_of_equals():
    generator = torch.Generator().manual_seed(0)
    coarse = torch.randint(4, (5000, 6), generator=generator).double()  # many ties
    targets = torch.randint(6, (5000,), generator=generator)
    right = (coarse.argmax(1) == targets).double().mean().item()
    for is_logits in (True, False):
        streamed = StreamedScores(is_logits=is_logits)
        streamed.update(coarse if is_logits else (coarse + 0.1) / (coarse + 0.1).sum(1, keepdim=True), targets)
        assert streamed.figures()["accuracy"] == pytest.approx(right)


def test_extreme_logits_do_not_warn():
    streamed = StreamedScores(is_logits=True)
    streamed.update(torch.tensor([[3e38, -3e38, 0.0], [1e-40, 0.0, 0.0]]), torch.tensor([1, 0]))
    assert streamed.figures()["nll"] == pytest.approx(3e38)  # the mean of 6e38 and about 1
    assert streamed.figures()["accuracy"] == 0.5


def test_streamed_intervals_are_those_of_rows_in_memory():
    logits, _, targets = draw(n=3000)
    streamed = StreamedScores(is_logits=True)
    for rows in torch.arange(3000).split(700):
        streamed.update(1.5 * logits[rows], targets[rows])
    expected = evaluate_predictions(Predictions.from_logits(1.5 * logits, targets)).figures
    for name, found in streamed.intervals().items():
        assert found == pytest.approx((expected[f"{name}_low"], expected[f"{name}_high"]), abs=1e-6), name


def test_what_fits_in_the_sample_is_not_streamed(tmp_path, monkeypatch):
    updates = []
    monkeypatch.setattr(StreamedScores, "update", lambda self, scores, targets: updates.append(len(targets)))
    _, probs, targets = draw(n=3000)
    path = write(tmp_path / "said.parquet", columns(probs, targets))
    evaluation = evaluate_file(PredictionFile(path), sample=3000, num_resamples=10)
    assert updates == []
    assert replace(evaluation, read=None) == replace(
        evaluate_predictions(Predictions.from_probs(probs, targets, NAMES, "said"), num_resamples=10), path=str(path)
    )
