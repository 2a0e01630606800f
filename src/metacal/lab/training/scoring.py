"""What a trained model says of validation and test samples, and the scores of that."""

from dataclasses import asdict
from typing import Any

import torch
from torch import nn

from metacal.evaluation import Predictions, score_predictions
from metacal.functional import fit_temperature
from metacal.lab.data import Batches, Dataset, Splits
from metacal.lab.data.domains import ShiftedSets
from metacal.lab.training.checkpoints import taking_up
from metacal.lab.training.domain_scores import score_domains, summarised
from metacal.lab.training.events import Notice
from metacal.lab.training.predict import predict
from metacal.lab.training.run_data import evaluation_batches
from metacal.lab.training.run_folder import RunFolder
from metacal.lab.training.setup import Training
from metacal.lab.training.spec import RunSpec
from metacal.metalearning.finish import finish as finish_model


def finish(
    spec: RunSpec,
    dataset: Dataset,
    splits: Splits,
    training: Training,
    folder: RunFolder,
    seconds: float,
    sets: ShiftedSets | None = None,
) -> dict[str, Any]:
    """Predictions and scores of the best checkpoint: on the test set, or on one of each test domain."""
    fabric = training.fabric
    fabric.barrier()
    best, complaints = training.checkpoints.load_best()
    for complaint in complaints:
        training.emit(Notice(f"{complaint} Its copy is used."))
    with taking_up(training.checkpoints.folder):
        training.model.load_state_dict(best["model"])
        objective = training.phases[0].objective
        objective.load_learned(best["learned"])
        best_epoch = int(best["epoch"])
    if spec.finish and "finish" not in best:
        best = finished(best, training, evaluation_batches(spec, dataset, splits.val, fabric))
    said, sizes = {}, []
    for part, every in (("val", [splits.val]), ("test", sets or [splits.test])):
        batches = (evaluation_batches(spec, dataset, examples, fabric) for examples in every)
        found = [predict(fabric, training.model, each) for each in batches]
        logits, targets = (torch.cat(values) for values in zip(*found, strict=True))
        said[part] = Predictions.from_logits(logits, targets, dataset.class_names, spec.title)
        sizes = [len(values) for _, values in found]
    scores = {
        "spec": spec.hash,
        "best_epoch": best_epoch,
        "train_seconds": seconds,
        **({"finish": best["finish"]} if spec.finish else {}),
        "test": score_predictions(logits=said["test"].logits, targets=said["test"].targets).as_dict(),
        "val": score_predictions(logits=said["val"].logits, targets=said["val"].targets).as_dict(),
    }
    domains = None
    if sets is not None:
        domains = torch.arange(len(sets)).repeat_interleave(torch.tensor(sizes)).to(said["test"].targets.device)
        # As for the checkpoint: the temperature is chosen on the domains that validation has.
        temperature = fit_temperature(logits=said["val"].logits, targets=said["val"].targets).temperature
        each = score_domains(said["test"].logits, said["test"].targets, domains, sets.names, temperature)
        scores["domains"] = {"source": sets.source, "temperature": temperature, **summarised(each)}
    if fabric.is_global_zero:
        folder.write_predictions("val", said["val"])
        folder.write_predictions("test", said["test"], domains, sets.names if sets is not None else ())
        folder.write_hyperparameters(objective.export())
        folder.write_scores(scores)
    return scores


def finished(best: dict[str, Any], training: Training, val: Batches) -> dict[str, Any]:
    """The best state with a temperature folded into its head, if that can be done; it takes the place of the old."""
    fabric, model = training.fabric, training.model
    logits, targets = predict(fabric, model, val)
    head = model.module.head
    assert isinstance(head, nn.Module)
    done = finish_model(model.module, head, logits, targets, folds=True)
    best = {**best, "model": model.state_dict(), "finish": {**asdict(done), "verdict": done.verdict}}
    if fabric.is_global_zero:
        training.checkpoints.save_best(best)
    fabric.barrier()
    return best
