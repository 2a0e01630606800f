"""Every corruption at every severity: shapes, ranges, seeds, batches, strength, and what cannot be corrupted."""

import io
import itertools

import numpy as np
import pytest
import torch
from PIL import Image

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.lab.data import load_dataset
from metacal.lab.data.corruptions import CORRUPTIONS, SEVERITIES, corrupt
from metacal.lab.data.corruptions.base import Draws

NAMES = list(CORRUPTIONS)
WITHOUT_CHANCE = {
    *("defocus_blur", "zoom_blur", "gaussian_blur", "brightness"),
    *("contrast", "pixelate", "jpeg_compression", "saturate"),
}
# Where the published constants themselves do not grow in every step: blur takes back what glass has moved, the affine
# move of elastic shrinks, saturate first takes colour away, then adds it, and frost darkens the image it covers.
NOT_GROWING = {"glass_blur", "elastic_transform", "saturate", "frost"}


def pictures(count=12, height=32, width=32, channels=3):
    """Smooth shapes with edges and texture: what images are to a corruption."""
    random = torch.Generator().manual_seed(3)
    coarse = torch.rand(count, channels, 5, 5, generator=random)
    smooth = torch.nn.functional.interpolate(coarse, size=(height, width), mode="bicubic").clamp(0, 1)
    across = torch.arange(width) / width - torch.rand(count, 1, 1, 1, generator=random)
    edges = 0.25 * (across.abs() < 0.2).float()
    texture = 0.03 * torch.randn(count, channels, height, width, generator=random)
    return (0.7 * smooth + edges + texture).clamp(0, 1).mul(255).round().to(torch.uint8)


@pytest.mark.parametrize("name", NAMES)
def test_shape_type_range_seed_and_batch(name):
    images = pictures(7)
    for severity in SEVERITIES:
        before = images.clone()
        changed = corrupt(images, name, severity, seed=4)
        assert torch.equal(images, before)
        assert changed.shape == images.shape
        assert changed.dtype is torch.uint8
        assert changed.is_contiguous()
        assert torch.equal(changed, corrupt(images, name, severity, seed=4))
        assert not torch.equal(changed, images)
        some = torch.tensor([5, 2])
        assert torch.equal(corrupt(images[some], name, severity, seed=4, samples=some), changed[some])
        assert torch.equal(changed, corrupt(images, name, severity, seed=5)) == (name in WITHOUT_CHANCE)
        floats = corrupt(images.float() / 255, name, severity, seed=4)
        assert floats.dtype is torch.float32
        assert float(floats.min()) >= 0
        assert float(floats.max()) <= 1
        apart = (floats * 255 - changed.float()).abs()
        assert float(apart.max()) <= 1.0 + 1e-3  # cut off to whole numbers, nothing else


@pytest.mark.parametrize("name", NAMES)
def test_strength_grows_with_severity(name):
    images = pictures(64)
    errors = [
        float((corrupt(images, name, severity, seed=0).float() - images.float()).square().mean())
        for severity in SEVERITIES
    ]
    assert all(error > 0.2 for error in errors)
    if name in NOT_GROWING:
        return
    # Water (1 to 3) and mud (4 and 5) are two things.
    for part in (errors[:3], errors[3:]) if name == "spatter" else (errors,):
        assert all(first <= 1.001 * second for first, second in itertools.pairwise(part)), errors
    assert errors[-1] > 1.5 * errors[0]


@pytest.mark.data
def test_strength_grows_with_severity_on_real_images(data_folder):
    images = load_dataset("cifar100", folder=data_folder).test.inputs[:256]
    for name in set(NAMES) - NOT_GROWING - {"spatter"}:
        errors = [
            float((corrupt(images, name, severity, seed=0).float() - images.float()).square().mean())
            for severity in SEVERITIES
        ]
        assert all(first <= 1.001 * second for first, second in itertools.pairwise(errors)), (name, errors)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 40, 56), (1, 28, 28), (3, 4, 9), (3, 96, 64)])
@pytest.mark.parametrize("name", NAMES)
def test_any_size_and_grey(name, shape):
    images = pictures(2, shape[1], shape[2], shape[0])
    for severity in (1, 3, 5):
        changed = corrupt(images, name, severity, seed=0)
        assert changed.shape == images.shape
        assert changed.dtype is torch.uint8
        floats = corrupt(images.double() / 255, name, severity, seed=0)
        assert floats.dtype is torch.float64
        assert bool(torch.isfinite(floats).all())


@pytest.mark.parametrize(
    "name", ["motion_blur", "gaussian_blur", "snow", "spatter", "elastic_transform", "defocus_blur"]
)
def test_lengths_grow_with_the_image(name):
    """An image twice as large under a corruption is, shrunk, about as far from clean as the small one."""
    large = pictures(48, 64, 64)
    small = torch.nn.functional.avg_pool2d(large.float(), 2)
    errors = [
        float((corrupt(images.to(torch.uint8), name, 5, seed=0).float() - images).square().mean())
        for images in (large.float(), small)
    ]
    assert 0.4 < errors[0] / errors[1] < 2.5


def test_random_numbers():
    draws = Draws(1, torch.arange(64))
    normal, even = draws.normals(3, 32, 32), draws.uniforms(1000, low=-1.0, high=3.0)
    assert float(normal.mean()) == pytest.approx(0.0, abs=0.01)
    assert float(normal.std()) == pytest.approx(1.0, abs=0.01)
    assert float(normal.pow(4).mean()) == pytest.approx(3.0, abs=0.1)
    assert -1.0 <= float(even.min()) < -0.99
    assert 2.99 < float(even.max()) < 3.0
    assert float(even.mean()) == pytest.approx(1.0, abs=0.02)
    flat = normal.flatten(1)
    assert float(torch.corrcoef(flat).fill_diagonal_(0).abs().max()) < 0.1  # samples have nothing in common
    for lag in (1, 2, 32):
        assert abs(float((flat[:, lag:] * flat[:, :-lag]).mean())) < 0.01  # nor have places
    assert not torch.equal(draws.normals(4), draws.normals(4))


def test_shot_noise_is_poisson():
    images = torch.full((64, 3, 32, 32), 51, dtype=torch.uint8).float() / 255
    noisy = corrupt(images, "shot_noise", 5, seed=0) * 50
    assert torch.allclose(noisy, noisy.round(), atol=1e-4)  # whole photons of 50
    assert float(noisy.mean()) == pytest.approx(10.0, abs=0.05)
    assert float(noisy.var()) == pytest.approx(10.0, rel=0.02)


def test_impulse_noise_turns_its_share():
    images = torch.full((64, 3, 32, 32), 100, dtype=torch.uint8)
    noisy = corrupt(images, "impulse_noise", 5, seed=0)
    assert float((noisy == 255).float().mean()) == pytest.approx(0.035, abs=0.001)
    assert float((noisy == 0).float().mean()) == pytest.approx(0.035, abs=0.001)


@pytest.mark.parametrize("size", [(32, 32), (40, 24), (33, 47)])
def test_jpeg_is_what_a_jpeg_file_gives(size):
    images = pictures(16, *size)
    for severity, quality in zip(SEVERITIES, CORRUPTIONS["jpeg_compression"].constants, strict=True):
        ours, theirs = corrupt(images, "jpeg_compression", severity, seed=0), []
        for image in images:
            file = io.BytesIO()
            Image.fromarray(image.permute(1, 2, 0).numpy()).save(file, "JPEG", quality=quality)
            theirs.append(torch.from_numpy(np.array(Image.open(file))).permute(2, 0, 1))
        apart = (ours.float() - torch.stack(theirs).float()).abs()
        # Integer arithmetic there and floats here round a coefficient in a hundred to its other neighbour.
        assert float(apart.mean()) < 0.5
        assert float((apart > 2).float().mean()) < 0.1
        changed = (ours.float() - images.float()).square().mean()
        assert float(apart.square().mean()) < 0.05 * float(changed)


def test_pixelate_is_what_pillow_gives():
    images = pictures(4)
    for severity, share in zip(SEVERITIES, CORRUPTIONS["pixelate"].constants, strict=True):
        ours = corrupt(images, "pixelate", severity, seed=0)
        for number in range(len(images)):
            image = Image.fromarray(images[number].permute(1, 2, 0).numpy())
            side = int(32 * share)
            theirs = image.resize((side, side), Image.Resampling.BOX).resize((32, 32), Image.Resampling.BOX)
            apart = ours[number].permute(1, 2, 0).numpy().astype(int) - np.asarray(theirs).astype(int)
            assert np.abs(apart).max() <= 2


def test_brightness_and_saturation_are_those_of_hsv():
    import colorsys

    images = pictures(1, 8, 8)
    images[0, :, 0, 0] = 100  # grey has no hue
    images[0, :, 0, 1] = 0
    bright, vivid = (corrupt(images, name, 5, seed=0)[0] for name in ("brightness", "saturate"))
    for row in range(8):
        for column in range(8):
            hue, saturation, value = colorsys.rgb_to_hsv(*(images[0, :, row, column] / 255).tolist())
            lifted = colorsys.hsv_to_rgb(hue, saturation, min(value + 0.3, 1.0))
            coloured = colorsys.hsv_to_rgb(hue, min(saturation * 2.5 + 0.2, 1.0), value)
            for ours, wanted in ((bright, lifted), (vivid, coloured)):
                apart = ours[:, row, column].double() - 255 * torch.tensor(wanted, dtype=torch.float64)
                assert float(apart.abs().max()) <= 1.01


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"name": "fogg"}, InvalidValueError, "nearest: fog"),
        ({"name": "jpeg"}, InvalidValueError, "jpeg_compression"),
        ({"name": 3}, InvalidTypeError, "name of a corruption, got 3"),
        ({"severity": 0}, InvalidValueError, "from 1 to 5, got 0"),
        ({"severity": 6}, InvalidValueError, "from 1 to 5, got 6"),
        ({"severity": 2.5}, InvalidValueError, "from 1 to 5, got 2.5"),
        ({"severity": True}, InvalidValueError, "from 1 to 5, got True"),
        ({"images": torch.zeros(1, 3, 8, 8) - 0.1}, InvalidValueError, "got values from -0.1"),
        ({"images": torch.full((1, 3, 8, 8), 255.0)}, InvalidValueError, "to 255; corrupt images before"),
        ({"images": torch.full((1, 3, 8, 8), float("nan"))}, InvalidValueError, "got values from nan"),
        ({"images": torch.zeros(1, 3, 8, 8, dtype=torch.int64)}, InvalidTypeError, "uint8, or floats in [0, 1]"),
        ({"images": torch.zeros(3, 8, 8)}, InvalidValueError, "(n, 3, H, W)"),
        ({"images": torch.zeros(1, 8, 8, 3)}, InvalidValueError, "(n, 3, H, W)"),
        ({"images": torch.zeros(1, 3, 2, 8)}, InvalidValueError, "at least 4"),
        ({"images": np.zeros((1, 3, 8, 8))}, InvalidTypeError, "torch.Tensor"),
        ({"samples": torch.arange(2)}, InvalidValueError, "a number for each of 1 images"),
        ({"seed": -1}, InvalidValueError, "`seed`"),
    ],
)
def test_what_cannot_be_corrupted(arguments, error, message):
    given = {"images": torch.zeros(1, 3, 8, 8), "name": "fog", "severity": 1, "seed": 0, **arguments}
    with pytest.raises(error) as caught:
        corrupt(**given)
    assert message in str(caught.value)


def test_names_are_understood_as_people_write_them():
    images = pictures(2)
    assert torch.equal(corrupt(images, "JPEG Compression", 1, seed=0), corrupt(images, "jpeg-compression", 1, seed=0))


@pytest.mark.parametrize("name", NAMES)
def test_no_images(name):
    assert corrupt(torch.zeros(0, 3, 32, 32), name, 1, seed=0).shape == (0, 3, 32, 32)


def test_integers_of_numpy():
    images = pictures(2)
    found = corrupt(images, "fog", np.int64(3), seed=np.int64(7))
    assert torch.equal(found, corrupt(images, "fog", 3, seed=7))


def test_other_memory_formats():
    images = pictures(3)
    last = images.contiguous(memory_format=torch.channels_last)
    for name in NAMES:
        assert torch.equal(corrupt(last, name, 3, seed=0), corrupt(images, name, 3, seed=0))


def test_black_and_white_images_stay_finite():
    for shade in (0.0, 1.0):
        images = torch.full((2, 3, 32, 32), shade)
        for name in NAMES:
            for severity in SEVERITIES:
                assert bool(torch.isfinite(corrupt(images, name, severity, seed=0)).all()), (name, severity)
