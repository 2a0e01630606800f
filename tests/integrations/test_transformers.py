"""The trainer on tiny, randomly initialised BERT and ViT models; nothing is downloaded."""

import json

import pytest
import torch
from torch.utils.data import Dataset
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

from metacal import MetaCalibrator, VectorLabelSmoothing
from metacal.errors import InvalidValueError
from metacal.functional import expected_calibration_error
from metacal.integrations.meta_stream import MetaStream
from metacal.integrations.transformers import (
    FILE,
    MetaCalibrationMixin,
    MetaCalibrationTrainer,
    calibration_metrics,
    find_classifier,
)

K = 3
TINY = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, num_labels=K)
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


def trained(folder, model, kind="text", samples=48, **options):
    settings = {"hyperparameters": VectorLabelSmoothing(K), "every": 1, **options.pop("meta_calibration", {})}
    trainer = MetaCalibrationTrainer(
        model=model,
        args=arguments(folder, **options),
        train_dataset=Rows(samples, 0, kind),
        eval_dataset=Rows(20, 2, kind),
        meta_dataset=Rows(24, 1, kind),
        meta_calibration=settings,
        compute_metrics=calibration_metrics,
    )
    trainer.train()
    return trainer


def strength(trainer):
    return trainer.calibrator.hyperparameters.strength.detach()


@pytest.mark.parametrize(("make", "kind"), [(bert, "text"), (vit, "image")])
def test_bert_and_vit(tmp_path, make, kind):
    trainer = trained(tmp_path, make(), kind)
    assert trainer.calibrator.head is trainer.model.classifier
    assert strength(trainer).max() > 0.0005 and trainer.calibrator._meta_steps == 6
    logged = [record for record in trainer.state.log_history if "loss" in record]
    assert len(logged) == 3 and {"meta_meta_loss", "meta_strength"} <= set(logged[-1])
    scores = trainer.evaluate()
    said = trainer.predict(trainer.eval_dataset)
    wanted = expected_calibration_error(
        logits=torch.as_tensor(said.predictions), targets=torch.as_tensor(said.label_ids)
    )
    assert scores["eval_ece"] == pytest.approx(float(wanted), abs=1e-6) and 0.0 <= scores["eval_accuracy"] <= 1.0


@pytest.mark.parametrize("parts", [1, 2])
def test_it_is_the_loop_by_hand(tmp_path, parts):
    options = dict(optim="sgd", max_grad_norm=0.0, lr_scheduler_type="constant", max_steps=1)
    trainer = trained(tmp_path, bert(), samples=8 * parts, gradient_accumulation_steps=parts, **options)
    model = bert()
    meta = MetaCalibrator(model, "classifier", VectorLabelSmoothing(K), every=1, seed=3)
    stream = ((batch, batch.pop("labels")) for batch in MetaStream(Rows(24, 1), 8, seed=3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = iter(trainer.get_train_dataloader())
    model.train()
    for number in range(parts):
        batch = next(batches)
        labels = batch.pop("labels")
        meta.step(batch, labels, meta=stream, lr=0.01, boundary=number == parts - 1).backward()  # the trainer sums
    optimizer.step()
    assert strength(trainer).max() > 0.0005
    torch.testing.assert_close(strength(trainer), meta.hyperparameters.strength.detach())
    torch.testing.assert_close(trainer.model.classifier.weight, model.classifier.weight, rtol=1e-4, atol=1e-6)


def test_omega_is_saved_and_resumed(tmp_path):
    whole = trained(tmp_path / "whole", bert())
    half = trained(tmp_path / "parts", bert(), save_strategy="steps", save_steps=3)
    assert (tmp_path / "parts" / "checkpoint-3" / FILE).exists()
    again = MetaCalibrationTrainer(
        model=bert(),
        args=arguments(tmp_path / "parts"),
        train_dataset=Rows(48, 0),
        meta_dataset=Rows(24, 1),
        meta_calibration={"hyperparameters": VectorLabelSmoothing(K), "every": 1},
    )
    again.train(resume_from_checkpoint=str(tmp_path / "parts" / "checkpoint-3"))
    torch.testing.assert_close(strength(again), strength(whole), rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(strength(half), strength(whole))
    torch.testing.assert_close(again.model.classifier.weight, whole.model.classifier.weight, rtol=1e-5, atol=1e-6)
    assert again.calibrator._meta_steps == 6


def test_the_same_trainer_goes_back_to_a_checkpoint(tmp_path):
    trainer = trained(tmp_path, bert(), save_strategy="steps", save_steps=3)
    whole = strength(trainer).clone()
    trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert trainer.calibrator._meta_steps == 6
    torch.testing.assert_close(strength(trainer), whole, rtol=1e-5, atol=1e-7)


def test_every_model_learns_from_the_beginning(tmp_path):
    """As when a search for hyper-parameters makes one model after the other."""
    given = VectorLabelSmoothing(K)
    trainer = MetaCalibrationTrainer(
        model_init=lambda: bert(),
        args=arguments(tmp_path),
        train_dataset=Rows(48, 0),
        meta_dataset=Rows(24, 1),
        meta_calibration={"hyperparameters": given, "every": 1},
    )
    ends = []
    for _ in range(2):
        trainer.train()
        ends.append(strength(trainer).clone())
    torch.testing.assert_close(*ends)
    assert ends[0].max() > 0.0005 and not given.strength.any()


@pytest.mark.bf16
def test_bf16(tmp_path):
    trainer = trained(tmp_path, bert(), bf16=True)
    assert torch.isfinite(strength(trainer)).all() and trainer.calibrator.skipped == 0


@pytest.mark.parametrize(("model", "options"), [(bert, {"bf16": True}), (lambda: bert().bfloat16(), {})])
def test_bf16_is_refused_where_it_kills_the_process(tmp_path, bf16_dies, model, options):
    with pytest.raises(InvalidValueError, match=r"SIGILL.*or use bf16=False and a model in float32"):
        trained(tmp_path, model(), **options)


def test_a_share_of_the_training_set_and_a_mixin(tmp_path):
    class Mine(Trainer):
        def training_step(self, *args, **kwargs):
            self.calls = getattr(self, "calls", 0) + 1
            return super().training_step(*args, **kwargs)

    class Ours(MetaCalibrationMixin, Mine):
        pass

    trainer = Ours(model=bert(), args=arguments(tmp_path), train_dataset=Rows(40, 0), meta_dataset=0.25)
    assert len(trainer.train_dataset) == 30 and len(trainer.meta_dataset) == 10
    assert not set(trainer.train_dataset.indices) & set(trainer.meta_dataset.indices)
    trainer.train()
    assert trainer.calls == 6 and trainer.calibrator.hyperparameters.num_classes == K
    json.dumps(trainer.calibrator.export())


def test_heads_are_found():
    torch.manual_seed(0)
    roberta = RobertaForSequenceClassification(RobertaConfig(vocab_size=30, max_position_embeddings=12, **TINY))
    assert find_classifier(roberta) is roberta.classifier.out_proj
    model = torch.nn.Sequential()
    model.add_module("inner", torch.nn.Linear(4, 2))
    with pytest.raises(InvalidValueError, match=r"\{'head': 'path'\}.*its linear layers are inner\."):
        find_classifier(model)


def test_bad_input(tmp_path):
    with pytest.raises(InvalidValueError, match="`meta_dataset` must be a dataset of held-out samples"):
        MetaCalibrationTrainer(model=bert(), args=arguments(tmp_path), train_dataset=Rows(8, 0))
    with pytest.raises(InvalidValueError, match=r"got 'fc'; its linear layers are .*classifier\."):
        trained(tmp_path, bert(), meta_calibration={"head": "fc"})
    with pytest.raises(InvalidValueError, match="label smoothing, which is learned here"):
        trained(tmp_path, bert(), label_smoothing_factor=0.3)
    with pytest.raises(InvalidValueError, match="must be the head's, 16, got 3"):
        trained(tmp_path, bert(), meta_calibration={"head": "bert.pooler.dense"})


def test_a_decoder_that_scores_every_token_is_refused(tmp_path):
    config = GPT2Config(vocab_size=30, n_embd=16, n_layer=1, n_head=2, n_positions=8, num_labels=K, pad_token_id=0)
    with pytest.raises(InvalidValueError, match=r"must be 48 labels, one for each row of logits \(8, 6, 3\)"):
        trained(tmp_path, GPT2ForSequenceClassification(config))
