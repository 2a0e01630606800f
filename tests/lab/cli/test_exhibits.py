"""Which tables and figures a command names, which parts of them, and the store of their runs."""

import pytest

from metacal.lab.cli.run import in_order, narrow
from metacal.lab.paper import EXHIBITS

OWN = ("image-methods", "equal-data", "outer-step", "published-code", "baselines", "synthetic-sweep")
SMALL = ["generalisation-gap", "--scale", "smoke"]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("cifar-10", {"cifar-10/resnet18", "cifar-10/resnet50"}),
        ("cifar-10/resnet18", {"cifar-10/resnet18"}),
        ("cifar-10/", {"cifar-10/resnet18", "cifar-10/resnet50"}),
        ("ResNet50", {"cifar-10/resnet50", "cifar-100/resnet50"}),
    ],
)
def test_rows_are_named_by_whole_words(rows, expected):
    (part,) = narrow([EXHIBITS["interleaved-ece"]], rows=[rows])
    assert {row.name for row in part.rows} == expected


def test_rows_across_domains_by_their_data_set():
    (part,) = narrow([EXHIBITS["cross-domain-ece"]], rows=["cifar-10"])
    assert [row.name for row in part.rows] == ["cifar-10-c/average", "cifar-10-c/worst-case"]


def test_what_is_asked_for_twice_is_there_once():
    table = EXHIBITS["main-ece"]
    assert narrow([table, table], seeds=[1, 1]) == narrow([table], seeds=[1])


@pytest.mark.parametrize(
    ("methods", "labels"),
    [
        (["ce"], ["CE"]),
        (["ce-equal-data", "MC"], ["CE, equal data", "MC"]),
        (["CE equal data"], ["CE, equal data"]),
    ],
)
def test_a_label_selects_its_column_alone(methods, labels):
    (part,) = narrow([EXHIBITS["equal-data"]], methods=methods)
    assert [column.label for column in part.columns] == labels


def test_a_method_no_column_is_called_after_selects_all_columns_of_it():
    (part,) = narrow([EXHIBITS["ablation"]], methods=["ce"])
    assert [column.label for column in part.columns] == ["M0: Vanilla CE [meta-loss -, loss CE]"]


def test_methods_by_what_stands_before_the_colon():
    (part,) = narrow([EXHIBITS["ablation"]], methods=["M1", "m5"])
    assert [column.settings["method"] for column in part.columns] == ["ce+dece", "mc"]


def test_the_simulated_study_has_no_rows_to_choose():
    names = [part.name for part in narrow(list(EXHIBITS.values()), rows=["svhn"])]
    assert "main-ece" in names
    assert not {"ablation", "synthetic", "synthetic-sweep"} & set(names)


def test_the_order_is_the_papers():
    tags = [exhibit.tag for exhibit in in_order(EXHIBITS.values())]
    numbers = [*(f"table-{n}" for n in range(1, 16)), *(f"figure-{n}" for n in range(1, 11))]
    others = [exhibit.name for exhibit in EXHIBITS.values() if not exhibit.number]
    assert tags == [*numbers, *others]
    assert [name for name in others if name in OWN] == list(OWN)


@pytest.mark.parametrize("words", [["validate"], ["run", *SMALL], ["show", *SMALL]])
def test_a_url_is_no_store(metacal, words):
    status, _, errors = metacal(*words, "--store", "s3://bucket/runs")
    assert status == 2
    assert "The store must be a folder, got 's3://bucket/runs'; mount the URL, or copy its files" in errors


def test_runs_of_another_version_are_named_and_not_used(metacal, tmp_path):
    old = tmp_path / "runs" / "digits-mlp-ce-seed0-00000000"
    old.mkdir(parents=True)
    (old / "spec.json").write_text('{"schema": 1, "hash": "0", "spec": {}}')
    status, _, errors = metacal("show", "generalisation-gap", "--store", f"{tmp_path}/runs")
    assert status == 0
    assert "1 runs in" in errors
    assert f"not used, such as {old.name}" in errors
    status, output, _ = metacal("validate", "--store", f"{tmp_path}/runs")
    assert status == 1
    assert "must be of schema 2, got 1" in output
