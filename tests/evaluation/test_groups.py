"""Figures group by group: what the groups are, that each group's figures are those of its rows alone, and the test."""

import json

import numpy as np
import pytest
import torch
from scipy.stats import chi2
from tests.evaluation.files import columns, draw, write

import metacal
from metacal.errors import InvalidValueError
from metacal.evaluation import PredictionFile, evaluate_file, score_predictions
from metacal.evaluation.groups import as_column, compare_groups, label_groups
from metacal.evaluation.tables import Strings, join_columns

FAST = ["--resamples", "10"]


def labels_of(values):
    return label_groups("column", as_column(values))


@pytest.mark.parametrize(
    ("values", "names", "counts"),
    [
        (["b"] * 10 + ["a"] * 20, ("b", "a"), [10, 20]),
        ([True] * 10 + [False] * 12, ("False", "True"), [12, 10]),
        (np.repeat([1, 2], 10), ("1", "2"), [10, 10]),
        (np.repeat([0.5, np.nan], 10), ("0.5", "(missing)"), [10, 10]),
        (["a"] * 10 + [None] * 10 + [float("nan")], ("a", "(missing)"), [10, 11]),
        (["a"] * 10 + ["b"] * 10 + ["c", "d", "d"], ("a", "b", "(other)"), [10, 10, 3]),
        (np.arange(100), ("0 to 19", "20 to 39", "40 to 59", "60 to 79", "80 to 99"), [20] * 5),
        (np.r_[np.zeros(80), np.arange(1, 41)], ("0 to 0", "17 to 40", "1 to 16"), None),
        (np.repeat(np.array(["2026-01-01", "2026-01-02"], "M8[D]"), 10), ("2026-01-01", "2026-01-02"), [10, 10]),
    ],
)
def test_values_as_groups(values, names, counts):
    labels = labels_of(values)
    assert sorted(labels.names) == sorted(names)
    found = dict(zip(labels.names, torch.bincount(labels.codes).tolist(), strict=True))
    if counts is not None:
        assert [found[name] for name in names] == counts


def test_many_groups_are_the_largest_and_the_rest():
    labels = labels_of([f"g{k:02d}" for k in range(60) for _ in range(20 + k)])
    assert len(labels.names) == 50
    assert labels.names[-1] == "(other)"
    assert "g11" in labels.names
    assert "g10" not in labels.names
    assert labels.notes == ("11 groups with the fewest rows are counted as (other)",)
    assert "60 different numbers, cut into parts of equal size" in labels_of(np.repeat(np.arange(60), 20)).notes


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([f"row {k}" for k in range(90)], "got column with 90 different values in 90 rows"),
        (["a"] * 30, "got column with 1 different values in 30 rows"),
        (np.zeros((30, 2)), "`by` must have one value a row, got shape"),
    ],
)
def test_no_groups(values, message):
    with pytest.raises(InvalidValueError) as caught:
        labels_of(values)
    assert message in str(caught.value)


def test_batches_of_a_column_join():
    joined = join_columns([np.array([1.0, np.nan]), Strings(np.array([0, -1, 1]), ("b", "1"))])
    assert [None if code < 0 else joined.values[code] for code in joined.codes] == ["1", None, "b", None, "1"]


def test_every_figure_is_that_of_the_groups_rows():
    _, probs, targets = draw(n=400)
    group = np.array(["x", "y", "y", "y"] * 100)
    evaluation = metacal.evaluate(probs=probs, targets=targets, by=group, num_resamples=10)
    assert [part.rows for part in sorted(evaluation.groups.groups)] == [100, 300]
    for part in evaluation.groups.groups:
        rows = torch.from_numpy(group == part.name)
        alone = score_predictions(probs=probs[rows], targets=targets[rows]).as_dict()
        for name in alone.keys() - {"ece_low", "ece_high"}:
            assert part.figures[name] == pytest.approx(alone[name], abs=1e-12), name
        assert part.confidence == pytest.approx(probs[rows].double().amax(1).mean().item(), abs=1e-7)
    frame = evaluation.groups.frame()
    assert frame.loc["x", "ece"] == next(p.figures["ece"] for p in evaluation.groups.groups if p.name == "x")
    whole = evaluation.to_dict()
    assert whole["groups"]["test"]["degrees"] == 1
    assert whole["groups"]["groups"][0]["rows"] == evaluation.groups.groups[0].rows
    assert whole["worst_group_ece"] == evaluation.groups.groups[0].figures["ece"]
    with pytest.raises(InvalidValueError, match="`by` must hold 400 values, one a row, got 300"):
        metacal.evaluate(probs=probs, targets=targets, by=group[:300])


def test_multicalibration_error_is_the_mean_gap_over_bins_and_groups():
    _, probs, targets = draw(n=500)
    group = np.random.default_rng(0).integers(3, size=500)
    evaluation = metacal.evaluate(probs=probs, targets=targets, by=group, num_resamples=10)
    confidence, predicted = probs.double().max(1)
    right = (predicted == targets).double().numpy()
    bins = np.ceil(confidence.numpy() * 15).astype(int)
    error = sum(
        abs((right - confidence.numpy())[(group == g) & (bins == b)].sum()) for g in range(3) for b in range(16)
    )
    assert evaluation.figures["multicalibration_error"] == pytest.approx(error / 500, abs=1e-8)


def test_the_worst_group_is_first_and_small_ones_do_not_take_its_place():
    rng = np.random.default_rng(0)
    group = np.array(["good"] * 1000 + ["bad"] * 1000 + ["tiny"] * 12)
    right = np.concatenate((rng.random(1000) < 0.9, rng.random(1000) < 0.75, [False] * 2 + [True] * 10))
    probs = np.tile([0.9, 0.1], (2012, 1)) + rng.uniform(-0.02, 0.02, (2012, 1)) * [1, -1]
    found = metacal.evaluate(probs=probs, targets=(~right).astype(int), by=group).groups
    assert found.groups[0].name == "bad"
    assert found.groups[0].verdict.startswith("Over-confident: it says 90.")
    assert found.differ
    assert found.verdict.startswith("Groups of by differ beyond chance: at the same P(class 1), some are right")


def test_statistic_against_permutations():
    """The covariance is that of all permutations within strata: the mean of the statistic is its degrees of freedom."""
    rng = np.random.default_rng(0)
    confidences, right = torch.from_numpy(rng.uniform(0.5, 1.0, 60)), torch.from_numpy(rng.random(60) < 0.7)
    codes = torch.from_numpy(rng.integers(3, size=60))
    strata = 1  # permuted as a whole
    drawn = [
        compare_groups(confidences, right, codes[torch.from_numpy(rng.permutation(60))], strata) for _ in range(4000)
    ]
    statistics = np.array([each[0] for each in drawn])
    assert {each[1] for each in drawn} == {2}
    assert statistics.mean() == pytest.approx(2.0, abs=0.1)
    found = compare_groups(confidences, right, codes, strata)
    assert found[2] == pytest.approx(chi2.sf(found[0], 2), abs=1e-12)
    assert found[2] == pytest.approx((statistics >= found[0]).mean(), abs=0.04)


def test_groups_without_confidences_in_common():
    confidences = torch.tensor([0.6] * 20 + [0.9] * 20)
    assert compare_groups(confidences, torch.arange(40) % 2 == 0, torch.arange(40) // 20)[1] == 0


@pytest.mark.parametrize("over", [0.0, 0.5])
def test_size_of_the_test(over):
    """Groups that are alike are called different in about 5 % of data sets, whatever their confidence."""
    rng = np.random.default_rng(1)
    rejected = 0
    for _ in range(600):
        codes = rng.choice(5, 300, p=[0.4, 0.3, 0.15, 0.1, 0.05])
        z = rng.normal(1.5 + 0.3 * codes, 1.2)
        confidences, truth = 1 / (1 + np.exp(-z)), 1 / (1 + np.exp(-(1 - over) * z))
        right = rng.random(300) < truth
        rejected += compare_groups(*map(torch.from_numpy, (confidences, right, codes)))[2] < 0.05
    assert 0.025 < rejected / 600 < 0.075


def test_one_group_that_is_off_is_found():
    rng = np.random.default_rng(2)
    found = 0
    for _ in range(100):
        codes = rng.integers(5, size=1000)
        confidences = rng.uniform(0.5, 1.0, 1000)
        right = rng.random(1000) < confidences - 0.15 * (codes == 3)
        found += compare_groups(*map(torch.from_numpy, (confidences, right, codes)))[2] < 0.05
    assert found > 90


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl", ".npz"])
def test_a_column_of_a_file(metacal, tmp_path, suffix):
    _, probs, targets = draw(n=300)
    country = ["de", "fr", "it"] * 100
    if suffix == ".npz":
        table = {"probs": probs.numpy(), "targets": targets.numpy(), "country": np.array(country)}
    else:
        table = columns(probs, targets) | {"country": country, "size": np.arange(300) % 4}
    path = write(tmp_path / f"said{suffix}", table)
    status, output, errors = metacal("evaluate", path, "--by", "country", "--json", tmp_path / "scores.json", *FAST)
    assert (status, errors) == (0, "")
    found = json.loads((tmp_path / "scores.json").read_text())
    assert {group["name"]: group["rows"] for group in found["groups"]["groups"]} == {"de": 100, "fr": 100, "it": 100}
    assert "By country, the worst first" in output
    assert found["groups"]["verdict"] in output
    one = next(group for group in found["groups"]["groups"] if group["name"] == "fr")
    alone = score_predictions(probs=probs[1::3], targets=targets[1::3])
    assert one["nll"] == pytest.approx(alone.nll, abs=1e-6)
    if suffix != ".npz":
        assert [group["rows"] for group in _json(metacal, path, "size", tmp_path)["groups"]["groups"]] == [75] * 4


def _json(metacal, path, column, folder):
    assert metacal("evaluate", path, "--by", column, "--json", folder / "scores.json", *FAST)[0] == 0
    return json.loads((folder / "scores.json").read_text())


def test_groups_of_a_sample_and_of_confidences_alone(metacal, tmp_path):
    _, probs, targets = draw(n=1000)
    path = write(tmp_path / "said.csv", columns(probs, targets) | {"half": ["a"] * 500 + ["b"] * 500})
    evaluation = evaluate_file(PredictionFile(path, by="half"), sample=200, num_resamples=10)
    assert sum(group.rows for group in evaluation.groups.groups) == 200
    names = np.array(["a"] * 500 + ["b"] * 500)[evaluation.predictions.row_numbers]
    assert sorted((group.name, group.rows) for group in evaluation.groups.groups) == [
        (name, int((names == name).sum())) for name in "ab"
    ]
    top = tmp_path / "top.csv"
    top.write_text("confidence,correct,kind\n" + "0.9,1,x\n0.6,0,y\n" * 40)
    found = _json(metacal, top, "kind", tmp_path)["groups"]
    assert {group["name"]: group["accuracy"] for group in found["groups"]} == {"x": 1.0, "y": 0.0}


def test_gates_on_groups(metacal, tmp_path):
    _, probs, targets = draw(n=300)
    path = write(tmp_path / "said.csv", columns(probs, targets) | {"country": ["de", "fr", "it"] * 100})
    gate = ["--fail-above", "worst_group_ece_low=0.5", "--fail-below", "groups_p_value=1e-9"]
    assert metacal("evaluate", path, "--by", "country", *gate, *FAST)[0] == 0
    assert metacal("evaluate", path, "--by", "country", "--fail-above", "multicalibration_error=0.001", *FAST)[0] == 1
    status, _, errors = metacal("evaluate", path, *gate, *FAST)
    assert status == 2
    assert "got 'worst_group_ece_low'" in errors


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("town", "said.csv: no column town to group by; `by` (--by) can be p_cat, p_dog, p_eel, label, id"),
        ("id", "`by` (--by) must name a column with at least two groups of 10 rows or more, got id with 60 different"),
    ],
)
def test_columns_that_do_not_group(metacal, tmp_path, column, message):
    _, probs, targets = draw()
    path = write(tmp_path / "said.csv", columns(probs, targets) | {"id": [f"row {k}" for k in range(60)]})
    status, output, errors = metacal("evaluate", path, "--by", column, *FAST)
    assert (status, output) == (2, "")
    assert errors.count("\n") == 1
    assert message in errors
