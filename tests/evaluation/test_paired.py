"""Differences of calibration errors where bins hold few samples."""

import torch

from metacal.evaluation import Predictions
from metacal.evaluation.paired import error_cells, error_difference
from metacal.evaluation.scores import Binned
from metacal.functional.binning import equal_width_statistics
from metacal.functional.intervals import EvenLine, HypothesisLine


def few_rows(confidence=0.9, seed=0):
    """60 rows of 10 classes, six in the top bin of each class, all right."""
    targets = torch.arange(60) % 10
    confidences = confidence + 0.02 * torch.rand(60, 1, generator=torch.Generator().manual_seed(seed))
    probs = ((1.0 - confidences) / 9).repeat(1, 10).scatter_(1, targets.unsqueeze(1), confidences)
    return Binned.of(Predictions.from_probs(probs, targets).inputs, 15)


def test_bins_of_a_few_right_answers_scatter_as_their_confidences_say():
    cells = error_cells(few_rows(), 0.1)["classwise_ece"]
    statistics, top = cells.statistics, cells.statistics.confidences > 0.5
    expected = statistics.weights * statistics.confidences * (1.0 - statistics.confidences) / statistics.total
    found = cells.groups.double().square().sum(dim=0)
    assert top.sum() == 10 and bool((found[top] > 0.8 * expected[top]).all())


def test_even_gaps_add_less_to_a_measured_error_than_the_likeliest_ones():
    generator = torch.Generator().manual_seed(0)
    confidences = torch.rand(150, generator=generator)
    statistics = equal_width_statistics(confidences, torch.rand(150, generator=generator) < confidences, 15)
    noise = torch.randn(2, 4000, 15, generator=generator)
    medians = []
    for kind in (HypothesisLine, EvenLine):
        line = kind(statistics, "l1", None, noise[0], torch.zeros_like(noise[1]))
        places = torch.linspace(-0.99, 0.99, 2001, dtype=torch.float64)
        place = places[(line.error(line.gaps(places)) - 0.03).abs().argmin()].unsqueeze(0)
        torch.testing.assert_close(line.error(line.gaps(place)).item(), 0.03, atol=2e-4, rtol=0.0)
        medians.append(line.draw(place).median().item())
    assert medians[1] < medians[0] - 0.002


def test_the_interval_of_a_classwise_difference_spans_both_lines():
    one, two = (error_cells(few_rows(*each), 0.1)["classwise_ece"] for each in ((0.9, 0), (0.8, 1)))
    value, low, high = error_difference(one, two, num_resamples=200)
    assert one.lines == (HypothesisLine, EvenLine) and low <= value <= high
    alone = [type(one)(each.statistics, each.groups) for each in (one, two)]
    _, least, most = error_difference(*alone, num_resamples=200)
    assert low <= least and high >= most
