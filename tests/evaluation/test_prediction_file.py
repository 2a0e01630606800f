"""Reading predictions: every format gives the same, columns are found by the rules, names and numbers are kept."""

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from tests.evaluation.files import NAMES, columns, draw, write

from metacal.errors import InvalidFileError
from metacal.evaluation import PredictionFile, read_predictions, score_predictions

SUFFIXES = (".csv", ".tsv", ".parquet", ".feather", ".arrow", ".ipc", ".jsonl", ".ndjson")


def check(predictions, scores, targets, names=NAMES):
    assert predictions.class_names == tuple(names)
    assert predictions.targets.tolist() == targets.tolist()
    np.testing.assert_allclose(predictions.scores.numpy(), scores.numpy(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", ["probs", "logits"])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_with_a_column_for_each_class(suffix, kind, tmp_path):
    logits, probs, targets = draw()
    scores, prefix = (logits, "logit_") if kind == "logits" else (probs, "prob_")
    path = write(tmp_path / f"said{suffix}", columns(scores, targets, prefix))
    predictions = read_predictions(path)
    check(predictions, scores, targets)
    assert predictions.is_logits == (kind == "logits")
    assert predictions.name == "said"


@pytest.mark.parametrize("suffix", [".parquet", ".feather", ".arrow", ".jsonl"])
@pytest.mark.parametrize("kind", ["probs", "logits"])
def test_a_column_of_lists(suffix, kind, tmp_path):
    logits, probs, targets = draw()
    scores = logits if kind == "logits" else probs
    path = write(tmp_path / f"said{suffix}", {kind: scores.tolist(), "target": targets.tolist()})
    check(read_predictions(path), scores, targets, ("0", "1", "2"))
    check(read_predictions(path, class_names=NAMES), scores, targets)


def test_a_nested_column_names_the_classes(tmp_path):
    _, probs, targets = draw()
    rows = [dict(zip(NAMES, row)) for row in probs.tolist()]
    path = write(tmp_path / "said.jsonl", {"probs": rows, "label": [NAMES[t] for t in targets]})
    check(read_predictions(path), probs, targets)
    pa.parquet.write_table(pa.table({"probs": rows, "label": targets.numpy()}), tmp_path / "said.parquet")
    check(read_predictions(tmp_path / "said.parquet"), probs, targets)


@pytest.mark.parametrize("key", ["probs", "predictions", "logits"])
@pytest.mark.parametrize("target", ["targets", "ground_truth", "labels", "y"])
def test_npz_keys(key, target, tmp_path):
    logits, probs, targets = draw()
    scores = logits if key == "logits" else probs
    np.savez(tmp_path / "said.npz", **{key: scores.numpy(), target: targets.numpy().reshape(-1, 1)})
    predictions = read_predictions(tmp_path / "said.npz")
    check(predictions, scores, targets, ("0", "1", "2"))
    assert predictions.is_logits == (key == "logits")


def test_npz_with_names_of_ones_own(tmp_path):
    logits, _, targets = draw()
    labels = np.array([NAMES[t] for t in targets])
    np.savez(tmp_path / "said.npz", out=logits.numpy(), truth=labels, class_names=np.array(NAMES))
    check(read_predictions(tmp_path / "said.npz", logits="out", target="truth"), logits, targets)


@pytest.mark.parametrize(
    ("scores_file", "targets_file", "options"),
    [
        ("probs.npy", "targets.npy", {}),
        ("test_probs.npy", "test_labels.npy", {}),
        ("test_logits.npy", "test_ground_truth.npy", {}),
        ("net.npy", "truth.npy", {"probs": "net", "target": "truth.npy"}),
        ("net.npy", "net_targets.npy", {"logits": "*"}),
    ],
)
def test_npy_pairs(scores_file, targets_file, options, tmp_path):
    logits, probs, targets = draw()
    is_logits = "logits" in scores_file or "logits" in options
    np.save(tmp_path / scores_file, (logits if is_logits else probs).numpy())
    np.save(tmp_path / targets_file, targets.numpy())
    predictions = read_predictions(tmp_path / scores_file, **options)
    check(predictions, logits if is_logits else probs, targets, ("0", "1", "2"))
    assert predictions.is_logits == is_logits


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl", ".npz"])
def test_a_binary_models_single_column(suffix, tmp_path):
    _, probs, targets = draw(num_classes=2)
    path = write(tmp_path / f"said{suffix}", {"p": probs[:, 1].numpy(), "y": targets.numpy()})
    predictions = read_predictions(path)
    check(predictions, probs, targets, ("0", "1"))
    named = write(tmp_path / f"named{suffix}", {"prob": probs[:, 1].numpy(), "y": [("no", "yes")[t] for t in targets]})
    check(read_predictions(named, class_names=["no", "yes"]), probs, targets, ("no", "yes"))


def test_a_single_column_of_a_class_and_one_of_lists_under_such_a_name(tmp_path):
    _, probs, targets = draw(num_classes=2)
    path = write(tmp_path / "one.parquet", {"p_spam": probs[:, 1].numpy(), "y": targets.numpy()})
    check(read_predictions(path), probs, targets, ("not spam", "spam"))
    _, probs, targets = draw()
    path = write(tmp_path / "lists.parquet", {"p_spam": probs.tolist(), "y": targets.tolist()})
    check(read_predictions(path), probs, targets, ("0", "1", "2"))
    with pytest.raises(InvalidFileError, match="p_spam has 3 classes but 2 names were given"):
        read_predictions(path, class_names=["not spam", "spam"])


def test_a_single_logit(tmp_path):
    path = write(tmp_path / "said.csv", {"logit": np.array([2.0, -1.0]), "y": np.array([1, 0])})
    predictions = read_predictions(path)
    assert predictions.is_logits
    assert predictions.scores.tolist() == [[0.0, 2.0], [0.0, -1.0]]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_numbered_columns_are_ordered_and_targets_mean_their_numbers(suffix, tmp_path):
    _, probs, targets = draw(n=200, num_classes=12)
    order = sorted(range(12), key=str)  # 0, 1, 10, 11, 2, ...
    table = {f"p_{k}": probs[:, k].numpy() for k in order} | {"label": targets.numpy()}
    check(read_predictions(write(tmp_path / f"zero{suffix}", table)), probs, targets, map(str, range(12)))
    table = {f"p_{k + 1}": probs[:, k].numpy() for k in order} | {"label": targets.numpy() + 1}
    check(read_predictions(write(tmp_path / f"one{suffix}", table)), probs, targets, map(str, range(1, 13)))


@pytest.mark.parametrize(
    ("names", "options"),
    [
        (["score_cat", "score_dog", "score_eel"], {"probs": "score_*"}),
        (["cat", "dog", "eel"], {"probs": "cat,dog,eel"}),
        (["P_cat", "P_dog", "P_eel"], {}),
        (["probability_cat", "probability_dog", "probability_eel"], {}),
        (["probs.cat", "probs.dog", "probs.eel"], {}),
    ],
)
def test_columns_by_pattern_list_and_rule(names, options, tmp_path):
    _, probs, targets = draw()
    table = {"id": np.arange(60)} | {name: probs[:, k].numpy() for k, name in enumerate(names)}
    table |= {"truth": [NAMES[t] for t in targets]}
    check(read_predictions(write(tmp_path / "said.csv", table), target="truth", **options), probs, targets)


@pytest.mark.parametrize(
    "labels",
    [
        lambda targets: targets.double().numpy(),
        lambda targets: targets.to(torch.int8).numpy(),
        lambda targets: targets.numpy().astype(np.uint16),
        lambda targets: [str(int(t)) for t in targets],
        lambda targets: pa.array([NAMES[t] for t in targets]).dictionary_encode(),
    ],
    ids=["float", "int8", "uint16", "digits as text", "categories"],
)
def test_targets_of_many_kinds(labels, tmp_path):
    _, probs, targets = draw()
    table = columns(probs, targets) | {"label": labels(targets)}
    check(read_predictions(write(tmp_path / "said.parquet", table)), probs, targets)


def test_true_and_false(tmp_path):
    path = write(tmp_path / "said.parquet", {"p": np.array([0.2, 0.7]), "label": np.array([False, True])})
    assert read_predictions(path).targets.tolist() == [0, 1]


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".arrow", ".jsonl", ".npz"])
@pytest.mark.parametrize("names", [("False", "True"), ("True", "False"), ("TRUE", "FALSE"), ("0", "1"), ("1", "0")])
def test_true_and_false_are_the_classes_of_these_names(names, suffix, tmp_path):
    yes = names.index("1") if "1" in names else [name.lower() for name in names].index("true")
    chances = [np.array([0.25, 0.625, 0.125]), np.array([0.75, 0.375, 0.875])]
    truth = np.array([True, False, True])
    table = {f"p_{name}": chances[place == yes] for place, name in enumerate(names)} | {"label": truth}
    predictions = read_predictions(write(tmp_path / f"said{suffix}", table))
    said = predictions.scores[torch.arange(3), predictions.targets]
    assert said.tolist() == [0.75, 0.625, 0.875]


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl", ".npz"])
def test_true_and_false_are_not_guessed_to_be_other_names(suffix, tmp_path):
    table = {"p_yes": np.array([0.75, 0.25]), "p_no": np.array([0.25, 0.75]), "label": np.array([True, False])}
    path = write(tmp_path / f"said{suffix}", table)
    with pytest.raises(InvalidFileError, match=r"row 1: label is '[tT]rue', not one of the classes 'yes', 'no'; fix"):
        read_predictions(path)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_numbers_that_the_caller_names_the_classes_by(suffix, tmp_path):
    table = {"p_a": np.array([0.75, 0.25]), "p_b": np.array([0.25, 0.75]), "label": np.array([7, 3])}
    path = write(tmp_path / f"said{suffix}", table)
    assert read_predictions(path, class_names=["7", "3"]).targets.tolist() == [0, 1]
    with pytest.raises(InvalidFileError, match="row 1: label is 7, classes are 1, 0; fix"):
        read_predictions(path, class_names=["1", "0"])


def test_numbers_are_positions_among_names_that_an_archive_holds(tmp_path):
    probs, targets = np.array([[0.75, 0.25], [0.25, 0.75], [0.5, 0.5]]), np.array([0, 1, 1])
    np.savez(tmp_path / "said.npz", probs=probs, targets=targets, class_names=np.array(["1", "0"]))
    for names in (None, ["1", "0"], ["7", "3"]):
        assert read_predictions(tmp_path / "said.npz", class_names=names).targets.tolist() == [0, 1, 1]


def test_names_that_look_as_if_there_were_none(tmp_path):
    path = tmp_path / "said.csv"
    path.write_text("p_None,p_NA,p_null,label\n0.5,0.25,0.25,NA\n0.5,0.25,0.25,None\n0.5,0.25,0.25,null\n")
    assert read_predictions(path).targets.tolist() == [1, 0, 2]
    path.write_text("p_a,p_b,label\n0.5,0.5,a\nNA,0.5,b\n")
    with pytest.raises(InvalidFileError, match="row 2: column p_a holds 'NA', not a number"):
        read_predictions(path)


def test_semicolons_byte_order_marks_and_gzip(tmp_path):
    content = "\ufeffp_cat;p_dog;label\n0.9;0.1;cat\n0.3;0.7;dog\n".encode()
    (tmp_path / "said.csv").write_bytes(content)
    assert read_predictions(tmp_path / "said.csv").targets.tolist() == [0, 1]
    (tmp_path / "said.csv.gz").write_bytes(gzip.compress(content))
    assert read_predictions(tmp_path / "said.csv.gz").class_names == ("cat", "dog")
    (tmp_path / "said.jsonl.gz").write_bytes(gzip.compress(b'{"probs": [0.9, 0.1], "y": 1}\n'))
    assert read_predictions(tmp_path / "said.jsonl.gz").targets.tolist() == [1]


@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        ("p_cat, p_dog, label\n0.9, 0.1, cat\n0.3, 0.7, dog \n", "utf-8"),  # a space after each comma
        ("p_cat;p_dog;label\n0,9;0,1;cat\n0,3;0,7;dog\n", "utf-8"),  # a spreadsheet's decimal commas
        ("p_cat\tp_dog\tlabel\r\n0,9\t0,1\tcat\r\n0,3\t0,7\tdog\r\n", "utf-8-sig"),
        ("p_cat|p_dog|label\r0.9|0.1|cat\r0.3|0.7|dog\r", "utf-8"),  # bars, and an old Mac's line ends
    ],
)
def test_csv_as_other_programs_write_it(content, encoding, tmp_path):
    path = tmp_path / "said.csv"
    path.write_bytes(content.encode(encoding))
    check(read_predictions(path), torch.tensor([[0.9, 0.1], [0.3, 0.7]]).double(), torch.tensor([0, 1]), ("cat", "dog"))


def test_json_lines_with_a_byte_order_mark(tmp_path):
    path = tmp_path / "said.jsonl"
    path.write_text('{"probs": [0.25, 0.75], "label": 1}\n', encoding="utf-8-sig")
    check(read_predictions(path), torch.tensor([[0.25, 0.75]]), torch.tensor([1]), ("0", "1"))


def test_true_and_false_as_text(tmp_path):
    path = tmp_path / "said.csv"
    path.write_text("p,label\n0.75,True\n0.25,False\n0.5,true\n", encoding="utf-8")
    assert read_predictions(path).targets.tolist() == [1, 0, 1]


@pytest.mark.parametrize("suffix", [".parquet", ".npz"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_float_dtypes(dtype, suffix, tmp_path):
    _, probs, targets = draw()
    narrow = torch.from_numpy(probs.numpy().astype(dtype))
    if suffix == ".npz":
        np.savez(tmp_path / "said.npz", probs=narrow.numpy(), y=targets.numpy())
    else:
        write(tmp_path / "said.parquet", columns(narrow, targets, as_names=False) | {})
    predictions = read_predictions(tmp_path / f"said{suffix}")
    assert predictions.scores.dtype == (torch.float64 if dtype == np.float64 else torch.float32)
    np.testing.assert_allclose(
        predictions.scores.numpy(), narrow.double().numpy(), rtol=3e-3 if dtype == np.float16 else 0
    )


@pytest.mark.parametrize("suffix", [".parquet", ".npz"])
def test_half_precision_of_many_classes_is_made_to_sum_to_1(suffix, tmp_path):
    _, probs, targets = draw(n=50, num_classes=400)
    half = probs.half()
    assert (half.double().sum(1) - 1.0).abs().max() < 1e-2
    half[0, 0] += 0.004
    if suffix == ".npz":
        np.savez(tmp_path / "said.npz", probs=half.numpy(), y=targets.numpy())
    else:
        write(tmp_path / "said.parquet", columns(half, targets, names=list(map(str, range(400))), as_names=False))
    predictions = read_predictions(tmp_path / f"said{suffix}")
    np.testing.assert_allclose(predictions.scores.sum(1).numpy(), 1.0, atol=1e-5)


def test_a_named_target_may_be_missing_where_none_is_needed(tmp_path):
    path = write(tmp_path / "said.csv", {"p": np.array([0.5]), "label": np.array([1]), "y": np.array([1])})
    assert not PredictionFile(path, target="truth", needs_target=False).has_targets
    assert not PredictionFile(path, needs_target=False).has_targets  # two candidates
    assert PredictionFile(path, target="y", needs_target=False).has_targets


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_batches_change_nothing(suffix, tmp_path):
    _, probs, targets = draw(n=5000)
    file = PredictionFile(write(tmp_path / f"said{suffix}", columns(probs, targets)))
    pieces = list(file.batches(read=10, chunk=10))
    assert [len(piece.scores) for piece in pieces] == [1024, 1024, 1024, 1024, 904]
    np.testing.assert_allclose(torch.cat([piece.scores for piece in pieces]), probs, rtol=1e-6, atol=1e-7)
    assert torch.cat([piece.targets for piece in pieces]).tolist() == targets.tolist()


def test_a_file_without_targets_is_read_where_they_are_not_needed(tmp_path):
    _, probs, targets = draw()
    table = columns(probs, targets)
    del table["label"]
    path = write(tmp_path / "said.parquet", table)
    file = PredictionFile(path, needs_target=False)
    assert not file.has_targets
    assert next(file.batches()).targets is None
    with pytest.raises(InvalidFileError, match="no column for the target"):
        PredictionFile(path)


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "accuracy", "ece"),
    [("wideresnet-16-4-cifar-10", 0.9109, 0.0537), ("densenet-bc-100-cifar-100", 0.7541, 0.1422)],
)
def test_real_predictions(data_folder, name, accuracy, ece):
    predictions = read_predictions(data_folder / "predictions" / f"{name}.npz")
    scores = score_predictions(probs=predictions.probs, targets=predictions.targets)
    assert (round(scores.accuracy, 4), round(scores.ece, 4)) == (accuracy, ece)
    assert predictions.name == name


@pytest.mark.parametrize("words", ["y_prob", "y_pred_proba", "score", "scores", "softmax"])
@pytest.mark.parametrize("target", ["y_test", "class"])
def test_names_that_other_tools_write(words, target, tmp_path):
    _, probs, targets = draw()
    path = write(tmp_path / "one.parquet", {words: probs.tolist(), target: targets.tolist()})
    check(read_predictions(path), probs, targets, ("0", "1", "2"))
    path = write(tmp_path / "each.csv", columns(probs, targets, f"{words}_", target=target))
    check(read_predictions(path), probs, targets)


@pytest.mark.parametrize("pattern", ["predicted_probability_{}", "pred_proba_{}", "prob_class_{}", "{}_prob", "P({})"])
@pytest.mark.parametrize("target", ["reference", "true", "gt", "gold_label", "expected"])
def test_more_names_that_other_tools_write(pattern, target, tmp_path):
    _, probs, targets = draw()
    table = {pattern.format(name): probs[:, k].numpy() for k, name in enumerate(NAMES)}
    table[target] = [NAMES[t] for t in targets]
    check(read_predictions(write(tmp_path / "said.csv", table)), probs, targets)


def test_predictions_and_references_as_hugging_face_evaluate_calls_them(tmp_path):
    _, probs, targets = draw()
    path = write(tmp_path / "said.npz", {"predictions": probs.numpy(), "references": targets.numpy()})
    check(read_predictions(path), probs, targets, "012")


def test_a_trainers_logits_and_label_ids(tmp_path):
    logits, _, targets = draw()
    path = write(tmp_path / "said.npz", {"logits": logits.numpy(), "label_ids": targets.numpy()})
    check(read_predictions(path), logits, targets, "012")


def test_numbered_columns_as_scikit_learn_writes_them(tmp_path):
    _, probs, targets = draw(num_classes=10)
    table = columns(probs, targets, "", list(map(str, range(10))), "y_test", as_names=False)
    check(read_predictions(write(tmp_path / "said.csv", table)), probs, targets, map(str, range(10)))


def test_log_probabilities_are_logits(tmp_path):
    _, probs, targets = draw()
    path = write(tmp_path / "said.csv", columns(probs.log(), targets, "logprob_"))
    file = PredictionFile(path)
    check(read_predictions(path), probs.log(), targets)
    assert file.is_logits
    assert file.describe()["kind"] == "log-probabilities"


def test_percentages(tmp_path):
    _, probs, targets = draw(dtype=torch.float64)
    path = write(tmp_path / "said.csv", columns(100 * probs, targets))
    check(read_predictions(path), probs, targets)
    path = write(tmp_path / "binary.csv", {"p": np.array([87.0, 5.0]), "label": np.array([1, 0])})
    assert read_predictions(path, percent=True).scores[:, 1].tolist() == [0.87, 0.05]


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl", ".npz"])
def test_labels_that_count_from_1(suffix, tmp_path):
    _, probs, targets = draw()
    table = columns(probs, targets + 1, as_names=False) if suffix != ".npz" else {"probs": probs, "y": targets + 1}
    file = PredictionFile(write(tmp_path / f"said{suffix}", table))
    assert torch.cat([batch.targets for batch in file.batches()]).tolist() == targets.tolist()
    assert file.describe()["notes"] == ["labels count from 1: there is a 3 and no 0"]


def test_what_was_read_is_described(tmp_path):
    _, probs, targets = draw()
    file = PredictionFile(write(tmp_path / "said.csv", columns(probs, targets)))
    list(file.batches())
    found = file.describe()
    assert found["scores"] == ["p_cat", "p_dog", "p_eel"]
    assert (found["rows"], found["num_classes"], found["target"]) == (60, 3, "label")
    assert (found["kind"], found["decided"]) == ("probabilities", "by name")
