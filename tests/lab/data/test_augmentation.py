"""Augmentation against a per-image loop, and that nothing but seed, epoch and sample number matters."""

import numpy as np
import pytest
import torch

from metacal.errors import InvalidValueError
from metacal.lab.data import Normalise, PadCropFlip, from_arrays, load_dataset, make_transform, pad_crop_flip
from metacal.seeding import mixed, random_bits

IMAGES = torch.randint(1, 256, (64, 3, 12, 10), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
SAMPLES = torch.arange(64) * 7 + 3
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


def every_outcome(image, padding=4):
    """All crops and flips of one image, by a plain loop: bytes -> (down, right, flipped)."""
    padded = np.pad(image.numpy(), ((0, 0), (padding, padding), (padding, padding)))
    height, width = image.shape[1:]
    found = {}
    for down in range(2 * padding + 1):
        for right in range(2 * padding + 1):
            crop = padded[:, down : down + height, right : right + width]
            found[crop.tobytes()] = (down, right, False)
            found[crop[:, :, ::-1].tobytes()] = (down, right, True)
    return found


def test_every_image_is_one_of_its_crops_and_flips_all_of_them_alike_often():
    seen = []
    for epoch in range(40):
        moved = pad_crop_flip(IMAGES, seed=0, epoch=epoch, samples=SAMPLES)
        assert moved.dtype is torch.uint8
        assert moved.shape == IMAGES.shape
        if epoch < 3:
            seen += [every_outcome(image)[out.numpy().tobytes()] for image, out in zip(IMAGES, moved)]
    assert len(seen) == 192
    assert len({place[:2] for place in seen}) > 60
    bits = random_bits(mixed(1, 0, 0), torch.arange(90_000))
    for first in (0, 24):
        counts = torch.bincount(((bits >> first) & 0xFFFFFF) * 9 >> 24, minlength=9)
        assert (counts - 10_000).abs().max() < 500  # five standard deviations
    assert abs(float(((bits >> 48) & 1).double().mean()) - 0.5) < 0.01
    assert 60 < sum(flipped for *_, flipped in seen) < 132


def test_only_seed_epoch_and_sample_number_matter():
    whole = pad_crop_flip(IMAGES, seed=4, epoch=2, samples=SAMPLES)
    order = torch.randperm(64, generator=torch.Generator().manual_seed(1))
    torch.manual_seed(99)
    assert torch.equal(pad_crop_flip(IMAGES[order], seed=4, epoch=2, samples=SAMPLES[order]), whole[order])
    assert torch.equal(pad_crop_flip(IMAGES[9:10], seed=4, epoch=2, samples=SAMPLES[9:10]), whole[9:10])
    assert not torch.equal(pad_crop_flip(IMAGES, seed=5, epoch=2, samples=SAMPLES), whole)
    assert not torch.equal(pad_crop_flip(IMAGES, seed=4, epoch=3, samples=SAMPLES), whole)
    assert not torch.equal(pad_crop_flip(IMAGES, seed=4, epoch=2, samples=SAMPLES + 1), whole)


def test_no_generator_is_moved_along_and_inputs_are_left_alone():
    state, before = torch.random.get_rng_state(), IMAGES.clone()
    PadCropFlip(MEAN, STD)(IMAGES, epoch=0, samples=SAMPLES)
    assert torch.equal(state, torch.random.get_rng_state())
    assert torch.equal(before, IMAGES)


@pytest.mark.parametrize("channels", [1, 3])
def test_any_memory_layout(channels):
    images = IMAGES[:, :channels].contiguous()
    wanted = pad_crop_flip(images, seed=0, epoch=0, samples=SAMPLES)
    other = images.to(memory_format=torch.channels_last)
    assert torch.equal(pad_crop_flip(other, seed=0, epoch=0, samples=SAMPLES), wanted)
    assert torch.equal(pad_crop_flip(IMAGES[:, :channels], seed=0, epoch=0, samples=SAMPLES), wanted)


def test_normalise_is_the_formula():
    wanted = (IMAGES.double() / 255 - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
    found = Normalise(MEAN, STD)(IMAGES)
    assert found.dtype is torch.float32
    torch.testing.assert_close(found.double(), wanted, rtol=0, atol=2e-6)
    vectors = torch.tensor([[1.0, 2.0]])
    assert Normalise([1.0, 0.0], [2.0, 4.0])(vectors).tolist() == [[0.0, 0.5]]
    assert vectors.tolist() == [[1.0, 2.0]]


def test_augmentation_scales_as_normalise_does():
    moved = pad_crop_flip(IMAGES, seed=1, epoch=1, samples=SAMPLES)
    assert torch.equal(PadCropFlip(MEAN, STD, seed=1)(IMAGES, epoch=1, samples=SAMPLES), Normalise(MEAN, STD)(moved))


def test_random_bits_are_those_of_splitmix64():
    # First outputs of SplitMix64 for state 0, from its reference implementation.
    assert [int(word) % 2**64 for word in random_bits(0, torch.tensor([1, 2]))] == [
        0xE220A8397B1DCDAF,
        0x6E789E6AA1B965F4,
    ]


def test_transform_of_a_dataset():
    digits = load_dataset("digits")
    assert isinstance(make_transform(digits, training=True), Normalise)
    images = from_arrays(IMAGES, torch.arange(64) % 2, augment=True)
    assert isinstance(make_transform(images, training=True, seed=3), PadCropFlip)
    assert isinstance(make_transform(images, training=False), Normalise)
    assert make_transform(load_dataset("simulated", n_train=5, n_test=5), training=True) is None


def test_bad_arguments():
    with pytest.raises(InvalidValueError, match="`samples` must hold a number for each image"):
        pad_crop_flip(IMAGES, seed=0, epoch=0, samples=SAMPLES[:3])
    with pytest.raises(InvalidValueError, match="`inputs` must have 1 channels"):
        Normalise([0.5], [0.5])(IMAGES)
    with pytest.raises(InvalidValueError, match="`std` must hold 1 numbers > 0"):
        Normalise([0.5], [0.0])
