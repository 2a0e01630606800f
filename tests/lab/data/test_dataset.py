"""What a Dataset refuses, and from_arrays' reading of what people have."""

import numpy as np
import pytest
import torch

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.lab.data import Examples, from_arrays
from metacal.lab.data.dataset import channel_statistics

VECTORS = np.arange(24, dtype=np.float64).reshape(12, 2)
LABELS = np.array([0, 1, 2] * 4)


def test_examples_select_rows_in_order():
    examples = Examples(torch.arange(8).reshape(4, 2), torch.tensor([3, 2, 1, 0]))
    chosen = examples.select(torch.tensor([3, 1]))
    assert chosen.inputs.tolist() == [[6, 7], [2, 3]]
    assert chosen.targets.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("inputs", "targets", "error", "message"),
    [
        (
            torch.zeros(3, 2),
            torch.zeros(3),
            InvalidTypeError,
            "`targets` must be int64 class labels, got torch.float32",
        ),
        (torch.zeros(3, 2), torch.zeros(2).long(), InvalidValueError, r"got \(2,\) for inputs \(3, 2\)"),
        (np.zeros((3, 2)), torch.zeros(3).long(), InvalidTypeError, "`inputs` must be a torch.Tensor, got ndarray"),
    ],
)
def test_bad_examples_are_refused(inputs, targets, error, message):
    with pytest.raises(error, match=message):
        Examples(inputs, targets)


@pytest.mark.parametrize("images", [(12, 3, 8, 8), (12, 8, 8, 3), (12, 8, 8)])
def test_images_of_any_layout_become_channels_first(images):
    pixels = np.random.default_rng(0).integers(0, 256, images, dtype=np.uint8)
    data = from_arrays(pixels, LABELS, pixels, LABELS)
    assert data.kind == "image"
    assert data.input_shape == ((1 if len(images) == 3 else 3), 8, 8)
    first = pixels[0] if len(images) == 3 else pixels[0, 0] if images[1] == 3 else pixels[0, :, :, 0]
    assert np.array_equal(data.train.inputs[0, 0].numpy(), first)
    assert len(data.mean) == data.input_shape[0]


def test_channel_statistics_are_those_of_numpy():
    pixels = np.random.default_rng(0).integers(0, 200, (7, 3, 5, 4), dtype=np.uint8)
    mean, std = channel_statistics(torch.from_numpy(pixels))
    assert mean == pytest.approx((pixels / 255).mean((0, 2, 3)), abs=1e-12)
    assert std == pytest.approx((pixels / 255).std((0, 2, 3)), abs=1e-12)
    assert channel_statistics(torch.full((2, 1, 3, 3), 9, dtype=torch.uint8))[1] == (1.0,)


def test_vectors_become_float32_and_labels_int64():
    data = from_arrays(VECTORS, LABELS.astype(np.uint16)[:, None], VECTORS, LABELS)
    assert data.kind == "vector"
    assert data.train.inputs.dtype is torch.float32
    assert data.mean is None
    assert data.train.targets.dtype is torch.int64
    assert data.class_names == ("0", "1", "2")


def test_a_missing_test_set_is_a_seeded_stratified_share():
    features = np.arange(300, dtype=np.float32).reshape(100, 3)
    labels = np.arange(100) % 5
    one, same, other = (from_arrays(features, labels, test_share=0.2, seed=seed) for seed in (0, 0, 1))
    assert len(one.train) == 80
    assert torch.bincount(one.test.targets).tolist() == [4] * 5
    assert torch.equal(one.test.inputs, same.test.inputs)
    assert not torch.equal(one.test.inputs, other.test.inputs)
    rows = torch.cat([one.train.inputs, one.test.inputs])[:, 0]
    assert sorted(rows.tolist()) == features[:, 0].tolist()


def test_a_class_with_one_sample_does_not_stop_the_test_split():
    data = from_arrays(VECTORS, np.array([0, 1] * 5 + [0, 2]), test_share=0.25)
    assert (len(data.train), len(data.test), data.num_classes) == (9, 3, 3)


def test_arrays_are_copied():
    features = VECTORS.astype(np.float32)
    data = from_arrays(features, LABELS, features, LABELS)
    features[:] = 0
    assert float(data.train.inputs.sum()) == VECTORS.sum()


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((VECTORS, LABELS + 0.5), {}, InvalidTypeError, "`train_targets` must be integer class labels 0..K-1, got"),
        (
            (VECTORS, LABELS - 1),
            {},
            InvalidValueError,
            r"`train_targets` must lie in 0..1 \(2 classes\), got -1 in row 0",
        ),
        (
            (VECTORS, LABELS, VECTORS, LABELS + 1),
            {"class_names": ["a", "b", "c"]},
            InvalidValueError,
            r"`test_targets` must lie in 0..2 \(3 classes\), got 3 in row 2",
        ),
        ((VECTORS, LABELS[:5]), {}, InvalidValueError, r"got \(5,\) for inputs \(12, 2\)"),
        ((VECTORS, np.eye(12)[:, :3].astype(int)), {}, InvalidValueError, r"`train_targets` must have shape \(n,\)"),
        ((VECTORS[:0], LABELS[:0]), {}, InvalidValueError, "at least one sample"),
        ((VECTORS, LABELS * 0), {}, InvalidValueError, "`num_classes` must be given if every label is 0"),
        ((VECTORS, LABELS), {"num_classes": 2}, InvalidValueError, "got 2 in row"),
        ((VECTORS, LABELS, VECTORS), {}, InvalidValueError, "`test_inputs` and `test_targets`"),
        ((VECTORS, LABELS, VECTORS[:, :1], LABELS), {}, InvalidValueError, r"`test_inputs` must have the shape"),
        ((VECTORS.astype(int), LABELS), {}, InvalidValueError, "`kind` must be given"),
        ((np.full((12, 2), np.nan), LABELS), {}, InvalidValueError, "must be finite, got nan in row 0, column 0"),
        ((np.zeros((12, 3, 4, 4)), LABELS), {}, InvalidValueError, "convert images in"),
        ((VECTORS, LABELS), {"kind": "sound"}, InvalidValueError, "`kind` must be one of 'image', 'text', 'vector'"),
        ((VECTORS, LABELS), {"augment": True}, InvalidValueError, "`augment` must be False for vector data"),
        ((VECTORS, LABELS), {"mean": [0.0, 0.0], "std": [1.0, 0.0]}, InvalidValueError, "`std` > 0"),
        ((VECTORS, LABELS), {"mean": [0.0]}, InvalidValueError, "must be given together"),
        ((VECTORS, LABELS), {"test_share": 1.0}, InvalidValueError, r"`test_share` must be in \(0, 1\)"),
        (
            (np.array([["a"] * 2] * 12), LABELS),
            {},
            InvalidTypeError,
            "`train_inputs` must be a tensor or an array of numbers",
        ),
        ((VECTORS.astype(int) - 1, LABELS), {"kind": "text"}, InvalidValueError, "tokens >= 0, got -1"),
        (
            (VECTORS.astype(int), LABELS),
            {"kind": "text", "embeddings": np.zeros((20, 4))},
            InvalidValueError,
            "got 20 rows and token 23",
        ),
    ],
)
def test_bad_arrays_are_refused(arguments, options, error, message):
    with pytest.raises(error, match=message):
        from_arrays(*arguments, **options)
