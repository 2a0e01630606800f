"""Runs by domain: trained on some, chosen on them, tested on others; resumed to the bit; in tables and on disk."""

import numpy as np
import pytest
import torch

from metacal.errors import InvalidValueError
from metacal.lab.data.domains import Corrupting
from metacal.lab.paper.tables import measure
from metacal.lab.training import Domains, RunFolder, Stopped, StopRequest, build_spec, load_data, run
from metacal.lab.training.domain_scores import score_domains, summarise
from metacal.lab.training.events import BatchDone
from metacal.lab.training.spec import cifar_c

SMALL = {
    "dataset": "digits",
    "epochs": 2,
    "milestones": [1],
    "train_size": 200,
    "batch_size": 16,
    "model_options": {"hidden": [32]},
    "meta_every": 1,
    "domains": {"train": ["contrast:1", "brightness:3", "gaussian_noise:2"], "test": ["fog:1", "fog:5", "snow:3"]},
}


def settings(**changes):
    return build_spec({**SMALL, **changes})


@pytest.mark.parametrize("method", ["ce", "mc", "ce-interleaved-sbece"])
def test_a_run_is_tested_domain_by_domain(method, tmp_path):
    folder = RunFolder(tmp_path)
    scores = run(settings(method=method), folder)
    test, (domains, names) = folder.read_predictions("test"), folder.read_domains("test")
    assert names == ("fog:1", "fog:5", "snow:3")
    assert torch.bincount(domains).tolist() == [359] * 3
    found = scores["domains"]
    assert found["source"] == "generated"
    assert [each["name"] for each in found["each"]] == list(names)
    eces = [each["ece"] for each in found["each"]]
    assert found["worst"]["ece"] == max(eces)
    assert found["average"]["ece"] == pytest.approx(np.mean(eces))
    each = score_domains(test.logits, test.targets, domains, names)
    wrong = (test.logits.argmax(1) != test.targets).double()
    assert summarise(each)["worst"]["error"] == max(float(wrong[domains == number].mean()) for number in range(3))
    figures = measure(folder, over="worst")
    assert figures["ece_percent"] == pytest.approx(100 * max(eces))
    assert measure(folder, over="average")["error_percent"] == pytest.approx(100 * found["average"]["error"])
    assert folder.read_domains("val") is None


def test_the_checkpoint_is_chosen_on_corrupted_images():
    clean, shifted = (load_data(settings(**changes), None)[1] for changes in ({"domains": None}, {}))
    assert torch.equal(clean.indices["val"], shifted.indices["val"])
    assert torch.equal(clean.train.inputs, shifted.train.inputs)  # corrupted anew in every step
    assert float((clean.val.inputs != shifted.val.inputs).flatten(1).any(1).double().mean()) > 0.9


def test_training_and_meta_batches_are_never_of_one_corruption(tmp_path, monkeypatch):
    seen = []
    call = Corrupting.__call__

    def watch(self, inputs, **about):
        seen.append((self.unlike is not None, self.choose(about["epoch"], about["batch"])[0]))
        return call(self, inputs, **about)

    monkeypatch.setattr(Corrupting, "__call__", watch)
    run(settings(method="mc", epochs=1), RunFolder(tmp_path))
    assert seen.pop(0)[0], "a held-out batch, to see what the model returns"
    assert [follows for follows, _ in seen] == [False, True] * (len(seen) // 2)
    assert len(seen) >= 26
    assert all(train[1] != meta[1] for train, meta in zip(seen[::2], seen[1::2], strict=True))


def test_what_is_learned_on_is_corrupted_once(tmp_path, monkeypatch):
    """Validation samples are corrupted already; those that a checkpoint is chosen on stay as they are."""
    spec, seen = settings(method="meta", epochs=1), []
    assert spec.meta == "val"
    dataset, splits = load_data(spec, None)
    clean = {image.numpy().tobytes() for image in dataset.train.select(splits.indices["val"]).inputs}
    call = Corrupting.__call__

    def watch(self, inputs, **about):
        seen.extend(image.numpy().tobytes() in clean for image in inputs if self.unlike is not None)
        return call(self, inputs, **about)

    monkeypatch.setattr(Corrupting, "__call__", watch)
    run(spec, RunFolder(tmp_path))
    assert all(seen)
    assert len(seen) > 100


def test_stopped_and_resumed_it_comes_to_the_same_end(tmp_path):
    spec = settings(method="mc")
    whole, cut = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "cut")
    expected = run(spec, whole)
    stop, seen = StopRequest(), []

    def listen(event):
        seen.append(isinstance(event, BatchDone))
        if sum(seen) == 5:
            stop.signal = 15

    with pytest.raises(Stopped):
        run(spec, cut, emit=listen, stop=stop)
    again = run(spec, cut, resume=True)
    assert again["domains"] == expected["domains"]
    assert torch.equal(cut.read_predictions("test").logits, whole.read_predictions("test").logits)


@pytest.mark.parametrize(
    ("domains", "message"),
    [
        ("cifar-d", "must be cifar-c"),
        ({"train": ["fogg:1"], "test": ["fog:1"]}, "nearest: fog"),
        ({"train": ["fog:1"], "test": ["fog:9"]}, "`severity` must be an integer from 1 to 5, got 9"),
        ({"train": ["fog:1"], "test": ["E"]}, "a corruption with its severity, such as fog:3, got E"),
        ({"train": [], "test": ["fog:1"]}, "at least one domain"),
        ({"train": ["fog:1", "Fog:1"], "test": ["fog:2"]}, "at least one domain, and each only once"),
        ({"train": ["fog:1"]}, "domains.test"),
    ],
)
def test_domains_that_do_not_fit_together(domains, message):
    with pytest.raises(InvalidValueError) as caught:
        settings(domains=domains)
    assert message in str(caught.value)


def test_the_paper_s_domains():
    paper = cifar_c()
    assert len(paper.train) == 73
    assert len(paper.test) == 22
    assert not set(paper.train) & set(paper.test)
    assert {name for name, _ in paper.test} == {
        *("impulse_noise", "motion_blur", "fog", "elastic_transform"),
        *("spatter", "jpeg_compression"),
    }
    assert [severity for name, severity in paper.test if name in ("spatter", "jpeg_compression")] == [5, 5]
    spec = build_spec({"dataset": "cifar10", "domains": "cifar-c"})
    assert spec.domains == paper
    assert type(spec).model_validate_json(spec.model_dump_json()) == spec
    assert build_spec({"dataset": "cifar10"}).hash != spec.hash


def test_corruptions_as_people_write_them():
    written = Domains(train=["Fog:1", "JPEG-compression:2"], test=[["Zoom Blur", 3]])
    assert written == Domains(train=["fog:1", "jpeg_compression:2"], test=["zoom_blur:3"])
