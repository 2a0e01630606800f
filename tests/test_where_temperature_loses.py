"""The study of class-dependent over-confidence: its populations, its splits and what its rule makes of figures."""

import numpy as np
import pytest
import torch
from benchmarks.default.data import features_and_labels
from benchmarks.default.train import Run
from benchmarks.where_temperature_loses import CASES, METHODS, OURS, RIVALS, SHOWN, execute, table


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.population is not None])
def test_the_posterior_of_a_population_is_that_of_its_samples(name):
    """By Bayes' rule written out for a few points, and by the frequencies of labels among many."""
    population = CASES[name].population
    inputs, labels = population.draw(40_000, torch.Generator().manual_seed(1))
    probs = population.log_posterior(inputs).exp()
    for row, found in zip(inputs[:5].double().numpy(), probs):
        means, shares, flips = (
            values.double().numpy() for values in (population.means, population.shares, population.flips)
        )
        joint = [share * np.exp(-0.5 * np.sum((row - mean) ** 2)) for share, mean in zip(shares, means)]
        by_label = [sum(joint[c] * flips[c][label] for c in range(6)) for label in range(6)]
        np.testing.assert_allclose(found, np.array(by_label) / np.sum(joint), rtol=1e-6)
    for label in range(6):
        assert float((labels == label).double().mean()) == pytest.approx(float(probs[:, label].mean()), abs=0.01)


@pytest.mark.parametrize("name", CASES)
def test_a_split_is_the_seeds_and_has_every_class(name):
    case = CASES[name]
    one, two, other = (case.split(seed) for seed in (7, 7, 8))
    assert torch.equal(one.test[0], two.test[0]) and torch.equal(one.train[1], two.train[1])
    assert not torch.equal(one.train[0], other.train[0])
    assert (len(one.train[1]), len(one.held_out[1])) == (case.regime.train, case.regime.held_out)
    assert len(one.test[1]) > 350
    for _, labels in (one.train, one.held_out, one.test):
        assert set(labels.tolist()) == set(range(one.num_classes))


def test_labels_of_odd_digits_alone_are_noisy_and_stay_odd():
    true = {row.numpy().tobytes(): int(label) for row, label in zip(*features_and_labels("digits"))}
    inputs, labels = CASES["digits, noisy labels"].draw(torch.Generator().manual_seed(3))
    classes = torch.tensor([true[row.numpy().tobytes()] for row in inputs])
    is_odd = classes % 2 == 1
    assert torch.equal(labels[~is_odd], classes[~is_odd])
    assert bool((labels[is_odd] % 2 == 1).all())
    assert float((labels != classes)[is_odd].double().mean()) == pytest.approx(0.4, abs=0.05)
    assert int((classes == 0).sum()) > 2 * int((classes == 9).sum())


def test_one_run_has_all_that_the_tables_show(monkeypatch):
    case = CASES["overlap"]
    monkeypatch.setitem(
        CASES,
        "overlap",
        type(case)(type(case.regime)("simulated", 300, 200, 10_000, "mlp", 2), case.draw, case.population),
    )
    for method in METHODS:
        row = execute(Run("overlap", method, 700))
        for what, calibrator in (*SHOWN.values(), OURS):
            if what == method:
                assert 0.0 < row[calibrator]["nll"] < 10.0
        assert ("oracle" in row) == (method == "ce")


def rows_with(default, ce, rivals=0.5):
    """Ten seeds of every case; NLL and classwise ECE of the default and of CE + T, and of all other rivals."""
    rows = []
    for seed in range(10):
        noise = 0.001 * seed

        def figures(value, noise=noise):
            return dict.fromkeys(("nll", "classwise"), value + noise) | {"error": 0.2}

        for case in CASES:
            rest = {name: figures(rivals) for name in ("as it is", "VS", "SVS", "finish")}
            tests = {"T of the test set": figures(1.0), "VS of the test set": figures(0.9), "oracle": figures(0.1)}
            base = {"regime": case, "seed": seed, **rest, **tests}
            rows.append({**base, "method": "ce", "T": figures(ce)})
            rows.append({**base, "method": "ls", "T": figures(rivals)})
            rows.append(
                {**base, "method": "default", "T": figures(default), "finish": figures(default + 0.01 * (seed % 2))}
            )
    return rows


def test_the_rule_says_met_and_missed():
    better, worse = table(rows_with(0.4, 0.5)), table(rows_with(0.6, 0.5))
    assert better.count("- met:") == 6 and "MISSED" not in better
    assert "- a temperature is not enough in 4 of 4 cases" in better
    assert worse.count("- MISSED:") == 6
    assert "nothing above CE + T's beyond noise: nll: overlap, imbalanced noise" in worse
    assert all(f"nll - {rival}" in better for rival in RIVALS)
