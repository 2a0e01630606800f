"""The callback on real Trainers: what it does is what `MetaCalibrator.step` does in a loop by hand."""

import inspect
import json
import subprocess
import sys
from pathlib import Path

import lightning
import pytest
import torch
from tests.integrations.lightning.modules import K, Manual, Plain, loader, samples, trainer
from torch.nn import functional
from torch.utils.data import DataLoader, DistributedSampler, WeightedRandomSampler

from metacal import MetaCalibrator, NonUniformLabelSmoothing, UnitwiseL2, VectorLabelSmoothing
from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.integrations.lightning import MetaCalibration
from metacal.integrations.meta_stream import MetaStream

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers.*",
    "ignore:.*srun.*",
    "ignore:.*LeafSpec.*",
    "ignore:.*isinstance\\(treespec.*",
    "ignore:You defined a `validation_step` but have no `val_dataloader`",
    "ignore:.*exists and is not empty.*",
)

BF16 = ("bf16-true", "bf16-mixed")


def callback(**options):
    given = dict(meta=loader(30, 1, 10), hyperparameters=VectorLabelSmoothing(K), every=1, **options)
    return MetaCalibration("net.2", **given)


def by_hand(epochs=2, accumulate=1):
    """The loop that the callback stands for."""
    module = Plain()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.2, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    meta = MetaCalibrator(module.net, "2", VectorLabelSmoothing(K), every=1)
    stream = MetaStream(samples(30, 1), 10, seed=0)
    for _ in range(epochs):
        batches = list(loader())
        for number, (x, y) in enumerate(batches):
            boundary = (number + 1) % accumulate == 0 or number == len(batches) - 1
            lr = optimizer.param_groups[0]["lr"]
            loss = meta.step(x, y, meta=map(tuple, stream), lr=lr, boundary=boundary) / accumulate
            loss.backward()
            if boundary:
                optimizer.step()
                optimizer.zero_grad()
        scheduler.step()
    return module, meta.hyperparameters.strength.detach()


def assert_same(module, found, expected):
    reference, strength = expected
    assert float(strength.max()) > 0.0005
    torch.testing.assert_close(found.calibrator.hyperparameters.strength.detach(), strength, rtol=1e-4, atol=1e-7)
    for own, theirs in zip(module.parameters(), reference.parameters()):
        torch.testing.assert_close(own, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", [Plain, Manual])
def test_it_is_the_loop_by_hand(tmp_path, kind):
    module, found = kind(), callback()
    fit = trainer(tmp_path, found)
    fit.fit(module, loader())
    assert_same(module, found, by_hand())
    assert not module.net[2]._forward_hooks and not module.net[2]._forward_pre_hooks
    assert "meta_loss" in found.summary() or "meta-loss" in found.summary()
    assert len(found.export()["soft_labels"]) == K
    assert {"meta/meta_loss", "meta/strength"} <= set(fit.logged_metrics)
    assert kind is Manual or len(module.losses) == 8  # meta batches stop at the head


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


def test_gradient_accumulation(tmp_path):
    module, found = Plain(), callback()
    trainer(tmp_path, found, accumulate_grad_batches=3).fit(module, loader())
    assert_same(module, found, by_hand(accumulate=3))


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
    assert torch.isfinite(strength).all() and float(strength.max()) > 0.0
    assert strength.dtype == (torch.float64 if precision == "64-true" else torch.float32)
    assert found.calibrator.skipped == 0


@pytest.mark.parametrize("precision", BF16)
def test_bf16_is_refused_where_it_kills_the_process(tmp_path, bf16_dies, precision):
    with pytest.raises(InvalidValueError, match=r'SIGILL.*or use Trainer\(precision="32-true"\)'):
        trainer(tmp_path, callback(), precision=precision).fit(Plain(), loader())


def test_checkpoint_and_resume(tmp_path):
    whole, found = Plain(), callback()
    trainer(tmp_path, found, max_epochs=4).fit(whole, loader())
    first = callback()
    fit = trainer(tmp_path, first, max_epochs=2)
    fit.fit(Plain(), loader())
    fit.save_checkpoint(tmp_path / "half.ckpt")
    again, resumed = Plain(), callback()
    resume = trainer(tmp_path, resumed, max_epochs=4).fit
    keywords = {"weights_only": True} if "weights_only" in inspect.signature(resume).parameters else {}  # 2.6
    resume(again, loader(), ckpt_path=tmp_path / "half.ckpt", **keywords)
    torch.testing.assert_close(
        resumed.calibrator.hyperparameters.strength, found.calibrator.hyperparameters.strength, rtol=0.0, atol=0.0
    )
    for own, theirs in zip(again.parameters(), whole.parameters()):
        torch.testing.assert_close(own, theirs, rtol=0.0, atol=0.0)
    assert len(resumed.calibrator.history) == len(found.calibrator.history) == 16


def test_a_share_of_the_training_set_is_split_off(tmp_path):
    class Seen(Plain):
        seen: list

        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch, batch_idx)
            self.seen.extend(batch[0][:, 0].tolist())  # behind the head: meta batches do not come here
            return loss

    module = Seen()
    module.seen = []
    found = MetaCalibration("net.2", 0.25, every=1)
    trainer(tmp_path, found).fit(module, loader(48, shuffle=True))
    trained = set(module.seen)
    held_out = {row[0].item() for row, _ in found._stream.dataset}
    assert len(trained) == 36 and len(held_out) == 12 and not trained & held_out
    assert found._stream.batch_size == 12
    assert isinstance(found.calibrator.hyperparameters, NonUniformLabelSmoothing)


def test_the_datamodule_gives_the_meta_set(tmp_path):
    class Data(lightning.LightningDataModule):
        def train_dataloader(self):
            return loader()

        def meta_dataloader(self):
            return loader(30, 1, 10)

    module = Plain()
    found = MetaCalibration("net.2", hyperparameters=VectorLabelSmoothing(K), every=1)
    trainer(tmp_path, found).fit(module, datamodule=Data())
    assert_same(module, found, by_hand())


def test_a_share_of_the_datamodules_training_set_and_a_dataset(tmp_path):
    class Data(lightning.LightningDataModule):
        def train_dataloader(self):
            return loader()

    found = MetaCalibration("net.2", 0.25)
    trainer(tmp_path, found, max_epochs=1).fit(Plain(), datamodule=Data())
    assert len(found._stream.dataset) == 12
    found = MetaCalibration("net.2", samples(30, 1), meta_batch_size=7)
    trainer(tmp_path, found, max_epochs=1).fit(Plain(), loader())
    assert found._stream.batch_size == 7


def test_batches_that_are_dictionaries_and_extra_terms(tmp_path):
    class Dictionary(Plain):
        def training_step(self, batch, batch_idx):
            loss = functional.cross_entropy(self.net(batch["x"]), batch["kind"])
            return {"loss": loss + 0.01 * self.net[0].weight.square().sum(), "more": 1}

    rows = [{"x": x, "kind": y} for x, y in samples(48, 0)]
    meta = DataLoader([{"x": x, "kind": y} for x, y in samples(30, 1)], batch_size=10)
    found = MetaCalibration("net.2", meta, targets="kind", hyperparameters=VectorLabelSmoothing(K), every=1)
    trainer(tmp_path, found).fit(Dictionary(), DataLoader(rows, batch_size=12))
    assert found.calibrator.hyperparameters.strength.max().item() > 0.0005


def test_training_without_the_callback_is_not_changed_by_one_that_never_steps(tmp_path):
    plain, watched = Plain(), Plain()
    trainer(tmp_path).fit(plain, loader())
    trainer(tmp_path, MetaCalibration("net.2", loader(30, 1, 10), every=float("inf"))).fit(watched, loader())
    for own, theirs in zip(watched.parameters(), plain.parameters()):
        torch.testing.assert_close(own, theirs, rtol=1e-5, atol=1e-7)


DDP = """
import json, os, sys, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, {root!r})
from tests.integrations.lightning.test_meta_calibration import fit_on
fit_on(2, int(os.environ.get("LOCAL_RANK", 0)), {folder!r})
"""


def fit_on(devices, rank, folder):
    """Fit on so many processes; what came out goes to a file."""
    torch.set_num_threads(1)
    meta = loader(40, 1, 20 // devices)
    found = MetaCalibration("net.2", meta, hyperparameters=VectorLabelSmoothing(K), every=1)
    module = Plain()
    sampler = DistributedSampler(samples(48, 0), devices, rank, shuffle=False)
    strategy = "ddp" if devices > 1 else "auto"
    fit = trainer(folder, found, devices=devices, strategy=strategy, use_distributed_sampler=False)
    fit.fit(module, loader(48, batch_size=12 // devices, sampler=sampler))
    end = [found.calibrator.hyperparameters.strength.tolist(), module.net[2].weight.flatten().tolist()]
    Path(folder, f"{devices}-{fit.global_rank}.json").write_text(json.dumps(end))


@pytest.mark.slow
def test_two_processes_are_one(tmp_path):
    script = tmp_path / "fit.py"
    script.write_text(DDP.format(root=str(Path(__file__).parents[3]), folder=str(tmp_path)))
    subprocess.run([sys.executable, str(script)], check=True, capture_output=True)
    fit_on(1, 0, str(tmp_path))
    one, first, second = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("1-0", "2-0", "2-1"))
    assert first == second and max(one[0]) > 0.0005
    for joint, alone in zip(first, one):
        assert joint == pytest.approx(alone, rel=1e-3, abs=1e-5)


def test_a_head_that_is_not_there(tmp_path):
    with pytest.raises(InvalidValueError, match=r"got 'net.fc'; its linear layers are net\.0, net\.2\."):
        trainer(tmp_path, MetaCalibration("net.fc", 0.1)).fit(Plain(), loader())
    with pytest.raises(InvalidTypeError, match="`head` must be an attribute path"):
        MetaCalibration(Plain().net)


def test_no_meta_data(tmp_path):
    with pytest.raises(InvalidValueError, match=r"`meta` must be given.*0\.1.*meta_dataloader"):
        trainer(tmp_path, MetaCalibration("net.2")).fit(Plain(), loader())
    with pytest.raises(InvalidValueError, match="`meta` must be in"):
        MetaCalibration("net.2", 1.5)


def test_a_share_of_a_loader_with_a_sampler_of_its_own(tmp_path):
    own = DataLoader(samples(48, 0), batch_size=12, sampler=WeightedRandomSampler(torch.ones(48), 48))
    with pytest.raises(InvalidValueError, match="has a sampler of its own"):
        trainer(tmp_path, MetaCalibration("net.2", 0.1)).fit(Plain(), own)


def test_a_meta_loader_with_a_sampler_of_its_own(tmp_path):
    weights = torch.tensor([0.0] * 20 + [1.0] * 10)
    meta = DataLoader(samples(30, 1), batch_size=10, sampler=WeightedRandomSampler(weights, 10))
    seen = set()
    given = meta.collate_fn
    meta.collate_fn = lambda rows: (seen.update(row[0].item() for row, _ in rows), given(rows))[1]
    trainer(tmp_path, MetaCalibration("net.2", meta, every=1)).fit(Plain(), loader())
    assert seen and seen <= {row[0].item() for row in samples(30, 1).tensors[0][20:]}
    with pytest.raises(InvalidValueError, match="`meta_batch_size` must not be given for a loader with a sampler"):
        trainer(tmp_path, MetaCalibration("net.2", meta, meta_batch_size=5)).fit(Plain(), loader())


def test_losses_that_the_callback_cannot_see(tmp_path):
    class ByHand(Manual):
        def training_step(self, batch):
            functional.cross_entropy(self.net(batch[0]), batch[1]).backward()

    with pytest.raises(InvalidValueError, match="label smoothing, which is learned here"):
        trainer(tmp_path, callback()).fit(Plain(label_smoothing=0.2), loader())
    with pytest.raises(InvalidValueError, match="manual_backward"):
        trainer(tmp_path, callback()).fit(ByHand(), loader())
    penalty = MetaCalibration("net.2", 0.2, hyperparameters=UnitwiseL2(Plain().net[2]))
    with pytest.raises(InvalidValueError, match="adds a penalty on weights"):
        trainer(tmp_path, penalty).fit(Plain(), loader())


def test_a_head_that_nobody_trains(tmp_path):
    class Frozen(Plain):
        def configure_optimizers(self):
            return torch.optim.SGD(self.net[0].parameters(), lr=0.1)

    with pytest.raises(InvalidValueError, match="no optimizer has parameters of"):
        trainer(tmp_path, callback()).fit(Frozen(), loader())


def test_before_any_fit():
    with pytest.raises(InvalidValueError, match="must have been used in a fit"):
        callback().summary()
    assert callback().state_dict() == {}
