"""Small prediction files in every format, good ones and bad ones."""

import gzip
import json
import pickle
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import torch

NAMES = ("cat", "dog", "eel")


def draw(n=60, num_classes=3, seed=0, dtype=torch.float32):
    """Logits, probs and targets."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2.0 * torch.randn(n, num_classes, generator=generator, dtype=torch.float64)
    targets = torch.multinomial(torch.softmax(logits, 1), 1, generator=generator).squeeze(1)
    return logits.to(dtype), torch.softmax(logits, 1).to(dtype), targets


def columns(scores, targets, prefix="p_", names=NAMES, target="label", as_names=True):
    """A dictionary of columns, the target by name or by number."""
    table = {f"{prefix}{name}": scores[:, k].numpy() for k, name in enumerate(names)}
    table[target] = [names[t] for t in targets] if as_names else targets.numpy()
    return table


def write(path, table):
    """Write columns to a file of the format that its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    suffix = path.suffix
    if suffix in (".jsonl", ".ndjson"):
        rows = zip(*(np.asarray(column).tolist() for column in table.values()))
        path.write_text("".join(json.dumps(dict(zip(table, row))) + "\n" for row in rows))
    elif suffix == ".npz":
        np.savez(path, **{name: np.asarray(column) for name, column in table.items()})
    elif suffix in (".csv", ".tsv"):
        options = pa.csv.WriteOptions(delimiter="\t" if suffix == ".tsv" else ",")
        pa.csv.write_csv(pa.table(table), path, options)
    elif suffix == ".parquet":
        pa.parquet.write_table(pa.table(table), path)
    elif suffix == ".feather":
        pa.feather.write_feather(pa.table(table), str(path))
    else:
        rows = pa.table(table)
        opener = pa.ipc.new_file if suffix == ".arrow" else pa.ipc.new_stream
        with pa.OSFile(str(path), "wb") as sink, opener(sink, rows.schema) as writer:
            writer.write_table(rows)
    return path


def text(name, content):
    """A maker of a text file."""
    return lambda folder: _put(folder / name, content.encode())


def _put(path, content):
    path.write_bytes(content)
    return path


def _npz(folder, **arrays):
    np.savez(folder / "bad.npz", **arrays)
    return folder / "bad.npz"


def _saved(folder, value):
    torch.save(value, folder / "bad.pt")
    return folder / "bad.pt"


def _inflated(folder):
    path = _saved(folder, {"logits": torch.rand(5, 2), "targets": torch.zeros(5, dtype=torch.long)})
    data = bytearray(path.read_bytes())
    size = data.index(b"PK\x01\x02") + 24  # of the first member, in the archive's directory
    data[size : size + 4] = (2**26).to_bytes(4, "little")
    return _put(path, bytes(data))


def _twice(path):
    batch = pa.table([[0.5], [0.5], [0.0], ["b"]], names=["p_a", "p_b", "p_b", "label"])
    pa.parquet.write_table(batch, path)
    return path


def _fields_and_values(path):
    fields = pa.array([{"cat": 0.5, "dog": 0.5}])
    table = pa.Table.from_arrays([fields, *(pa.array([0.5]),) * 2, pa.array([0])], ["p_dog", "p_dog", "p_cat", "label"])
    pa.parquet.write_table(table, path)
    return path


def _text_at(path, offsets):
    """A column of text whose values start and end anywhere."""
    write(path, {"p_a": [0.5, 0.5], "p_b": [0.5, 0.5], "label": ["a", "bbbbbb"]})
    good, bad = (np.array(each, np.int32).tobytes() for each in ([0, 1, 7], offsets))
    assert path.read_bytes().count(good) == 1
    return _put(path, path.read_bytes().replace(good, bad))


def _damaged(folder):
    whole = write(folder / "whole.arrow", columns(*draw()[1:])).read_bytes()
    return _put(folder / "bad.arrow", whole[: len(whole) // 2])


def _objects(folder):
    np.savez(folder / "bad.npz", probs=np.array([{"a": 1}, None], dtype=object), targets=np.array([0, 1]))
    return folder / "bad.npz"


def _truncated(folder):
    path = write(folder / "whole.parquet", columns(*draw()[1:]))
    return _put(folder / "bad.parquet", path.read_bytes()[:-60])


def _claiming(folder, name, header):
    """An array of four numbers under a header of one's own, as NPY or inside an NPZ."""
    text = (header + "\n").encode("latin-1")
    array = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(32)
    if name.endswith(".npy"):
        np.save(folder / "targets.npy", np.array([0, 1]))
        return _put(folder / name, array)
    with zipfile.ZipFile(folder / name, "w") as archive:
        archive.writestr("probs.npy", array)
    return folder / name


def claiming(name, shape="(2, 2)", dtype="<f8", rest=", "):
    """A maker of an array file whose header says so."""
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}{rest}}}"
    return lambda folder: _claiming(folder, name, header)


def _models(folder):
    return _npz(folder, human_probs=PROBS, resnet=PROBS, vgg=PROBS, targets=np.array([0, 1]), shares=PROBS[:, 0])


PROBS = np.array([[0.5, 0.5], [0.9, 0.1]])

BAD_FILES = {
    # name: (maker of the file, options, what the one line must say)
    "missing file": (lambda folder: folder / "nowhere.csv", [], "nowhere.csv: no such file"),
    "folder": (lambda folder: folder, [], "is a folder; name a file in it"),
    "unknown extension": (text("bad.xlsx", "x"), [], "bad.xlsx: unknown extension .xlsx; save as one of .csv"),
    "no extension": (text("bad", "x"), [], "unknown extension (none); save as one of"),
    "empty csv": (text("bad.csv", ""), [], "bad.csv: is empty (0 bytes); write the predictions again"),
    "empty parquet": (text("bad.parquet", ""), [], "bad.parquet: is empty (0 bytes)"),
    "empty npz": (text("bad.npz", ""), [], "bad.npz: is empty (0 bytes)"),
    "empty jsonl": (text("bad.jsonl", ""), [], "bad.jsonl: is empty (0 bytes)"),
    "blank jsonl": (text("bad.jsonl", "\n\n"), [], "bad.jsonl: holds no rows"),
    "header only": (text("bad.csv", "p_a,p_b,label\n"), [], "bad.csv: holds no rows, only a header"),
    "no rows parquet": (
        lambda folder: write(folder / "bad.parquet", columns(*(part[:0] for part in draw()[1:]))),
        [],
        "bad.parquet: holds no rows, only a header",
    ),
    "no rows npz": (lambda folder: _npz(folder, probs=PROBS[:0], targets=np.zeros(0, int)), [], "holds no rows"),
    "not parquet": (text("bad.parquet", "p_a,p_b\n1,2\n"), [], "bad.parquet: is not a whole .parquet file"),
    "truncated parquet": (_truncated, [], "bad.parquet: is not a whole .parquet file"),
    "not arrow": (text("bad.arrow", "nothing of the kind"), [], "bad.arrow: is not a whole .arrow file"),
    "not npz": (text("bad.npz", "PK nothing of the kind"), [], "bad.npz: is not a whole NPZ archive"),
    "pickle as npz": (
        lambda folder: _put(folder / "bad.npz", pickle.dumps({"probs": [1]})),
        [],
        "bad.npz: holds pickled objects, which could run code when opened: refused; save plain arrays with np.savez",
    ),
    "pickle as npy": (
        lambda folder: _put(folder / "probs.npy", pickle.dumps([1])),
        [],
        "probs.npy: holds pickled objects, which could run code when opened: refused",
    ),
    "objects in npz": (_objects, [], "bad.npz: holds pickled objects"),
    "no target column": (
        text("bad.csv", "p_a,p_b,verdict\n0.5,0.5,a\n"),
        [],
        "bad.csv: no column for the target; name it with `target` (--target): p_a, p_b, verdict",
    ),
    "two target columns": (
        text("bad.csv", "p_a,p_b,label,y\n0.5,0.5,a,0\n"),
        [],
        "bad.csv: several columns could be the target (label, y); name it with `target` (--target)",
    ),
    "named target is not there": (
        text("bad.csv", "p_a,p_b,label\n0.5,0.5,a\n"),
        ["--target", "truth"],
        "bad.csv: no column truth for the target; `target` (--target) can be p_a, p_b, label",
    ),
    "no score columns": (
        text("bad.csv", "a,b,label\n0.5,0.5,a\n"),
        [],
        "bad.csv: no columns for the scores; name them with `probs` (--probs 'p_*') or `logits` (--logits 'z_*'): a, b",
    ),
    "two groups of scores": (
        text("bad.csv", "p_a,p_b,logit_a,logit_b,label\n0.5,0.5,0,0,a\n"),
        [],
        "several groups of columns could be the scores (p_a, p_b, logit_a, logit_b)",
    ),
    "named scores are not there": (
        text("bad.csv", "p_a,p_b,label\n0.5,0.5,a\n"),
        ["--probs", "q_*"],
        "bad.csv: no column matches q_* of --probs; there are p_a, p_b",
    ),
    "both probs and logits": (
        text("bad.csv", "p_a,p_b,label\n0.5,0.5,a\n"),
        ["--probs", "p_*", "--logits", "p_*"],
        "(--probs) or with `logits` (--logits), not both",
    ),
    "npz without targets": (lambda folder: _npz(folder, probs=PROBS), [], "bad.npz: no column for the target"),
    "npz of unequal lengths": (
        lambda folder: _npz(folder, probs=PROBS, targets=np.array([0, 1, 1])),
        [],
        "bad.npz: arrays must have one length, but probs has 2, targets has 3",
    ),
    "npz of one-hot targets": (
        lambda folder: _npz(folder, probs=PROBS, targets=np.eye(2, dtype=int)),
        [],
        "bad.npz: row 1: targets has 2 values a row, not one; of one-hot targets save the argmax",
    ),
    "npz of two texts a row": (
        lambda folder: _npz(folder, probs=PROBS, targets=np.array([["a", "b"], ["b", "a"]]), class_names=["a", "b"]),
        [],
        "bad.npz: row 1: targets has 2 texts a row, not one; save one a row",
    ),
    "npz of targets of pixels that are no labels": (
        lambda folder: _npz(folder, probs=np.full((2, 2, 3), 0.5), targets=np.zeros((2, 3), "V4")),
        [],
        "bad.npz: image 1: targets holds |V4, not class names or integers",
    ),
    "npz of pixels to ignore that are no numbers": (
        lambda folder: _npz(folder, probs=np.full((2, 2, 3), 0.5), targets=np.zeros((2, 3), "V4")),
        ["--ignore", "1"],
        "bad.npz: `ignore` (--ignore) needs targets that are numbers, got |V4",
    ),
    "npz of images": (
        lambda folder: _npz(folder, probs=np.zeros((2, 3, 3)), targets=np.array([0, 1])),
        [],
        "bad.npz: probs must have a row of K scores for each sample, got shape (n, 3, 3); save it as (n, K)",
    ),
    "npy alone": (
        lambda folder: (np.save(folder / "probs.npy", PROBS), folder / "probs.npy")[1],
        [],
        "probs.npy: has no file of targets beside it; save x_targets.npy beside x_probs.npy, or name",
    ),
    "nan in csv": (
        text("bad.csv", "p_a,p_b,label\n0.5,0.5,a\n0.5,nan,a\n"),
        [],
        "bad.csv: row 2: column p_b holds nan, not a finite number; fix or drop the row",
    ),
    "gap in csv": (
        text("bad.csv", "p_a,p_b,label\n0.5,0.5,a\n0.5,,a\n"),
        [],
        "bad.csv: row 2: column p_b holds nan, not a finite number",
    ),
    "word among the scores": (
        text("bad.csv", "p_a,p_b,label\n0.5,0.5,a\n0.5,much,a\n"),
        [],
        "bad.csv: row 2: column p_b holds 'much', not a number",
    ),
    "nan in npz": (
        lambda folder: _npz(folder, probs=np.array([[0.5, 0.5], [0.1, np.nan]]), targets=np.array([0, 1])),
        [],
        "bad.npz: row 2: column probs[1] holds nan",
    ),
    "infinite logit": (
        text("bad.csv", "logit_a,logit_b,label\n0.5,inf,a\n"),
        [],
        "bad.csv: row 1: column logit_b holds inf, not a finite number",
    ),
    "null in parquet": (
        lambda folder: write(folder / "bad.parquet", {"p_a": [0.5, None], "p_b": [0.5, 0.5], "label": ["a", "b"]}),
        [],
        "bad.parquet: row 2: column p_a holds nan",
    ),
    "sum": (
        text("bad.csv", "p_a,p_b,label\n0.5,0.5,a\n0.5,0.5,b\n0.5,0.4,a\n"),
        [],
        "bad.csv: row 3: probabilities sum to 0.9, not 1; if these are raw scores say so with `logits` (--logits), "
        "else divide each row by its sum",
    ),
    "sum before a value above 1": (
        text("bad.csv", "p_a,p_b,label\n0.55,0.55,a\n1.05,0.05,b\n"),
        [],
        "bad.csv: row 1: probabilities sum to 1.1, not 1",
    ),
    "negative": (
        text("bad.csv", "p_a,p_b,label\n1.5,-0.5,a\n"),
        [],
        "bad.csv: row 1: column p_a holds 1.5, not a probability in [0, 1]; if these are raw scores",
    ),
    "binary above 1": (
        text("bad.csv", "p,label\n0.5,1\n1.5,0\n"),
        [],
        "bad.csv: row 2: column p holds 1.5, not a probability in [0, 1]",
    ),
    "one name for two classes": (
        text("bad.csv", "P_cat,p_cat,label\n0.9,0.1,cat\n"),
        [],
        "bad.csv: two classes are called cat; rename one",
    ),
    "one name for two classes of an npz": (
        lambda folder: _npz(folder, probs=PROBS, targets=np.array([0, 1]), class_names=np.array(["cat", "cat"])),
        [],
        "bad.npz: two classes are called cat; rename one",
    ),
    "target too high": (
        text("bad.csv", "p_a,p_b,label\n0.5,0.5,0\n0.5,0.5,2\n"),
        [],
        "bad.csv: row 2: label is 2, classes are 0..1; fix the target or its numbering",
    ),
    "target negative": (
        lambda folder: _npz(folder, probs=PROBS, targets=np.array([0, -1])),
        [],
        "bad.npz: row 2: targets is -1, classes are 0..1",
    ),
    "target not among numbered columns": (
        text("bad.csv", "p_1,p_2,label\n0.5,0.5,1\n0.5,0.5,0\n"),
        [],
        "bad.csv: row 2: label is 0, classes are 1, 2",
    ),
    "target of half a class": (
        text("bad.csv", "p_a,p_b,label\n0.5,0.5,0.5\n"),
        [],
        "bad.csv: row 1: label has 0.5, which is not a class number",
    ),
    "unknown name": (
        text("bad.csv", "p_cat,p_dog,label\n0.5,0.5,cat\n0.5,0.5,fox\n"),
        [],
        "bad.csv: row 2: label is 'fox', not one of the classes 'cat', 'dog'; fix it, or name the classes",
    ),
    "names but no class names": (
        lambda folder: _npz(folder, probs=PROBS, targets=np.array(["cat", "dog"])),
        [],
        "bad.npz: row 1: targets is 'cat', not one of the classes '0', '1'; fix it, or name the classes in the order",
    ),
    "target missing": (
        text("bad.csv", "p_a,p_b,label\n0.5,0.5,a\n0.5,0.5,\n"),
        [],
        "bad.csv: row 2: label has no value; fix or drop the row",
    ),
    "ragged csv": (
        text("bad.csv", "p_a,p_b,label\n0.5,0.5,a\n0.5,b\n"),
        [],
        "bad.csv: row 2 has 2 values, the header has 3; fix or drop the row",
    ),
    "ragged json": (
        text("bad.jsonl", '{"probs": [0.5, 0.5], "label": 0}\n{"probs": [1.0], "label": 0}\n'),
        [],
        "bad.jsonl: row 2: `probs` has 1 values, others have 2; give every row one value a class",
    ),
    "ragged parquet": (
        lambda folder: write(folder / "bad.parquet", {"probs": [[0.5, 0.5], [1.0]], "label": [0, 0]}),
        [],
        "bad.parquet: row 2: `probs` has 1 values, others have 2",
    ),
    "not json": (
        text("bad.jsonl", '{"probs": [0.5, 0.5], "label": 0}\n{"probs": \n'),
        [],
        "bad.jsonl: row 2 is not JSON",
    ),
    "json nested too deeply": (
        text("bad.jsonl", '{"label": 0, "probs": ' + "[" * 100_000 + "]" * 100_000 + "}\n"),
        [],
        "bad.jsonl: row 1 is not JSON (maximum recursion depth exceeded",
    ),
    "json integer beyond any float": (
        text("bad.jsonl", json.dumps({"probs": [0.5, 10**400], "label": 0}) + "\n"),
        [],
        "bad.jsonl: row 1: `probs` is [0.5, 1000",
    ),
    "json lists that are nested differently": (
        text("bad.jsonl", '{"p_a": 0.5, "p_b": 0.5, "label": [[]]}\n{"p_a": 0.5, "p_b": 0.5, "label": [[[]]]}\n'),
        [],
        "bad.jsonl: row 2: `label` is [[[]]], not a number; fix or drop the row",
    ),
    "json lists that are nested as deep as arrays go": (
        text("bad.jsonl", '{"p_a": 0.5, "p_b": 0.5, "label": ' + "[" * 64 + "]" * 64 + "}\n"),
        [],
        "bad.jsonl: row 1: `label` is [[[",
    ),
    "json list in a column of one class": (
        text("bad.jsonl", '{"p_a": [], "p_b": 0.5, "label": 0}\n'),
        [],
        "bad.jsonl: row 1: p_a holds a row of scores, not that of one class; name it alone",
    ),
    "json name that is half a character": (
        text("bad.jsonl", '{"p_\\ud800": 0.5, "p_b": 0.5, "label": 0}\n'),
        [],
        r"bad.jsonl: the class name '\ud800' is not text; rename it",
    ),
    "npz that claims more than there is memory": (
        claiming("bad.npz", "(10000000000000000,)"),
        [],
        "bad.npz: claims arrays that do not fit in memory",
    ),
    "npy that claims more than there is": (
        claiming("probs.npy", "(10000000000000,)"),
        [],
        "probs.npy: is not a whole NPY file (mmap length is greater than file size)",
    ),
    "npy with a negative shape": (claiming("probs.npy", "(-1, 2)"), [], "probs.npy: is not a whole NPY file"),
    "npy with a shape of text": (claiming("probs.npy", "('a',)"), [], "probs.npy: is not a whole NPY file"),
    "npy with an open bracket": (claiming("probs.npy", rest=", ("), [], "probs.npy: is not a whole NPY file"),
    "npy with a zero in its header": (claiming("probs.npy", rest="\0"), [], "probs.npy: is not a whole NPY file"),
    "npy of a single value": (
        claiming("probs.npy", "()"),
        [],
        "probs.npy: must have a row for each sample, got a single",
    ),
    "npz of text without letters": (
        claiming("bad.npz", "(4294967296,)", "<U0"),
        [],
        "bad.npz: is not a whole NPZ archive (its values of type <U0 have no bytes)",
    ),
    "npz of text beyond Unicode": (
        lambda folder: _npz(folder, probs=PROBS, targets=np.array([0x110000, 1], "u4").view("<U1")),
        [],
        "bad.npz: is not a whole NPZ archive (its text is not Unicode)",
    ),
    "npz of an unknown zip version": (
        lambda folder: _put(
            folder / "bad.npz", _npz(folder, probs=PROBS).read_bytes().replace(b"PK\1\2", b"PK\1\2\xff\xff\xff\xff")
        ),
        [],
        "bad.npz: is not a whole NPZ archive",
    ),
    "npz of several models": (
        _models,
        [],
        "bad.npz: several arrays could be the scores (human_probs, resnet, vgg); name one, or several with commas",
    ),
    "npz of a model and a class": (
        _models,
        ["--probs", "resnet,shares"],
        "bad.npz: row 1: resnet holds a row of scores, not that of one class; name it alone",
    ),
    "npz of models, one misspelt": (
        _models,
        ["--probs", "resnet,vgg,vvg"],
        "bad.npz: no column matches vvg of --probs; there are human_probs, resnet, vgg, shares",
    ),
    "not an object": (text("bad.jsonl", "[1, 2]\n"), [], "bad.jsonl: row 1 is not a JSON object"),
    "column numbers twice": (
        text("bad.csv", "p_0,p_1,p_01,label\n0.5,0.25,0.25,1\n"),
        [],
        "bad.csv: two columns of p_0, p_1, p_01 have the same number; rename one",
    ),
    "column number beyond any integer": (
        text("bad.csv", f"p_0,p_{'9' * 40},label\n0.5,0.5,3\n"),
        [],
        "bad.csv: row 1: label is 3, classes are 0..1",
    ),
    "superscripts for column numbers": (
        text("bad.csv", "p_\u00b9,p_\u00b2,label\n0.5,0.5,3\n"),
        [],
        "bad.csv: row 1: label is 3, classes are 0..1",
    ),
    "column twice": (
        text("bad.csv", "p_a,p_b,p_b,label\n0.5,0.5,0,a\n"),
        [],
        "bad.csv: column p_b is there twice; rename one",
    ),
    "column twice, once of fields": (
        lambda folder: _fields_and_values(folder / "bad.parquet"),
        ["--probs", "p_dog,p_cat"],
        "bad.parquet: row 1: column p_dog is there twice; rename one",
    ),
    "lists of lists": (
        lambda folder: write(folder / "bad.parquet", {"probs": [[[0.5], [0.5]]], "label": [0]}),
        [],
        "bad.parquet: row 1: column probs must hold lists of numbers, not list<element: list<element: double>>",
    ),
    "no rows of lists": (
        lambda folder: write(folder / "bad.parquet", {"probs": pa.array([], pa.list_(pa.float64())), "label": []}),
        [],
        "bad.parquet: holds no rows, only a header",
    ),
    "offsets beyond the text": (
        lambda folder: _text_at(folder / "bad.arrow", [0, 1, 65_539]),
        [],
        "bad.arrow: is damaged (In column 2: Invalid: Offset invariant failure",
    ),
    "offsets before the text": (
        lambda folder: _text_at(folder / "bad.arrow", [-9, 1, 2]),
        [],
        "bad.arrow: is damaged (In column 2: Invalid: Offset invariant failure",
    ),
    "column twice in parquet": (
        lambda folder: _twice(folder / "bad.parquet"),
        [],
        "bad.parquet: column p_b is there twice; rename one",
    ),
    "one column, of class 0": (
        text("bad.csv", "p_0,label\n0.5,1\n"),
        [],
        "bad.csv: one column of scores, p_0, but a binary model's must be that of class 1",
    ),
    "not text": (
        lambda folder: _put(folder / "bad.jsonl", b'{"probs": [1, 0], "label": "\xff"}\n'),
        [],
        "bad.jsonl: is not text in UTF-8",
    ),
    "csv in latin-1": (
        lambda folder: _put(folder / "bad.csv", "p_caf\xe9,p_b,label\n0.5,0.5,b\n".encode("latin-1")),
        [],
        "bad.csv: is not text in UTF-8; write it again as such",
    ),
    "csv in latin-1 further down": (
        lambda folder: _put(folder / "bad.csv", b"p_a,p_b,label\n0.5,0.5,a\n0.5,0.5,\xe9\n"),
        [],
        "bad.csv: is not text in UTF-8; write it again as such",
    ),
    "csv in utf-16": (
        lambda folder: _put(folder / "bad.csv", "p_a,p_b,label\n0.5,0.5,a\n".encode("utf-16")),
        [],
        "bad.csv: is not text in UTF-8; write it again as such",
    ),
    "no header": (
        text("bad.csv", "0.5,0.5,0\n0.2,0.8,1\n"),
        [],
        "bad.csv: the first line must name the columns, got numbers; put a header before it",
    ),
    "not gzip": (text("bad.jsonl.gz", "nothing of the kind"), [], "bad.jsonl.gz: cannot be read (Not a gzipped file"),
    "cut gzip": (
        lambda folder: _put(folder / "bad.jsonl.gz", gzip.compress(b'{"probs": [1, 0], "label": 0}\n' * 99)[:-20]),
        [],
        "bad.jsonl.gz: cannot be read (Compressed file ended",
    ),
    "damaged arrow": (lambda folder: _damaged(folder), [], "bad.arrow: is "),
    "top-label confidence above 1": (
        text("bad.csv", "confidence,prediction,label\n0.5,a,a\n101,b,a\n"),
        [],
        "bad.csv: row 2: confidence is 101, not a confidence in [0, 1]; pass `percent` (--percent)",
    ),
    "unknown word of confidence": (
        text("bad.csv", "confidence,prediction,label\nlikely,a,a\nperhaps,b,a\n"),
        [],
        "bad.csv: row 2: confidence holds 'perhaps', not a number, a percentage or one of: certain",
    ),
    "top-label prediction missing": (
        text("bad.csv", "confidence,prediction,label\n0.5,,a\n"),
        [],
        "bad.csv: row 1: the prediction has no value",
    ),
    "neither true nor false": (
        text("bad.csv", "confidence,correct\n0.5,yes\n"),
        [],
        "bad.csv: row 1: correct is 'yes', neither true nor false",
    ),
    "binary percentages": (
        text("bad.csv", "p,label\n87,1\n"),
        [],
        "bad.csv: row 1: column p holds 87, not a probability in [0, 1]; pass `percent` (--percent) if these are",
    ),
    "percentages that stop": (
        text("bad.csv", "p_a,p_b,label\n40,60,a\n0.4,0.6,a\n"),
        [],
        "bad.csv: row 2: probabilities sum to 0.01, not 1",
    ),
    "too few class names": (
        text("bad.csv", "p_a,p_b,label\n0.5,0.5,0\n"),
        ["--class-names", "cat"],
        "bad.csv: `class_names` (--class-names) must hold 2 names for p_a, p_b, got 1",
    ),
    "a list as text": (
        text("bad.csv", 'probs,label\n"[0.6, 0.4]",0\n'),
        [],
        "bad.csv: row 1: column probs holds '[0.6, 0.4]', not a number; a list written as text; save it as .parquet",
    ),
    "percent signs": (
        text("bad.csv", "p_a,p_b,label\n60%,40%,a\n"),
        [],
        "bad.csv: row 1: column p_a holds '60%', not a number; write it without the % sign",
    ),
    "decimal commas in quotes": (
        text("bad.csv", 'p_a,p_b,label\n"0,6","0,4",a\n'),
        [],
        "bad.csv: row 1: column p_a holds '0,6', not a number; write it with a decimal point",
    ),
    "pointer of git lfs": (
        text("bad.npz", "version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 9\n"),
        [],
        "bad.npz: is a pointer of Git LFS, not the file; run `git lfs pull`",
    ),
    "web page": (
        text("bad.csv", "<!DOCTYPE html><html><body>404</body></html>\n"),
        [],
        "bad.csv: is a web page, not the file; download the file itself",
    ),
    "predictions without confidence": (
        text("bad.csv", "prediction,label\na,a\n"),
        [],
        "bad.csv: no columns for the scores; name them with `probs` (--probs 'p_*') or `logits` (--logits 'z_*')",
    ),
    "confidence without a prediction": (
        text("bad.csv", "confidence,label\n0.9,a\n"),
        [],
        "bad.csv: no columns for the scores; a confidence alone needs the predicted class (`prediction`) or `correct`",
    ),
    "features instead of predictions": (
        text("bad.csv", "age,income,target\n30,4,0\n"),
        [],
        "bad.csv: no columns for the scores; name them with `probs` (--probs 'p_*') or `logits` (--logits 'z_*'): age",
    ),
    "target that is a probability": (
        text("bad.csv", "p_a,p_b,label\n0.6,0.4,0.6\n"),
        [],
        "bad.csv: row 1: label has 0.6, which is not a class number; fix or drop the row",
    ),
    "two separators": (
        text("bad.csv", "p_a;p_b,label\n0.6;0.4,a\n"),
        [],
        "bad.csv: row 1: label is 'a', not one of the classes",
    ),
    "true and false for named classes": (
        text("bad.csv", "p_a,p_b,label\n0.6,0.4,True\n"),
        [],
        "bad.csv: row 1: label is 'True', not one of the classes 'a', 'b'; fix it, or name the classes in the order",
    ),
    "json of a text": (
        text("bad.json", '"hello"'),
        [],
        "bad.json: must hold a list of records or an object of arrays; write it as either",
    ),
    "json lines of numbers": (text("bad.jsonl", "1\n2\n"), [], "bad.jsonl: row 1 is not a JSON object; write one"),
    "summary of a language model's evaluation": (
        text("bad.json", json.dumps({"results": {"arc": {"acc": 0.5}}, "configs": {"arc": {}}})),
        [],
        "bad.json: is a summary of lm-eval; run it with --log_samples, name samples_*.jsonl",
    ),
    "log of a generative task": (
        text("bad.jsonl", json.dumps({"doc_id": 0, "target": "4", "resps": [["4"]], "filtered_resps": ["4"]}) + "\n"),
        [],
        "bad.jsonl: row 1: has no log-likelihoods of several options; run a multiple-choice task",
    ),
    "pipeline output without targets": (
        text("bad.json", json.dumps([{"label": "POSITIVE", "score": 0.9}])),
        [],
        "bad.json: no column for the target; name it with `target` (--target): confidence, prediction",
    ),
    "scores with classes as rows": (
        lambda folder: _npz(folder, probs=np.full((2, 50), 0.5), targets=np.zeros(50, dtype=int)),
        [],
        "bad.npz: arrays must have one length, but probs has 2, targets has 50; transpose the scores to (n, K)",
    ),
    "npz without names": (
        lambda folder: _npz(folder, arr_0=PROBS, arr_1=np.array([0, 1])),
        [],
        "bad.npz: no column for the target; name it with `target` (--target): arr_0, arr_1",
    ),
    "complex numbers": (
        lambda folder: _npz(folder, probs=PROBS + 0j, targets=np.array([0, 1])),
        [],
        "bad.npz: row 1: column probs holds complex128, not numbers; write it as numbers",
    ),
    "bytes from 0 to 255": (
        lambda folder: _npz(folder, probs=np.array([[255, 0]], np.uint8), targets=np.array([0])),
        [],
        "bad.npz: row 1: column probs[0] holds 255, not a probability in [0, 1]",
    ),
    "label -1 for unknown": (
        lambda folder: _npz(folder, probs=PROBS, targets=np.array([0, -1])),
        [],
        "bad.npz: row 2: targets is -1, classes are 0..1; fix the target or its numbering",
    ),
    "a tensor without a name": (
        lambda folder: _saved(folder, torch.rand(5, 2)),
        [],
        "bad.pt: is not a dictionary of plain tensors (it holds a single Tensor); write torch.save({'logits'",
    ),
    "a checkpoint": (
        lambda folder: _saved(folder, {"model": {"weight": torch.rand(2, 2)}, "epoch": 3}),
        [],
        "bad.pt: holds no tensors by name; write torch.save({'logits': ..., 'targets': ...}, path)",
    ),
    "tensors that claim more bytes than there are": (
        _inflated,
        [],
        "bad.pt: is not a dictionary of plain tensors (it claims more bytes than it has); write torch.save({'logits'",
    ),
    "a pickled module": (
        lambda folder: _saved(folder, torch.nn.Linear(2, 2)),
        [],
        "bad.pt: is not a dictionary of plain tensors; write torch.save({'logits'",
    ),
    "tensors without targets": (
        lambda folder: _saved(folder, {"logits": torch.rand(5, 2)}),
        [],
        "bad.pt: no column for the target; name it with `target` (--target): logits",
    ),
    "words for scores in parquet": (
        lambda folder: write(folder / "bad.parquet", {"p_a": ["x"], "p_b": ["y"], "label": [0]}),
        [],
        "bad.parquet: row 1: column p_a holds 'x', not a number; fix or drop the row",
    ),
    "misspelt target": (
        text("bad.csv", "p_a,p_b,label\n0.6,0.4,a\n"),
        ["--target", "lable"],
        "bad.csv: no column lable for the target; `target` (--target) can be p_a, p_b, label",
    ),
    "unknown format": (
        text("bad.csv", "p_a,p_b,label\n0.6,0.4,a\n"),
        ["--format", "yaml"],
        "`file_format` (--format) must be one of auto, table, lm-eval, inspect, pipeline, samples, got 'yaml'",
    ),
    "baseline that is not there": (
        text("bad.csv", "p_a,p_b,label\n0.6,0.4,a\n"),
        ["--baseline", "old.json", "--fail-if-worse", "ece"],
        "old.json: no such file; check the path",
    ),
    "fractions called percentages": (
        text("bad.csv", "p_a,p_b,label\n0.6,0.4,a\n"),
        ["--percent"],
        "bad.csv: row 1: probabilities sum to 0.01, not 1",
    ),
}
