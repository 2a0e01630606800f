"""From a spec to a scored run: every method, and figures that can be made again from what was kept."""

import math
import shutil
import sys

import numpy as np
import pytest
import torch
from lightning_fabric.accelerators import MPSAccelerator
from pydantic import ValidationError

from metacal.errors import InUseError, InvalidValueError, TrainingError
from metacal.evaluation import score_predictions
from metacal.functional import expected_calibration_error
from metacal.lab.data import make_transform
from metacal.lab.models import MLP
from metacal.lab.training import (
    METHODS,
    Checkpoints,
    Hardware,
    RunFolder,
    Stopped,
    StopRequest,
    build_spec,
    load_data,
    make_fabric,
    pipeline,
    run,
)
from metacal.lab.training.build import choose_accelerator
from metacal.lab.training.events import BatchDone, CheckpointSaved, EpochDone, Notice
from metacal.lab.training.loop import predict
from metacal.losses import AdaFocalLoss
from metacal.metalearning import through_head

SMALL = {
    "dataset": "digits",
    "epochs": 2,
    "milestones": [1],
    "train_size": 256,
    "batch_size": 16,
    "model_options": {"hidden": [32]},
    "meta_every": 1,
}


def settings(**changes):
    return build_spec({**SMALL, **changes})


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains(method, tmp_path):
    folder = RunFolder(tmp_path)
    scores = run(settings(method=method, epochs=3), folder)
    assert 0.3 < scores["test"]["accuracy"] <= 1.0
    assert 0.0 <= scores["test"]["ece"] < 0.7
    history = folder.read_history()
    assert [row["epoch"] for row in history] == [1.0, 2.0, 3.0]
    assert history[-1]["train_loss"] < history[0]["train_loss"]
    omega = [name for name in folder.read_epoch(3) if name.startswith("omega.")]
    assert bool(omega) == bool(METHODS[method].hyperparameters)


@pytest.mark.parametrize("method", ["mc", "mc-v", "mc-s", "mc-l2"])
def test_the_papers_methods_take_the_closed_form(method, tmp_path):
    """The general form gives the same figures, only slower: nothing else would notice."""
    called = set()

    def record(frame, event, _):
        if event == "call" and frame.f_globals.get("__name__") == through_head.__name__:
            called.add(frame.f_code.co_name)

    sys.setprofile(record)
    try:
        run(settings(method=method, outer="paper", epochs=1, milestones=[]), RunFolder(tmp_path))
    finally:
        sys.setprofile(None)
    assert "closed_form" in called
    assert "through_graph" not in called


def test_scores_and_history_can_be_made_again_from_what_was_kept(tmp_path):
    folder = RunFolder(tmp_path)
    scores = run(settings(method="mc"), folder)
    for part in ("val", "test"):
        said = folder.read_predictions(part)
        assert score_predictions(logits=said.logits, targets=said.targets).as_dict() == scores[part]
        by_probs = score_predictions(probs=said.probs, targets=said.targets).as_dict()
        assert by_probs == pytest.approx(scores[part], rel=1e-5)
    targets = folder.read_predictions("val").targets
    for row in folder.read_history():
        logits = folder.read_epoch(int(row["epoch"]))["val_logits"]
        assert float(expected_calibration_error(logits=logits, targets=targets)) == row["val_ece"]
        assert float((logits.argmax(1) != targets).double().mean()) == row["val_error"]


def test_a_model_that_is_surely_wrong_has_a_finite_likelihood(tmp_path, monkeypatch):
    """In float32 the probability of the true class is 0 there, and its logarithm is not a number that JSON has."""

    def surely(*given):
        logits, targets = predict(*given)
        return 1000 * logits, targets

    monkeypatch.setattr(pipeline, "predict", surely)
    folder = RunFolder(tmp_path)
    scores = run(settings(finish=False), folder)
    for part in ("val", "test"):
        said = folder.read_predictions(part)
        assert bool((said.probs.gather(1, said.targets[:, None]) == 0).any())
        expected = torch.nn.functional.cross_entropy(said.logits.double(), said.targets)
        assert scores[part]["nll"] == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize(("select", "figure"), [("accuracy", "val_error"), ("refinement", "val_refined_nll")])
def test_the_best_epoch_is_scored(select, figure, tmp_path):
    folder = RunFolder(tmp_path)
    scores = run(settings(epochs=6, lr=0.2, select=select, finish=False), folder)
    figures = [row[figure] for row in folder.read_history()]
    assert scores["best_epoch"] == figures.index(min(figures)) + 1
    best = folder.read_epoch(scores["best_epoch"])["val_logits"]
    assert torch.equal(folder.read_predictions("val").logits, best)
    assert "finish" not in scores


def test_refinement_is_the_nll_after_the_best_temperature(tmp_path):
    folder = RunFolder(tmp_path)
    run(settings(epochs=4, lr=0.2), folder)
    targets = folder.read_predictions("val").targets
    for row in folder.read_history():
        logits = folder.read_epoch(int(row["epoch"]))["val_logits"].double()
        nlls = [torch.nn.functional.cross_entropy(logits / t, targets) for t in torch.linspace(0.2, 5.0, 2000)]
        # The prior on log T keeps the temperature a little nearer to 1 than the likelihood alone would.
        assert float(min(nlls)) - 1e-9 <= row["val_refined_nll"] == pytest.approx(float(min(nlls)), rel=2e-3)
        assert row["val_refined_nll"] <= row["val_loss"]


def test_the_temperature_is_folded_into_the_model_that_is_kept(tmp_path):
    """After two epochs it is under-confident, so that a temperature clearly helps."""
    folder, bare = RunFolder(tmp_path / "finished"), RunFolder(tmp_path / "bare")
    spec = settings(method="meta", val_size=500)
    scores = run(spec, folder)
    run(spec.model_copy(update={"finish": False}), bare)
    done = scores["finish"]
    assert done["is_folded"]
    assert done["temperature"] < 0.8
    assert done["samples"] == 500
    assert done["after"]["nll"] < done["before"]["nll"]
    assert done["verdict"].startswith(f"temperature {done['temperature']:.3f}, folded into the last layer: ")
    for part in ("val", "test"):
        logits, expected = (each.read_predictions(part).logits for each in (folder, bare))
        torch.testing.assert_close(logits, expected / done["temperature"], rtol=1e-4, atol=1e-5)
    assert scores["val"]["nll"] == pytest.approx(done["after"]["nll"], rel=1e-4)
    plain = MLP(64, 10, hidden=[32])  # a model without anything of ours around it
    plain.load_state_dict(Checkpoints(folder.checkpoints).load_best()[0]["model"])
    dataset, splits = load_data(spec, None)
    with torch.no_grad():
        logits = plain.eval()(make_transform(dataset, training=False)(splits.test.inputs))
    torch.testing.assert_close(logits, folder.read_predictions("test").logits, rtol=1e-4, atol=1e-5)


def test_finished_again_a_run_is_not_folded_twice(tmp_path):
    folder = RunFolder(tmp_path)
    spec = settings(method="meta", val_size=500)
    scores = run(spec, folder)
    assert scores["finish"]["is_folded"]
    (folder.path / "scores.json").unlink()
    again = run(spec, folder, resume=True)
    assert {**again, "train_seconds": scores["train_seconds"]} == scores


def test_the_same_spec_gives_the_same_run(tmp_path):
    for name in ("a", "b"):
        run(settings(method="mc"), RunFolder(tmp_path / name))
    one, two = ((tmp_path / name / "history.csv").read_bytes() for name in ("a", "b"))
    assert one == two


# Of a meta-calibrated batch the parts before the last are trained with the omega from before the meta step.
@pytest.mark.parametrize(("method", "tolerance"), [("ce", 1e-9), ("mc", 0.02)])
def test_gradient_accumulation(method, tolerance, tmp_path):
    histories = []
    for parts in (1, 3):
        folder = RunFolder(tmp_path / str(parts))
        run(settings(method=method, accumulate=parts, precision="64", reduction="sum", clip_norm=2.0), folder)
        histories.append(folder.read_history())
    for one, other in zip(*histories):
        assert one["train_loss"] == pytest.approx(other["train_loss"], rel=tolerance)
        assert one["val_loss"] == pytest.approx(other["val_loss"], rel=tolerance)


def test_apple_gpus_are_never_chosen(monkeypatch, tmp_path):
    """They have no float64."""
    monkeypatch.setattr(MPSAccelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert make_fabric(settings(), Hardware()).device.type == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_accelerator("auto") == "cuda"
    with pytest.raises(ValidationError, match="mps"):
        Hardware(accelerator="mps")


@pytest.mark.parametrize("precision", ["64", pytest.param("bf16", marks=pytest.mark.bf16)])
def test_precisions(precision, tmp_path):
    scores = run(settings(method="mc", precision=precision, epochs=4), RunFolder(tmp_path))
    assert scores["test"]["accuracy"] > 0.5


@pytest.mark.parametrize(("select", "what"), [("accuracy", "error"), ("refinement", "NLL after temperature scaling")])
def test_patience(select, what, tmp_path):
    notices = []
    folder = RunFolder(tmp_path)
    listen = lambda event: notices.append(event) if isinstance(event, Notice) else None  # noqa: E731
    run(settings(epochs=80, lr=0.2, patience=2, select=select), folder, emit=listen)
    assert len(folder.read_history()) < 80
    assert [notice.text for notice in notices] == [f"Stopped early: no better validation {what} in 2 epochs."]


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "mc", "outer": "paper", "meta": "split"},
        {"method": "mc", "outer": "paper", "meta": "split", "published": ["leak", "statistics", "replay"]},
        {"method": "mc", "outer": "first", "meta": "split"},
        {"method": "meta", "through": "head", "meta_every": 2},
        {"method": "meta", "through": "model", "meta_every": 2},
        {"method": "meta", "through": "model", "optimizer": "adam", "lr": 0.01},
    ],
)
def test_asked_to_stop_it_saves_and_goes_on_to_the_same_end(changes, tmp_path):
    whole, cut = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "cut")
    spec = settings(epochs=3, **changes, model_options={"hidden": [32], "dropout": 0.3})
    expected = run(spec, whole)
    for wanted in (3, 2):  # in the middle of an epoch, twice
        stop, seen = StopRequest(), []

        def listen(event, stop=stop, seen=seen, wanted=wanted):
            if isinstance(event, BatchDone):
                seen.append(event)
                stop.signal = 15 if len(seen) == wanted else None

        with pytest.raises(Stopped):
            run(spec, cut, resume=cut.exists, emit=listen, stop=stop)
    scores = run(spec, cut, resume=True)
    assert (cut.path / "history.csv").read_bytes() == (whole.path / "history.csv").read_bytes()
    for file in sorted((whole.path / "epochs").iterdir()):
        assert (cut.path / "epochs" / file.name).read_bytes() == file.read_bytes()
    assert scores["test"] == expected["test"]
    assert scores.get("finish") == expected.get("finish")
    ends = [Checkpoints(each.checkpoints).load_last()[0]["objectives"][0]["calibrator"] for each in (whole, cut)]
    assert ends[0]["meta_steps"] > 5
    assert str(ends[0]) == str(ends[1])
    assert (cut.checkpoints / "best.ckpt").read_bytes() == (whole.checkpoints / "best.ckpt").read_bytes()


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "adafocal"},
        {"method": "mixup"},
        {"average": "ema", "ema_decay": 0.9},
        {"average": "swa", "method": "meta"},
    ],
)
def test_what_follows_the_training_goes_on_to_the_same_end(changes, tmp_path):
    """Exponents of AdaFocal, shares of mixup, averaged weights and their statistics of batch normalisation."""
    whole, cut = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "cut")
    own = {"model": "resnet8", "model_options": {"width": 4}, "train_size": 64, "val_size": 64, "lr": 0.02}
    spec = settings(**{"epochs": 4, "milestones": [3], **own, **changes})
    expected = run(spec, whole)
    for wanted in (3, 6):  # in the second epoch and in the fourth
        stop, seen = StopRequest(), []

        def listen(event, stop=stop, seen=seen, wanted=wanted):
            if isinstance(event, BatchDone):
                seen.append(event)
                stop.signal = 15 if len(seen) == wanted + 2 else None

        with pytest.raises(Stopped):
            run(spec, cut, resume=cut.exists, emit=listen, stop=stop)
    assert run(spec, cut, resume=True)["test"] == expected["test"]
    for name in ("history.csv", "checkpoints/best.ckpt"):
        assert (cut.path / name).read_bytes() == (whole.path / name).read_bytes()
    ends = [Checkpoints(each.checkpoints).load_last()[0] for each in (whole, cut)]
    assert str(ends[0]["objectives"]) == str(ends[1]["objectives"])
    assert str(ends[0].get("average")) == str(ends[1].get("average"))


def test_adafocal_follows_the_validation_predictions_of_each_epoch(tmp_path):
    folder = RunFolder(tmp_path)
    run(settings(method="adafocal", epochs=3), folder)
    (saved,) = Checkpoints(folder.checkpoints).load_last()[0]["objectives"]
    loss, targets = AdaFocalLoss(), folder.read_predictions("val").targets
    for epoch in (1, 2, 3):
        loss.observe(folder.read_epoch(epoch)["val_logits"], targets)
    assert torch.equal(saved["gammas"], loss.gammas)
    assert torch.equal(saved["edges"], loss.edges)
    assert len(set(loss.gammas.tolist())) > 3


def test_mixup_needs_numbers(tmp_path, monkeypatch):
    tokens = lambda job, part, **options: None  # noqa: E731
    monkeypatch.setattr(pipeline, "evaluation_batches", lambda *given: [(torch.zeros(4, 8, dtype=torch.long), tokens)])
    with pytest.raises(InvalidValueError, match="`method` must not use mixup for text: it mixes numbers, got tokens"):
        run(settings(method="mixup"), RunFolder(tmp_path))
    assert not (tmp_path / "spec.json").exists()


def test_a_damaged_checkpoint_is_passed_over_with_a_notice(tmp_path):
    whole, cut = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "cut")
    spec = settings(method="mc", epochs=3)
    run(spec, whole)

    class KilledError(Exception):
        pass

    def kill(event):
        if isinstance(event, EpochDone) and event.epoch == 3:
            raise KilledError

    with pytest.raises(KilledError):
        run(spec, cut, emit=kill)
    last = cut.checkpoints / "last.ckpt"
    last.write_bytes(last.read_bytes()[:-7])
    events = []
    run(spec, cut, resume=True, emit=events.append)
    assert any(isinstance(e, Notice) and "is damaged" in e.text and "the previous one" in e.text for e in events)
    assert (cut.path / "history.csv").read_bytes() == (whole.path / "history.csv").read_bytes()


@pytest.mark.parametrize(
    "changes",
    [
        {"lr": 1e38, "batch_size": 5000},
        {"method": "ce-interleaved-sbece", "interleaved_lr": 1e38},
    ],
)
def test_weights_that_are_not_finite(tmp_path, changes):
    with pytest.raises(TrainingError, match=r"no longer finite|The training loss became"):
        run(settings(epochs=3, clip_norm=None, **changes), RunFolder(tmp_path))
    assert not (tmp_path / "checkpoints").exists()


def test_the_last_good_checkpoint_outlives_a_loss_that_is_not_finite(tmp_path, monkeypatch):
    folder, kept, groups = RunFolder(tmp_path), [], []
    built = pipeline.build_optimizer

    def remember(*arguments, **keywords):
        optimizer = built(*arguments, **keywords)
        groups.extend(optimizer.param_groups)
        return optimizer

    def spoil(event):
        if isinstance(event, CheckpointSaved):
            kept.append((folder.checkpoints / "last.ckpt").read_bytes())
            with torch.no_grad():
                groups[0]["params"][0].fill_(math.nan)

    monkeypatch.setattr(pipeline, "build_optimizer", remember)
    with pytest.raises(TrainingError, match="The training loss became nan in epoch 2, batch 1"):
        run(settings(epochs=3), folder, emit=spoil)
    assert (folder.checkpoints / "last.ckpt").read_bytes() == kept[0]


def test_data_that_has_changed_since(tmp_path):
    def write(rows):
        generator = np.random.default_rng(rows)
        inputs = generator.normal(size=(rows, 4)).astype(np.float32)
        np.savez(tmp_path / "own.npz", inputs=inputs, targets=generator.integers(3, size=rows))

    write(200)
    spec = build_spec({"dataset": str(tmp_path / "own.npz"), "epochs": 1, "batch_size": 32, "milestones": []})
    folder = RunFolder(tmp_path / "run")
    run(spec, folder)
    (folder.path / "scores.json").unlink()
    write(300)
    with pytest.raises(InvalidValueError, match="started with, got other data"):
        run(spec, folder, resume=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_options": {"num_classes": 5}}, "model_options must not set what the data decides, got num_classes"),
        ({"model_options": {"in_features": 5}}, "`model_options` must not set what the data decides, got in_features"),
        ({"seed": 10**30}, "seed"),
        ({"precision": "16"}, "`precision` must be 32, 64 or bf16 on a CPU, got 16"),
    ],
)
def test_settings_that_cannot_be(tmp_path, changes, message):
    with pytest.raises(InvalidValueError, match=message):
        run(settings(**changes), RunFolder(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("method", ["ce", "meta"])
def test_a_model_that_does_not_fit_the_data(method, tmp_path, monkeypatch):
    monkeypatch.setattr(pipeline, "build_model", lambda spec, dataset: MLP(5, 10))
    with pytest.raises(InvalidValueError, match=r"`model` must take inputs of shape \(64, 1, 8, 8\), got: "):
        run(settings(method=method), RunFolder(tmp_path / "run"))
    monkeypatch.setattr(pipeline, "build_model", lambda spec, dataset: MLP(64, 7))
    with pytest.raises(InvalidValueError, match=r"must return logits of shape \(64, 10\), got \(64, 7\)"):
        run(settings(method=method), RunFolder(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_loss_that_is_not_finite(tmp_path):
    folder = RunFolder(tmp_path)
    with pytest.raises(TrainingError, match=r"The training loss became (nan|inf) in epoch \d+, batch \d+: lower `lr`"):
        run(settings(lr=1e30, epochs=3, clip_norm=None), folder)


def test_fsdp_is_refused_before_a_run_can_begin(tmp_path):
    with pytest.raises(ValueError, match=r"must be auto or ddp: .* meta steps need unsharded models"):
        run(settings(method="mc"), RunFolder(tmp_path / "run"), hardware=Hardware(strategy="fsdp"))
    assert not (tmp_path / "run").exists()


def test_nothing_is_written_for_a_split_that_cannot_be(tmp_path):
    with pytest.raises(InvalidValueError, match="val"):
        run(settings(val_size=100_000), RunFolder(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_folder_in_use_is_refused_before_any_data_is_loaded(tmp_path):
    spec = build_spec({"dataset": str(tmp_path / "missing.npz")})
    with RunFolder(tmp_path).lock(), pytest.raises(InUseError, match="is in use by another process"):
        run(spec, RunFolder(tmp_path))


def test_a_complete_run_is_read_not_run_again(tmp_path):
    folder = RunFolder(tmp_path)
    scores = run(settings(), folder)
    events = []
    assert run(settings(), folder, resume=True, emit=events.append) == scores
    assert events == []


REAL = {
    "cifar100": {"model": "resnet8", "train_size": 512, "batch_size": 64, "dataset": "cifar100"},
    "svhn": {"model": "resnet8", "train_size": 512, "batch_size": 64, "dataset": "svhn"},
    "20newsgroups": {"train_size": 512, "batch_size": 32, "val_size": 200, "meta_size": 200, "dataset": "20newsgroups"},
}


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "method"),
    [*((name, method) for name in ("cifar100", "svhn") for method in ("ce", "ls", "mc")), ("20newsgroups", "mc")],
)
def test_real_data(name, method, tmp_path, data_folder):
    folder = RunFolder(tmp_path)
    spec = build_spec({**REAL[name], "method": method, "epochs": 2, "milestones": [1]})
    run(spec, folder, data_dir=data_folder)
    history = folder.read_history()
    assert history[1]["train_loss"] < history[0]["train_loss"]
    assert folder.read_predictions().num_classes == {"cifar100": 100, "svhn": 10, "20newsgroups": 20}[name]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The .grad attribute:UserWarning")  # the compiler's
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_a_compiled_model_trains_as_a_plain_one(tmp_path):
    scores = [run(settings(method="mc", compile=c), RunFolder(tmp_path / str(c)))["test"]["nll"] for c in (False, True)]
    assert scores[0] == pytest.approx(scores[1], rel=1e-3)


def test_channels_last_changes_nothing_but_rounding(tmp_path):
    spec = settings(model="resnet8", epochs=1, model_options={}, train_size=64, lr=0.01)
    nll = [
        run(spec, RunFolder(tmp_path / str(last)), hardware=Hardware(channels_last=last))["test"]["nll"]
        for last in (False, True)
    ]
    assert nll[0] == pytest.approx(nll[1], rel=1e-3)


@pytest.mark.data
@pytest.mark.parametrize("method", METHODS)
def test_every_method_on_real_images(method, tmp_path, data_folder):
    folder = RunFolder(tmp_path)
    small = {"dataset": "svhn", "model": "mlp", "model_options": {"hidden": [32]}, "train_size": 256, "batch_size": 32}
    spec = build_spec({**small, "method": method, "epochs": 2, "milestones": [1], "meta_every": 1, "lr": 0.01})
    assert 0.0 <= run(spec, folder, data_dir=data_folder)["test"]["ece"] <= 1.0
    assert len(folder.read_history()) == 2
