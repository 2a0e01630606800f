"""The trainer on tiny, randomly initialised BERT and ViT models; nothing is downloaded."""

import json

import pytest
import torch
from torch.utils.data import DataLoader, Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    RobertaConfig,
    RobertaForSequenceClassification,
    Trainer,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
)

from metacal import LogitPenalty, MetaCalibrator, OuterStep, VectorLabelSmoothing
from metacal.errors import InvalidValueError
from metacal.functional import expected_calibration_error, negative_log_likelihood, temperature_with_prior
from metacal.integrations.transformers import FILE, MetaCalibrationMixin, MetaCalibrationTrainer, calibration_metrics

K = 3
TINY = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, num_labels=K)
ALWAYS = OuterStep(every=1, dense_start=0)
NEVER = OuterStep(every=float("inf"), dense_start=0)
STILL = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


class Rows(Dataset):
    def __init__(self, n, seed, kind="text"):
        generator = torch.Generator().manual_seed(seed)
        self.y = torch.randint(K, (n,), generator=generator)
        noisy = torch.where(
            torch.rand(n, generator=generator) < 0.3, torch.randint(K, (n,), generator=generator), self.y
        )
        if kind == "text":
            self.x = {"input_ids": torch.randint(10, 30, (n, 6), generator=generator)}
            self.x["input_ids"][:, 0] = noisy
            self.x["attention_mask"] = torch.ones(n, 6, dtype=torch.int64)
        else:
            self.x = {"pixel_values": torch.randn(n, 1, 8, 8, generator=generator) + noisy.view(-1, 1, 1, 1)}

    def __len__(self):
        return len(self.y)

    def __getitem__(self, number):
        return {name: values[number] for name, values in self.x.items()} | {"labels": self.y[number]}


def bert(**options):
    torch.manual_seed(0)
    return BertForSequenceClassification(BertConfig(vocab_size=30, **TINY, **STILL, **options))


def vit():
    torch.manual_seed(0)
    return ViTForImageClassification(ViTConfig(image_size=8, patch_size=4, num_channels=1, **TINY, **STILL))


def arguments(folder, **options):
    return TrainingArguments(
        str(folder),
        **{
            "max_steps": 6,
            "per_device_train_batch_size": 8,
            "learning_rate": 0.01,
            "logging_steps": 2,
            "save_strategy": "no",
            "report_to": [],
            "use_cpu": True,
            "disable_tqdm": True,
            "seed": 3,
            **options,
        },
    )


def trained(folder, model, kind="text", samples=48, finish=True, **options):
    settings = {"hyperparameters": VectorLabelSmoothing(K), "outer": ALWAYS, **options.pop("meta_calibration", {})}
    trainer = MetaCalibrationTrainer(
        model=model,
        args=arguments(folder, **options),
        train_dataset=Rows(samples, 0, kind),
        eval_dataset=Rows(24, 1, kind),
        meta_calibration=settings,
        compute_metrics=calibration_metrics,
        finish=finish,
    )
    trainer.train()
    return trainer


def strength(trainer):
    return trainer.calibrator.hyperparameters.strength.detach()


@pytest.mark.parametrize("through", ["head", "model"])
@pytest.mark.parametrize(("make", "kind"), [(bert, "text"), (vit, "image")])
def test_bert_and_vit(tmp_path, make, kind, through):
    trainer = trained(tmp_path, make(), kind, meta_calibration={"through": through})
    assert trainer.calibrator.output_layer is trainer.model.classifier
    assert strength(trainer).max() > 0.0005
    assert len(trainer.calibrator.history) == 5  # of 6 steps: the first one shows how AdamW scales
    logged = [record for record in trainer.state.log_history if "loss" in record]
    assert len(logged) == 3
    assert {"meta_meta_loss", "meta_strength"} <= set(logged[-1])
    scores = trainer.evaluate()
    said = trainer.predict(trainer.eval_dataset)
    samples = {"logits": torch.as_tensor(said.predictions), "targets": torch.as_tensor(said.label_ids)}
    assert scores["eval_ece"] == pytest.approx(float(expected_calibration_error(**samples)), abs=1e-6)
    scaled = samples["logits"] / temperature_with_prior(**samples, iterations=40)
    refined = float(negative_log_likelihood(logits=scaled, targets=samples["targets"]))
    assert scores["eval_refined_loss"] == pytest.approx(refined, abs=1e-5)
    assert refined < scores["eval_nll"]
    assert 0.0 <= scores["eval_accuracy"] <= 1.0
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in trainer.model.modules())


@pytest.mark.parametrize("through", ["head", "model"])
@pytest.mark.parametrize("parts", [1, 2])
def test_it_is_the_loop_by_hand(tmp_path, parts, through):
    options = dict(optim="sgd", max_grad_norm=0.0, lr_scheduler_type="constant", max_steps=1)
    options |= {"meta_calibration": {"through": through}}
    trainer = trained(tmp_path, bert(), samples=8 * parts, gradient_accumulation_steps=parts, **options)
    model, smoothing = bert(), VectorLabelSmoothing(K)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    held_out = DataLoader(Rows(24, 1), batch_size=8)
    meta = MetaCalibrator(model, optimizer, held_out, smoothing, through=through, outer=ALWAYS, seed=3)
    batches = iter(trainer.get_train_dataloader())
    model.train()
    for number in range(parts):
        batch = next(batches)
        labels = batch.pop("labels")
        meta.step(batch, labels, boundary=number == parts - 1).backward()  # the trainer sums
    optimizer.step()
    finished = meta.finish()
    assert strength(trainer).max() > 0.0005
    torch.testing.assert_close(strength(trainer), smoothing.strength.detach(), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(trainer.model.classifier.weight, model.classifier.weight, rtol=1e-4, atol=1e-6)
    assert trainer.finished.temperature == pytest.approx(finished.temperature, rel=1e-4)


@pytest.mark.parametrize("through", ["head", "model"])
def test_omega_is_saved_and_resumed(tmp_path, through):
    settings = {"meta_calibration": {"through": through}}
    whole = trained(tmp_path / "whole", bert(), **settings)
    half = trained(tmp_path / "parts", bert(), save_strategy="steps", save_steps=3, **settings)
    assert (tmp_path / "parts" / "checkpoint-3" / FILE).exists()
    again = MetaCalibrationTrainer(
        model=bert(),
        args=arguments(tmp_path / "parts"),
        train_dataset=Rows(48, 0),
        meta_dataset=Rows(24, 1),
        meta_calibration={"hyperparameters": VectorLabelSmoothing(K), "outer": ALWAYS, "through": through},
    )
    again.train(resume_from_checkpoint=str(tmp_path / "parts" / "checkpoint-3"))
    torch.testing.assert_close(strength(again), strength(whole), rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(strength(half), strength(whole))
    torch.testing.assert_close(again.model.classifier.weight, whole.model.classifier.weight, rtol=1e-5, atol=1e-6)
    assert len(again.calibrator.history) == 5


def test_the_same_trainer_goes_back_to_a_checkpoint(tmp_path):
    trainer = trained(tmp_path, bert(), save_strategy="steps", save_steps=3)
    whole = strength(trainer).clone()
    trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert len(trainer.calibrator.history) == 5
    torch.testing.assert_close(strength(trainer), whole, rtol=1e-5, atol=1e-7)


def test_every_training_learns_from_the_beginning(tmp_path):
    """As when a search for hyper-parameters makes one model after the other."""
    given = VectorLabelSmoothing(K)
    trainer = MetaCalibrationTrainer(
        model_init=lambda: bert(),
        args=arguments(tmp_path),
        train_dataset=Rows(48, 0),
        meta_dataset=Rows(24, 1),
        meta_calibration={"hyperparameters": given, "outer": ALWAYS},
    )
    ends = []
    for _ in range(2):
        trainer.train()
        ends.append(strength(trainer).clone())
    torch.testing.assert_close(*ends)
    assert ends[0].max() > 0.0005
    assert not given.strength.any()


OVERFITTED = {"max_steps": 60, "learning_rate": 0.02, "samples": 16, "meta_calibration": {"outer": NEVER}}


def test_a_temperature_is_folded_at_the_end(tmp_path):
    plain = trained(tmp_path, bert(), finish=False, **OVERFITTED)
    trainer = trained(tmp_path, bert(), **OVERFITTED)
    finished = trainer.finished
    assert plain.finished is None
    assert finished.is_folded
    assert finished.temperature > 1.5
    trainer.save_model(tmp_path / "saved")
    saved = BertForSequenceClassification.from_pretrained(tmp_path / "saved")
    torch.testing.assert_close(saved.classifier.weight, plain.model.classifier.weight / finished.temperature)
    logged = trainer.state.log_history[-1]
    assert logged["meta_temperature"] == finished.temperature
    assert logged["meta_is_folded"] == 1.0
    assert logged["meta_nll_after"] < logged["meta_nll_before"] == pytest.approx(finished.before.nll)
    assert trainer.evaluate()["eval_nll"] == pytest.approx(finished.after.nll, rel=1e-4)


def test_the_best_checkpoint_by_refinement_is_finished(tmp_path):
    chosen = {"load_best_model_at_end": True, "metric_for_best_model": "refined_loss", "eval_strategy": "steps"}
    saving = {"save_strategy": "steps", "save_steps": 10, "eval_steps": 10}
    trainer = trained(tmp_path, bert(), **OVERFITTED, **chosen, **saving)
    evaluated = [record for record in trainer.state.log_history if "eval_nll" in record]
    found = {record["step"]: record["eval_refined_loss"] for record in evaluated}
    best = min(found, key=found.get)
    assert trainer.state.best_model_checkpoint.endswith(f"checkpoint-{best}")
    assert best < 60
    weights = BertForSequenceClassification.from_pretrained(trainer.state.best_model_checkpoint).classifier.weight
    divided_by = trainer.finished.temperature if trainer.finished.is_folded else 1.0
    torch.testing.assert_close(trainer.model.classifier.weight, weights / divided_by)


def test_the_default_is_that_of_the_calibrator(tmp_path):
    trainer = MetaCalibrationTrainer(
        model=bert(), args=arguments(tmp_path), train_dataset=Rows(48, 0), eval_dataset=Rows(24, 1)
    )
    trainer.train()
    assert isinstance(trainer.calibrator.hyperparameters, LogitPenalty)
    assert trainer.calibrator.outer == OuterStep()
    assert trainer.calibrator.output_layer is trainer.model.classifier
    assert trainer.finished.samples == 24


@pytest.mark.bf16
@pytest.mark.parametrize("through", ["head", "model"])
def test_bf16(tmp_path, through):
    trainer = trained(tmp_path, bert(), bf16=True, meta_calibration={"through": through})
    assert trainer.calibrator.output_layer is trainer.model.classifier
    assert torch.isfinite(strength(trainer)).all()
    assert trainer.calibrator.skipped == 0


@pytest.mark.parametrize(("model", "options"), [(bert, {"bf16": True}), (lambda: bert().bfloat16(), {})])
def test_bf16_is_refused_where_it_kills_the_process(tmp_path, bf16_dies, model, options):
    with pytest.raises(InvalidValueError, match=r"SIGILL.*or use bf16=False and a model in float32"):
        trained(tmp_path, model(), **options)


def test_a_mixin(tmp_path):
    class Mine(Trainer):
        def training_step(self, *args, **kwargs):
            self.calls = getattr(self, "calls", 0) + 1
            return super().training_step(*args, **kwargs)

    class Ours(MetaCalibrationMixin, Mine):
        pass

    trainer = Ours(model=bert(), args=arguments(tmp_path), train_dataset=Rows(40, 0), meta_dataset=Rows(10, 1))
    trainer.train()
    assert trainer.calls == 6
    assert trainer.calibrator.hyperparameters.num_classes == K
    json.dumps(trainer.calibrator.export())


def test_a_head_of_several_layers(tmp_path):
    torch.manual_seed(0)
    roberta = RobertaForSequenceClassification(RobertaConfig(vocab_size=32, max_position_embeddings=12, **TINY))
    trainer = trained(tmp_path, roberta)
    assert trainer.calibrator.output_layer is roberta.classifier.out_proj
    assert strength(trainer).max() > 0.0005


def test_a_decoder_that_scores_every_token(tmp_path):
    """And picks one score afterwards: no layer returns the logits, so that the step is one on the model."""
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=30, n_embd=16, n_layer=1, n_head=2, n_positions=8, num_labels=K, pad_token_id=0)
    trainer = trained(tmp_path, GPT2ForSequenceClassification(config), max_steps=12, samples=96)
    assert trainer.calibrator.through == "model"
    assert strength(trainer).max() > 0.0005
    assert trainer.calibrator.output_layer is None
    assert not trainer.finished.is_folded


@pytest.mark.bf16
def test_a_decoder_in_mixed_precision_is_refused(tmp_path):
    """Accelerate converts its logits on the way out: the loss, computed inside, does not depend on what is seen."""
    config = GPT2Config(vocab_size=30, n_embd=16, n_layer=1, n_head=2, n_positions=8, num_labels=K, pad_token_id=0)
    with pytest.raises(InvalidValueError, match="to be trained in bf16, got GPT2ForSequenceClassification, which has"):
        trained(tmp_path, GPT2ForSequenceClassification(config), bf16=True)


def test_bad_input(tmp_path):
    with pytest.raises(InvalidValueError, match=r"`meta_dataset` must be a dataset of held-out samples.*got none"):
        MetaCalibrationTrainer(model=bert(), args=arguments(tmp_path), train_dataset=Rows(8, 0))
    several = {"one": Rows(8, 1), "two": Rows(8, 2)}
    with pytest.raises(InvalidValueError, match="got those named one, two"):
        MetaCalibrationTrainer(model=bert(), args=arguments(tmp_path), train_dataset=Rows(8, 0), eval_dataset=several)
    with pytest.raises(InvalidValueError, match=r"got 'fc'; its last layers are .*classifier \(Linear\)\."):
        trained(tmp_path, bert(), meta_calibration={"head": "fc"})
    with pytest.raises(InvalidValueError, match="label smoothing, which is learned here"):
        trained(tmp_path, bert(), label_smoothing_factor=0.3)
    with pytest.raises(InvalidValueError, match="must be the head's, 16, got 3"):
        trained(tmp_path, bert(), meta_calibration={"head": "bert.pooler.dense"})
