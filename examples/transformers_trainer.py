"""Hugging Face Transformers: a small ViT on digits, by `Trainer` and by `MetaCalibrationTrainer`.

The regime (400 labels, 80 of them held out, AdamW at 0.002) was fixed on the plain trainer.
"""

import tempfile

import torch
from comparison import Said, arguments, compare
from sklearn.datasets import load_digits
from torch.utils.data import Dataset, Subset
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification, set_seed

from metacal.integrations.transformers import MetaCalibrationTrainer, calibration_metrics
from metacal.posthoc import TemperatureScaling

LABELLED, HELD_OUT, STEPS = 400, 80, 375


class DigitImages(Dataset):
    """scikit-learn's digits as dictionaries, the way image processors give them."""

    def __init__(self) -> None:
        found = load_digits()
        self.images = torch.from_numpy(found.images / 8.0 - 1.0).float().unsqueeze(1)
        self.labels = torch.from_numpy(found.target)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, number):
        return {"pixel_values": self.images[number], "labels": self.labels[number]}


def train(seed: int, steps: int, folder: str, *, meta_calibrates: bool = False, scales: bool = False) -> Said:
    images = DigitImages()
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed)).tolist()
    set_seed(seed)
    model = ViTForImageClassification(
        ViTConfig(
            image_size=8,
            patch_size=2,
            num_channels=1,
            hidden_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=96,
            num_labels=10,
        )
    )
    settings = TrainingArguments(
        folder,
        max_steps=steps,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=512,
        learning_rate=2e-3,
        warmup_steps=steps // 20,
        seed=seed,
        logging_strategy="no",
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = (MetaCalibrationTrainer if meta_calibrates else Trainer)(
        model=model,
        args=settings,
        train_dataset=Subset(images, order[: LABELLED - HELD_OUT]),
        eval_dataset=Subset(images, order[LABELLED - HELD_OUT : LABELLED]),
        compute_metrics=calibration_metrics,
    )
    trainer.train()
    temperature = 1.0
    if scales:
        held_out = trainer.predict(trainer.eval_dataset)
        temperature = TemperatureScaling().fit(logits=held_out.predictions, targets=held_out.label_ids).temperature_
    said = trainer.predict(Subset(images, order[LABELLED:]))
    return torch.from_numpy(said.predictions) / temperature, torch.from_numpy(said.label_ids)


if __name__ == "__main__":
    options = arguments(__doc__, seeds=3)
    steps = 10 if options.quick else STEPS
    with tempfile.TemporaryDirectory() as folder:
        methods = {
            "Trainer": lambda seed: train(seed, steps, folder),
            "Trainer + temperature": lambda seed: train(seed, steps, folder, scales=True),
            "MetaCalibrationTrainer": lambda seed: train(seed, steps, folder, meta_calibrates=True),
        }
        compare("Transformers, ViT on digits, 400 labels", methods, options)
