"""Specs: one value for one run, both ways to JSON, a hash that any change changes, errors all at once."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from metacal.errors import InvalidValueError
from metacal.lab.paper.exhibits import scale_settings
from metacal.lab.training import METHODS, RunSpec, build_spec, read_assignments
from metacal.lab.training.spec import cifar_c

SPEC = build_spec({"dataset": "digits", "method": "mc"})
CHANGES = {
    "dataset": "cifar10",
    "dataset_options": {"a": 1},
    "model": "logistic",
    "model_options": {"hidden": [8]},
    "method": METHODS["ls"],
    "train_size": 100,
    "val_share": 0.2,
    "meta_share": 0.2,
    "val_size": 10,
    "meta_size": 10,
    "stratified": True,
    "hold_out_meta": True,
    "augment": True,
    "domains": cifar_c(),
    "epochs": 7,
    "batch_size": 32,
    "accumulate": 2,
    "optimizer": "adam",
    "lr": 0.2,
    "momentum": 0.5,
    "nesterov": True,
    "weight_decay": 0.1,
    "schedule": "cosine",
    "milestones": (3,),
    "decay": 0.5,
    "reduction": "sum",
    "clip_norm": 1.0,
    "average": "swa",
    "ema_decay": 0.9,
    "interleaved_lr": 0.01,
    "patience": 3,
    "precision": "bf16",
    "compile": True,
    "meta": "split",
    "outer": "paper",
    "through": "model",
    "published": ("leak",),
    "select": "accuracy",
    "finish": False,
    "meta_every": 4,
    "meta_memory": 512,
    "meta_lr": 0.01,
    "meta_batch_size": 16,
    "seed": 1,
}


def test_every_field_is_tried():
    assert set(CHANGES) == set(RunSpec.model_fields)


@pytest.mark.parametrize("field", CHANGES)
def test_any_change_changes_the_hash(field):
    changed = SPEC.model_copy(update={field: CHANGES[field]})
    assert changed.hash != SPEC.hash


def test_the_hash_of_a_stored_run_does_not_move():
    # A run is found by its hash: where this fails, runs that were made are lost, unless SCHEMA was raised on purpose.
    assert build_spec({"dataset": "cifar10", "method": "mc", "outer": "first"}).hash == "9238c0c3c0957436"
    assert build_spec({"dataset": "cifar10", "method": "mc", "outer": "paper"}).hash == "e3493365b2575bca"
    assert build_spec({"dataset": "cifar10", "method": "mc", "outer": "steady"}).hash == "37bdb63faafd857c"
    assert build_spec({"dataset": "20newsgroups", "method": "ce"}).hash == "9a521e7af935328e"


def test_a_stored_spec_is_the_run_that_it_was():
    """Stored specs hold every field: a default that changes makes another run of those that were stored with it."""
    stored = (Path(__file__).parent / "stored_spec.json").read_text(encoding="utf-8")
    assert RunSpec.model_validate_json(stored).hash == "9238c0c3c0957436"


def test_json_both_ways_and_key_order():
    stored = json.loads(SPEC.model_dump_json())
    backwards = dict(reversed(stored.items()))
    assert RunSpec.model_validate(backwards) == SPEC
    assert RunSpec.model_validate(backwards).hash == SPEC.hash


def test_the_published_settings_are_the_defaults_of_the_image_sets():
    spec = build_spec({"dataset": "cifar100", "model": "resnet50", "method": "ce"})
    assert (spec.epochs, spec.batch_size, spec.lr, spec.momentum, spec.weight_decay) == (350, 128, 0.1, 0.9, 5e-4)
    assert (spec.milestones, spec.reduction, spec.clip_norm, spec.nesterov) == ((150, 250), "sum", 2.0, False)
    text = build_spec({"dataset": "20newsgroups"})
    assert (text.optimizer, text.lr, text.reduction, text.clip_norm, text.epochs) == ("adam", 1e-3, "mean", None, 50)


@pytest.mark.parametrize("dataset", ["cifar10", "cifar100", "svhn", "20newsgroups"])
def test_the_published_outer_step_belongs_to_the_published_settings(dataset):
    spec = build_spec({"dataset": dataset, "method": "mc-v"})
    assert (spec.outer, spec.meta, spec.select, spec.finish) == ("paper", "split", "accuracy", False)
    assert build_spec({"dataset": dataset, "method": "mc", "outer": "steady"}).outer == "steady"
    plain = build_spec({"dataset": dataset, "method": "ce"})
    assert plain.outer == "first", "a run that learns nothing is the same run whatever the outer step"


@pytest.mark.parametrize(
    ("dataset", "method"), [("digits", "meta"), ("digits", "mc"), ("own.npz", "mc"), ("cifar10", "meta")]
)
def test_the_librarys_own_way_is_the_default_elsewhere(dataset, method):
    spec = build_spec({"dataset": dataset, "method": method})
    assert (spec.outer, spec.meta, spec.select, spec.finish) == ("default", "val", "refinement", True)
    assert not spec.sets_meta_aside
    plain = build_spec({"dataset": dataset, "method": "ls"})
    assert (plain.outer, plain.meta) == ("first", "split"), "there is nothing to learn"
    assert (plain.select, plain.finish) == (("accuracy", False) if dataset == "cifar10" else ("refinement", True))
    assert build_spec({"dataset": dataset, "method": method, "meta": "split"}).sets_meta_aside


@pytest.mark.parametrize("scale", ["cpu", "smoke"])
def test_a_scale_leaves_our_method_ours(scale):
    spec = build_spec(scale_settings({"dataset": "cifar10", "method": "meta"}, scale))
    assert (spec.outer, spec.meta, spec.select, spec.finish) == ("default", "val", "refinement", True)
    plain = build_spec(scale_settings({"dataset": "cifar10", "method": "ce"}, scale))
    assert spec.train_size == plain.train_size
    assert (plain.select, plain.finish) == ("accuracy", False)


@pytest.mark.parametrize(
    ("words", "messages"),
    [
        (["dataset=digits", "metod=mc"], ["unknown key 'metod', nearest: method"]),
        (["dataset=digits", "method=mcs"], ["unknown method 'mcs', nearest: mc-s"]),
        (["dataset=digits", "method=mcs", "lr=-1", "epoch=3"], ["'mcs'", "`lr`", "-1", "'epoch', nearest: epochs"]),
        (["lr=0.1"], ["`dataset` must be given"]),
        (["dataset=digits", "optimizer=adam", "nesterov=true"], ["nesterov needs optimizer=sgd"]),
        (["dataset=digits", "milestones=20,10"], ["milestones must increase"]),
        (["dataset=digits", "batch_size=8", "accumulate=9"], ["accumulate must be at most batch_size (8), got 9"]),
        (["dataset=digits", "devices=0"], ["`devices`", "greater than or equal to 1", "got 0"]),
        (["dataset=digits", "seed=1", "seed=2"], ["`seed` must be given only once"]),
        (["digits"], ["`digits` must have the form key=value"]),
        (["dataset=digits", "method=ls", "through=model"], ["`through` needs a method that learns", "method=ls"]),
        (["dataset=digits", "meta=val", "meta_every=4"], ["`meta` needs a method", "`meta_every` needs a method"]),
        (
            ["dataset=digits", "method=ce-interleaved-sbece", "meta=val"],
            ["meta must be split for interleaved"],
        ),
        (["dataset=digits", "method=meta", "meta_size=40"], ["meta_size needs meta=split, got 40 with meta=val"]),
        (["dataset=digits", "method=meta", "outer=publisehd"], ["`outer`", "'default'", "got 'publisehd'"]),
        (["dataset=digits", "method=mc", "meta_preset=steady"], ["unknown key 'meta_preset'"]),
        (
            ["dataset=digit", "model=resnt", "method=mx", "lr=x", "devices=no"],
            [
                "dataset 'digit', nearest: digits",
                "model 'resnt', nearest: resnet18",
                "method 'mx'",
                "`lr`",
                "`devices`",
            ],
        ),
    ],
)
def test_all_errors_at_once(words, messages):
    with pytest.raises(InvalidValueError) as caught:
        read_assignments(words, datasets=["digits", "cifar10"], models=["mlp", "resnet18"])
    for message in messages:
        assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_methods_name_hyperparameters_and_losses_that_exist():
    for method in METHODS.values():
        method.check_names()
    with pytest.raises(ValueError, match=r"hyperparameters must be among .*focal_gamma.*, got 'nothing'"):
        RunSpec(dataset="digits", model="mlp", method={"name": "mine", "hyperparameters": ["nothing"]})
    with pytest.raises(ValueError, match=r"a term's loss must be one of .*mmce_weighted.*, got 'dice'"):
        RunSpec(dataset="digits", model="mlp", method={"name": "mine", "loss": [{"loss": "dice"}]})


def test_specs_of_known_methods_are_made_without_torch():
    script = "import sys, metacal.lab.training as runs; runs.build_spec({'dataset': 'digits', 'method': 'mc'})"
    command = [sys.executable, "-c", f"{script}; print('torch' in sys.modules)"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "False"


def test_values_are_read_by_what_they_look_like():
    words = ["clip_norm=none", "nesterov=true", "lr=1e-3", "milestones=5", "model_options.hidden=[8,4]", "dataset=20"]
    spec, _ = read_assignments(words)
    assert (spec.clip_norm, spec.nesterov, spec.lr, spec.milestones, spec.dataset) == (None, True, 1e-3, (5,), "20")
    assert spec.model_options == {"hidden": [8, 4]}


def test_the_cosine_schedule_goes_from_one_to_nearly_nothing():
    spec = RunSpec(dataset="digits", model="mlp", schedule="cosine", epochs=10)
    factors = [spec.lr_factor(epoch) for epoch in range(10)]
    assert factors[0] == 1.0
    assert factors == sorted(factors, reverse=True)
    assert factors[5] == pytest.approx(0.5)
    assert factors[9] < 0.03


def test_the_constant_schedule():
    assert RunSpec(dataset="digits", model="mlp", schedule="constant").lr_factor(7) == 1.0
