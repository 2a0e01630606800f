"""``python -m benchmarks.normalisation RUN...``: test figures of stored runs, images normalised as trained, or not.

The published code normalises CIFAR-100's test images by the statistics of ImageNet, but trains with those of CIFAR-10.
Both ways the temperature is fitted on validation images, which both normalise as in training.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.report import Part, publish
from metacal.evaluation import score_predictions
from metacal.functional import fit_temperature
from metacal.lab.data import load_dataset
from metacal.lab.training import Checkpoints, Hardware, RunFolder, build_model, evaluation_batches, make_fabric
from metacal.lab.training.loop import predict

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FIGURES = ("error", "nll", "ece", "classwise_ece")


def both_ways(folder: RunFolder, data_dir: Path | None) -> list[dict[str, Any]]:
    """A row for each way: error, NLL, ECE and classwise ECE on the test images, and ECE after a temperature."""
    spec = folder.read_spec_to_build(trust_model=False)
    dataset = load_dataset(spec.dataset, folder=data_dir, **spec.dataset_options)
    fabric = make_fabric(spec, Hardware())
    model = fabric.setup_module(build_model(spec, dataset))
    model.load_state_dict(Checkpoints(folder.checkpoints).load_best()[0]["model"])
    val = folder.read_predictions("val")
    temperature = fit_temperature(logits=val.logits, targets=val.targets).temperature
    published = replace(dataset, mean=IMAGENET_MEAN, std=IMAGENET_STD)
    rows: list[dict[str, Any]] = []
    for name, each in (("as trained", dataset), ("as published", published)):
        logits, targets = predict(fabric, model, evaluation_batches(spec, each, dataset.test, fabric))
        plain, scaled = (score_predictions(logits=z, targets=targets).as_dict() for z in (logits, logits / temperature))
        figures = {"error": 1.0 - plain["accuracy"], **plain}
        shown = {figure: float(figures[figure]) for figure in FIGURES}
        rows.append({"run": spec.title, "test images": name, **shown, "ece, T": float(scaled["ece"])})
    return rows


def main() -> None:
    """Print a table of all runs and keep it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.normalisation", description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folders of complete runs on CIFAR")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--json", type=Path, help="where the figures are kept; nowhere if it is not given")
    arguments = parser.parse_args()
    rows = [row for path in arguments.runs for row in both_ways(RunFolder(path), arguments.data_dir)]
    parts = {"runs": Part("Test images normalised as in training, and by ImageNet's statistics", rows)}
    publish("normalisation", parts, path=arguments.json, is_whole=False)


if __name__ == "__main__":
    main()
