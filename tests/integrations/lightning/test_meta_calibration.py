"""The callback on real Trainers: what it does is what `MetaCalibrator.step` does in a loop by hand."""

import inspect
import json
import logging
import subprocess
import sys
from collections import Counter
from pathlib import Path

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from tests.integrations.lightning.modules import K, Manual, Plain, loader, samples, trainer
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, DistributedSampler, WeightedRandomSampler

from metacal import LogitPenalty, MetaCalibrator, OuterStep, UnitwiseL2, VectorLabelSmoothing
from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.integrations.lightning import CalibrationMonitor, MetaCalibration

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers.*",
    "ignore:.*srun.*",
    "ignore:.*LeafSpec.*",
    "ignore:.*isinstance\\(treespec.*",
    "ignore:You defined a `validation_step` but have no `val_dataloader`",
    "ignore:.*exists and is not empty.*",
)

BF16 = ("bf16-true", "bf16-mixed")
ALWAYS = OuterStep(every=1, dense_start=0)
NEVER = OuterStep(every=float("inf"), dense_start=0)


def callback(**options):
    given = {"meta": loader(30, 1, 10), "hyperparameters": VectorLabelSmoothing(K), "outer": ALWAYS}
    return MetaCalibration(**given | options)


def by_hand(epochs=2, accumulate=1, through=None):
    """The loop that the callback stands for."""
    module = Plain()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.2, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    smoothing = VectorLabelSmoothing(K)
    meta = MetaCalibrator(module.net, optimizer, loader(30, 1, 10), smoothing, through=through, outer=ALWAYS)
    for _ in range(epochs):
        batches = list(loader())
        for number, (x, y) in enumerate(batches):
            boundary = (number + 1) % accumulate == 0 or number == len(batches) - 1
            loss = meta.step(x, y, boundary=boundary) / accumulate
            loss.backward()
            if boundary:
                optimizer.step()
                optimizer.zero_grad()
        scheduler.step()
    return module, smoothing.strength.detach(), meta.finish()


def assert_same(module, found, expected):
    reference, strength, finished = expected
    assert float(strength.max()) > 0.0005
    torch.testing.assert_close(found.calibrator.hyperparameters.strength.detach(), strength, rtol=1e-4, atol=1e-7)
    for own, theirs in zip(module.parameters(), reference.parameters()):
        torch.testing.assert_close(own, theirs, rtol=1e-4, atol=1e-6)
    assert found.finished.temperature == pytest.approx(finished.temperature, rel=1e-4)
    assert found.finished.is_folded == finished.is_folded


@pytest.mark.parametrize("through", ["head", "model"])
@pytest.mark.parametrize("kind", [Plain, Manual])
def test_it_is_the_loop_by_hand(tmp_path, kind, through):
    module, found = kind(), callback(through=through)
    fit = trainer(tmp_path, found)
    fit.fit(module, loader())
    assert found.calibrator.through == through
    assert_same(module, found, by_hand(through=through))
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())
    assert "meta-loss" in found.calibrator.summary()
    assert len(found.calibrator.export()["soft_labels"]) == K
    assert {"meta/meta_loss", "meta/strength"} <= set(fit.logged_metrics)
    assert kind is Manual or len(module.losses) == 8  # no other batch gets further than the head


def test_a_step_by_hand_may_go_backward_from_other_losses_too(tmp_path):
    """One that does not touch the head is none of the callback's business."""

    class Penalised(Manual):
        def training_step(self, batch):
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(0.0 * self.net[0].weight.square().sum())
            self.manual_backward(functional.cross_entropy(self.net(batch[0]), batch[1]))
            self.manual_backward(0.0 * self.net[2].weight.square().sum())
            optimizer.step()

    module, found = Penalised(), callback()
    trainer(tmp_path, found).fit(module, loader())
    assert_same(module, found, by_hand())


@pytest.mark.parametrize("through", ["head", "model"])
def test_gradient_accumulation(tmp_path, through):
    module, found = Plain(), callback(through=through)
    trainer(tmp_path, found, accumulate_grad_batches=3).fit(module, loader())
    assert_same(module, found, by_hand(accumulate=3, through=through))


def test_the_logged_loss_is_that_of_hard_labels(tmp_path):
    module, found = Plain(), callback()
    trainer(tmp_path, found, max_epochs=1).fit(module, loader())
    fresh = Plain()
    x, y = next(iter(loader()))
    assert module.losses[0] == pytest.approx(functional.cross_entropy(fresh.net(x), y).item())


@pytest.mark.parametrize("precision", ["64-true", *(pytest.param(p, marks=pytest.mark.bf16) for p in BF16)])
def test_precisions(tmp_path, precision):
    module, found = Plain(), callback()
    trainer(tmp_path, found, precision=precision, max_epochs=6).fit(module, loader())
    strength = found.calibrator.hyperparameters.strength.detach()
    assert torch.isfinite(strength).all()
    assert float(strength.max()) > 0.0
    assert strength.dtype == (torch.float64 if precision == "64-true" else torch.float32)
    assert found.calibrator.skipped == 0


@pytest.mark.bf16
def test_differences_are_not_taken_in_half_precision(tmp_path):
    module, found, calls = Plain(), callback(through="model", finish=False), Counter()
    count = lambda layer, given, output: calls.update([(torch.is_grad_enabled(), output.dtype)])  # noqa: E731
    module.net[2].register_forward_hook(count)
    trainer(tmp_path, found, precision="bf16-mixed", max_epochs=1).fit(module, loader())
    # 4 training and 4 held-out batches; 8 passes at moved parameters; 2 to find the layer, the second as is trained.
    assert calls == {(True, torch.bfloat16): 8, (False, torch.float32): 9, (False, torch.bfloat16): 1}


@pytest.mark.parametrize("precision", BF16)
def test_bf16_is_refused_where_it_kills_the_process(tmp_path, bf16_dies, precision):
    with pytest.raises(InvalidValueError, match=r'SIGILL.*or use Trainer\(precision="32-true"\)'):
        trainer(tmp_path, callback(), precision=precision).fit(Plain(), loader())


@pytest.mark.parametrize("through", ["head", "model"])
def test_checkpoint_and_resume(tmp_path, through):
    whole, found = Plain(), callback(through=through)
    options = {"max_epochs": 4, "enable_checkpointing": True}
    every = ModelCheckpoint(tmp_path, filename="{epoch}", save_top_k=-1)
    trainer(tmp_path, found, every, **options).fit(whole, loader())
    again, resumed = Plain(), callback(through=through)
    resume = trainer(tmp_path, resumed, ModelCheckpoint(tmp_path, save_top_k=0), **options).fit
    keywords = {"weights_only": True} if "weights_only" in inspect.signature(resume).parameters else {}  # 2.6
    resume(again, loader(), ckpt_path=tmp_path / "epoch=1.ckpt", **keywords)
    torch.testing.assert_close(
        resumed.calibrator.hyperparameters.strength, found.calibrator.hyperparameters.strength, rtol=0.0, atol=0.0
    )
    for own, theirs in zip(again.parameters(), whole.parameters()):
        torch.testing.assert_close(own, theirs, rtol=0.0, atol=0.0)
    assert len(resumed.calibrator.history) == len(found.calibrator.history) == 16
    assert resumed.finished == found.finished


def test_the_validation_samples_are_the_held_out_ones(tmp_path):
    module, found = Plain(), callback(meta=None)
    trainer(tmp_path, found).fit(module, loader(), loader(30, 1, 10))
    assert_same(module, found, by_hand())


def test_without_a_validation_step_they_go_through_the_training_step(tmp_path):
    class Untested(Plain):
        validation_step = lightning.LightningModule.validation_step

    module, found = Untested(), callback(meta=None)
    with pytest.warns(UserWarning, match="no `validation_step`"):
        trainer(tmp_path, found).fit(module, loader(), [loader(30, 1, 10)])
    assert_same(module, found, by_hand())


def test_validation_samples_go_the_way_of_validation(tmp_path):
    """What is done to training batches alone, in their step or on their way to the device, is not done to them."""

    class Augmenting(Plain):
        def on_after_batch_transfer(self, batch, dataloader_idx):
            return [batch[0] + 100.0 * self.trainer.training, batch[1]]

        def training_step(self, batch, batch_idx):
            return super().training_step((batch[0] - 100.0, batch[1]), batch_idx)

        def validation_step(self, batch, batch_idx, dataloader_idx=0):
            self.log("seen", batch[0].abs().max())
            self.net(batch[0])

    module, found = Augmenting(), callback(meta=None)
    fit = trainer(tmp_path, found)
    fit.fit(module, loader(), loader(30, 1, 10))
    _, strength, finished = by_hand()
    torch.testing.assert_close(found.calibrator.hyperparameters.strength.detach(), strength, rtol=1e-2, atol=1e-5)
    assert found.finished.temperature == pytest.approx(finished.temperature, rel=1e-2)
    assert fit.logged_metrics["seen"] < 10.0


@pytest.mark.parametrize("owner", ["datamodule", "module"])
def test_the_hook_gives_the_held_out_samples(tmp_path, owner):
    class Data(lightning.LightningDataModule):
        def train_dataloader(self):
            return loader()

        def val_dataloader(self):
            return loader(20, 9)

    class Module(Plain):
        pass

    setter = Data if owner == "datamodule" else Module
    setter.meta_dataloader = lambda self: loader(30, 1, 10)
    module, found = Module(), callback(meta=None)
    trainer(tmp_path, found).fit(module, datamodule=Data())
    assert_same(module, found, by_hand())


def test_the_default_is_that_of_the_calibrator(tmp_path):
    module, found = Plain(), MetaCalibration()
    trainer(tmp_path, found).fit(module, loader(), loader(30, 1, 10))
    assert isinstance(found.calibrator.hyperparameters, LogitPenalty)
    assert found.calibrator.outer == OuterStep()
    assert found.calibrator.output_layer is module.net[2]
    assert found.finished.samples == 30


def test_the_layer_of_the_logits_is_found_by_forward(tmp_path):
    class TwoParts(Plain):
        def __init__(self):
            super().__init__()
            self.head, self.aside = self.net.pop(2), nn.Linear(5, 2)

        def forward(self, x):
            return self.head(self.net(x))

        def training_step(self, batch, batch_idx):
            return functional.cross_entropy(self(batch[0]), batch[1])

        def validation_step(self, batch, batch_idx):
            self(batch[0])

    module, found, monitor = TwoParts(), callback(meta=None), CalibrationMonitor(every_n_epochs=0)
    fit = trainer(tmp_path, found, monitor)
    fit.fit(module, loader(), loader(30, 1, 10))
    _, strength, _ = by_hand()
    torch.testing.assert_close(found.calibrator.hyperparameters.strength.detach(), strength, rtol=1e-4, atol=1e-7)
    assert found.calibrator.output_layer is module.head
    assert 0.0 < fit.callback_metrics["val_ece"] < 1.0


def test_a_model_without_a_linear_head_is_gone_through(tmp_path):
    class Distances(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.centres = nn.Linear(5, 4), nn.Parameter(torch.randn(K, 4))

        def forward(self, x):
            return -torch.cdist(self.body(x), self.centres)

    module, found = Plain(), callback()
    module.net = Distances()
    trainer(tmp_path, found).fit(module, loader())
    assert found.calibrator.through == "model"
    assert found.calibrator.hyperparameters.strength.max().item() > 0.0005
    assert not found.finished.is_folded


def test_batches_that_are_dictionaries_and_extra_terms(tmp_path):
    class Dictionary(Plain):
        def training_step(self, batch, batch_idx):
            loss = functional.cross_entropy(self.net(batch["x"]), batch["kind"])
            return {"loss": loss + 0.01 * self.net[0].weight.square().sum(), "more": 1}

    rows = [{"x": x, "kind": y} for x, y in samples(48, 0)]
    meta = DataLoader([{"x": x, "kind": y} for x, y in samples(30, 1)], batch_size=10)
    found = callback(meta=meta, head="net.2", targets="kind")
    trainer(tmp_path, found).fit(Dictionary(), DataLoader(rows, batch_size=12))
    assert found.calibrator.hyperparameters.strength.max().item() > 0.0005
    with pytest.raises(InvalidValueError, match=r"Sequential cannot be run on a batch's inputs.*net\.2 \(Linear\)"):
        trainer(tmp_path, callback(meta=meta, targets="kind")).fit(Dictionary(), DataLoader(rows, batch_size=12))


def test_training_without_the_callback_is_not_changed_by_one_that_never_steps(tmp_path):
    plain, watched = Plain(), Plain()
    trainer(tmp_path).fit(plain, loader())
    idle = callback(outer=NEVER, finish=False)
    trainer(tmp_path, idle).fit(watched, loader())
    assert idle.finished is None
    for own, theirs in zip(watched.parameters(), plain.parameters()):
        torch.testing.assert_close(own, theirs, rtol=1e-5, atol=1e-7)


def logits_of(module):
    with torch.no_grad():
        return module.net(samples(400, 7).tensors[0])


def overfitted(folder, *callbacks, **options):
    """Trained on few samples until it is far too confident; nothing is learned on the way."""
    module = Plain()
    fit = trainer(folder, *callbacks, max_epochs=60, **options)
    fit.fit(module, loader(24), loader(200, 3, 50))
    return module, fit


def test_a_temperature_is_folded_at_the_end(tmp_path, caplog, monkeypatch):
    plain, _ = overfitted(tmp_path, callback(meta=None, outer=NEVER, finish=False))
    found, last = callback(meta=None, outer=NEVER), ModelCheckpoint(tmp_path, save_last=True, save_top_k=0)
    # Whichever of Lightning's packages was imported last has set the logger, and some pass nothing on.
    monkeypatch.setattr("lightning_utilities.core.rank_zero.log", logging.getLogger("said"))
    with caplog.at_level(logging.INFO, "said"):
        module, fit = overfitted(tmp_path, found, last, enable_checkpointing=True)
    assert found.finished.is_folded
    assert found.finished.temperature > 1.5
    torch.testing.assert_close(logits_of(module), logits_of(plain) / found.finished.temperature, rtol=1e-4, atol=1e-5)
    assert found.finished.after.nll < found.finished.before.nll
    assert str(found.finished) in caplog.text
    assert found.calibrator.summary() in caplog.text
    fit.save_checkpoint(tmp_path / "end.ckpt")
    saved = torch.load(tmp_path / "end.ckpt", weights_only=True)["state_dict"]
    assert saved.keys() == plain.state_dict().keys()
    assert torch.equal(saved["net.2.weight"], module.net[2].weight)


def test_the_best_checkpoint_is_finished_if_that_is_asked_for(tmp_path):
    best = ModelCheckpoint(tmp_path, monitor="val_refined_nll")
    monitor, found = CalibrationMonitor(every_n_epochs=0), callback(meta=None, outer=NEVER, finish="best")
    module, _ = overfitted(tmp_path, found, monitor, best, enable_checkpointing=True)
    weights = torch.load(best.best_model_path, weights_only=True)["state_dict"]
    divided_by = found.finished.temperature if found.finished.is_folded else 1.0
    torch.testing.assert_close(module.net[2].weight, weights["net.2.weight"] / divided_by)
    assert torch.equal(module.net[0].weight, weights["net.0.weight"])
    assert best.best_model_score < 0.9 * found.calibrator.hyperparameters.num_classes  # NLL, not an accuracy
    assert "epoch=59" not in best.best_model_path  # over-fitted by then
    with pytest.raises(InvalidValueError, match="without a ModelCheckpoint callback, got 'best'"):
        overfitted(tmp_path, callback(meta=None, finish="best"))


DDP = """
import json, os, sys, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, {root!r})
from tests.integrations.lightning.test_meta_calibration import fit_on
fit_on(2, int(os.environ.get("LOCAL_RANK", 0)), {folder!r}, {through!r})
"""


def fit_on(devices, rank, folder, through):
    """Fit on so many processes; what came out goes to a file."""
    torch.set_num_threads(1)
    found = callback(meta=None, through=through)
    module = Plain()
    sampler = DistributedSampler(samples(48, 0), devices, rank, shuffle=False)
    strategy = "ddp" if devices > 1 else "auto"
    monitor = CalibrationMonitor(every_n_epochs=0)
    fit = trainer(folder, found, monitor, devices=devices, strategy=strategy, use_distributed_sampler=False)
    train = loader(48, batch_size=12 // devices, sampler=sampler)
    held_out = samples(40, 1)
    own = DistributedSampler(held_out, devices, rank, shuffle=False)
    fit.fit(module, train, DataLoader(held_out, batch_size=20 // devices, sampler=own))
    end = [
        found.calibrator.hyperparameters.strength.tolist(),
        module.net[2].weight.flatten().tolist(),
        [found.finished.temperature, fit.callback_metrics["val_refined_nll"].item()],
    ]
    Path(folder, f"{devices}-{fit.global_rank}.json").write_text(json.dumps(end))


@pytest.mark.slow
@pytest.mark.parametrize("through", ["head", "model"])
def test_two_processes_are_one(tmp_path, through):
    script = tmp_path / "fit.py"
    script.write_text(DDP.format(root=str(Path(__file__).parents[3]), folder=str(tmp_path), through=through))
    subprocess.run([sys.executable, str(script)], check=True, capture_output=True)
    fit_on(1, 0, str(tmp_path), through)
    one, first, second = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("1-0", "2-0", "2-1"))
    assert first == second
    assert max(one[0]) > 0.0005
    for joint, alone in zip(first, one):
        assert joint == pytest.approx(alone, rel=1e-3, abs=1e-5)


def test_a_head_that_is_not_there(tmp_path):
    with pytest.raises(
        InvalidValueError, match=r"got 'net.fc'; its last layers are net\.0 \(Linear\), net\.2 \(Linear\)\."
    ):
        trainer(tmp_path, callback(head="net.fc")).fit(Plain(), loader())
    with pytest.raises(InvalidTypeError, match="`head` must be an attribute path"):
        MetaCalibration(head=Plain().net)

    class TwoNetworks(Plain):
        def __init__(self):
            super().__init__()
            self.other = nn.Linear(5, 2)

    with pytest.raises(InvalidValueError, match=r"no `forward` to find it by; .*net\.2 \(Linear\), other \(Linear\)"):
        trainer(tmp_path, callback()).fit(TwoNetworks(), loader())


def test_no_held_out_samples(tmp_path):
    with pytest.raises(InvalidValueError, match=r"`meta` must be a DataLoader.*random_split.*Got no such loaders"):
        trainer(tmp_path, callback(meta=None)).fit(Plain(), loader())
    with pytest.raises(InvalidValueError, match="Got several such loaders"):
        trainer(tmp_path, callback(meta=None)).fit(Plain(), loader(), [loader(30, 1), loader(30, 2)])
    for wrong in (0.1, iter(loader()), "net.2"):
        with pytest.raises(InvalidTypeError, match=r"`meta` must be a loader or an"):
            trainer(tmp_path, callback(meta=wrong)).fit(Plain(), loader())


def test_batches_that_are_no_loader(tmp_path):
    """The same samples in an order that the calibrator cannot change: a list of one batch has no order."""
    (whole,) = loader(30, 1, 30)
    ends = []
    for meta in ([whole], loader(30, 1, 30)):
        found = callback(meta=meta)
        trainer(tmp_path, found).fit(Plain(), loader())
        ends.append(found.calibrator.hyperparameters.strength.detach())
    torch.testing.assert_close(*ends, rtol=1e-4, atol=1e-6)


def test_a_meta_loader_with_a_sampler_of_its_own(tmp_path):
    weights = torch.tensor([0.0] * 20 + [1.0] * 10)
    meta = DataLoader(samples(30, 1), batch_size=10, sampler=WeightedRandomSampler(weights, 10))
    seen = set()
    given = meta.collate_fn
    meta.collate_fn = lambda rows: (seen.update(row[0].item() for row, _ in rows), given(rows))[1]
    trainer(tmp_path, callback(meta=meta)).fit(Plain(), loader())
    assert seen
    assert seen <= {row[0].item() for row in samples(30, 1).tensors[0][20:]}


def test_a_validation_step_that_does_not_run_the_head(tmp_path):
    class Averaged(Plain):
        def __init__(self):
            super().__init__()
            self.average = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, K))

        def validation_step(self, batch, batch_idx):
            self.average(batch[0])

    with pytest.raises(InvalidValueError, match=r"`head` must be run by `validation_step`.*as `meta` to run them"):
        trainer(tmp_path, callback(meta=None, head="net.2")).fit(Averaged(), loader(), loader(30, 1, 10))
    found = callback(head="net.2")
    trainer(tmp_path, found).fit(Averaged(), loader(), loader(30, 1, 10))
    assert found.calibrator.hyperparameters.strength.max().item() > 0.0005


def test_losses_that_the_callback_cannot_see(tmp_path):
    class ByHand(Manual):
        def training_step(self, batch):
            functional.cross_entropy(self.net(batch[0]), batch[1]).backward()

    with pytest.raises(InvalidValueError, match="label smoothing, which is learned here"):
        trainer(tmp_path, callback()).fit(Plain(label_smoothing=0.2), loader())
    with pytest.raises(InvalidValueError, match="manual_backward"):
        trainer(tmp_path, callback()).fit(ByHand(), loader())
    penalty = callback(head="net.2", hyperparameters=UnitwiseL2(Plain().net[2]))
    with pytest.raises(InvalidValueError, match="adds a penalty on weights"):
        trainer(tmp_path, penalty).fit(Plain(), loader())


def test_a_head_that_nobody_trains(tmp_path):
    class Frozen(Plain):
        def configure_optimizers(self):
            return torch.optim.SGD(self.net[0].parameters(), lr=0.1)

    with pytest.raises(InvalidValueError, match="`head` must be trained by `optimizer`"):
        trainer(tmp_path, callback(head="net.2")).fit(Frozen(), loader())
    found = callback()  # the rest of the model is trained
    trainer(tmp_path, found).fit(Frozen(), loader())
    assert found.calibrator.through == "model"
    assert found.calibrator.hyperparameters.strength.max().item() > 0.0005


def test_before_any_fit():
    assert callback().calibrator is None
    assert callback().state_dict() == {}
    with pytest.raises(InvalidValueError, match="`finish` must be"):
        callback(finish="last")
