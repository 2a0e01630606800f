"""Hugging Face Transformers: a small ViT on digits, by `Trainer` and by `MetaCalibrationTrainer`.

The regime (400 labels, 30 epochs, AdamW at 0.002) was fixed on the plain trainer, before the other was run in it.
"""

import tempfile

import torch
from comparison import Said, arguments, compare
from sklearn.datasets import load_digits
from torch.utils.data import Dataset, Subset
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification, set_seed

from metacal.integrations.transformers import MetaCalibrationTrainer, calibration_metrics

LABELLED, META, EPOCHS = 400, 80, 30


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


def train(seed: int, epochs: int, meta_calibrates: bool, folder: str) -> Said:
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
    steps = epochs * LABELLED // 32  # of both: equal labels, equal steps
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
    test = Subset(images, order[LABELLED:])
    shared = {"model": model, "args": settings, "eval_dataset": test, "compute_metrics": calibration_metrics}
    if meta_calibrates:
        trainer = MetaCalibrationTrainer(
            **shared,
            train_dataset=Subset(images, order[: LABELLED - META]),
            meta_dataset=Subset(images, order[LABELLED - META : LABELLED]),
        )
    else:
        trainer = Trainer(**shared, train_dataset=Subset(images, order[:LABELLED]))
    trainer.train()
    said = trainer.predict(test)
    return torch.from_numpy(said.predictions), torch.from_numpy(said.label_ids)


if __name__ == "__main__":
    options = arguments(__doc__, seeds=3)
    epochs = 1 if options.quick else EPOCHS
    with tempfile.TemporaryDirectory() as folder:
        methods = {
            "Trainer": lambda seed: train(seed, epochs, False, folder),
            "MetaCalibrationTrainer": lambda seed: train(seed, epochs, True, folder),
        }
        compare("Transformers, ViT on digits, 400 labels", methods, options)
