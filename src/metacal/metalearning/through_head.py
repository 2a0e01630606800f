"""`ThroughHead`: meta steps that simulate a step on the layer that returns the logits, as the paper does."""

import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.functional.inputs import as_rows, at_least_float32
from metacal.metalearning.checks import class_count
from metacal.metalearning.estimators import MetaProblem, find_estimator
from metacal.metalearning.gather import gather_batches
from metacal.metalearning.head_tap import HeadTap
from metacal.metalearning.meta_task import Hypergradient, MetaTask
from metacal.metalearning.model_calls import Batch, call_model, eagerly, moved, unwrapped


class ThroughHead:
    """Runs the model and remembers what its head was given: that is all a step on the head depends on.

    Args:
        model: as it is trained.
        head: the layer inside it that returns the logits; a penalty is put on its parameters.
        estimator: of the hypergradient, by name or as a function.
    """

    name = "head"
    runs_first = True
    """Whether the training batch is run before the meta step."""

    def __init__(self, model: nn.Module, head: nn.Module, estimator: Any) -> None:
        self.model, self.penalised = model, head
        self.estimator = find_estimator(estimator)
        self._tap = HeadTap(head)
        self._has_compared_output = False

    def run(self, x: Any, model: nn.Module | None = None) -> tuple[Any, Tensor]:
        """What the head was given for a batch, and its logits; both may carry history."""
        with self._tap.listening():
            output = call_model(self.model if model is None else model, x)
        given, logits = self.taken()
        if not self._has_compared_output:
            self._has_compared_output = True
            if changes_logits(output, logits):
                warnings.warn(
                    "The model changes its logits after the head; the loss is that of the head's output. "
                    "Name as `head` the module that includes the change.",
                    stacklevel=3,
                )
        return given, logits

    def watching(self) -> AbstractContextManager[list[Any]]:
        """A trainer runs the model inside; gives the list of logits so far."""
        return self._tap.listening()

    def taken(self, x: Any = None) -> tuple[Any, Tensor]:
        """What the head was given (detached; a linear layer's as rows) and returned inside `watching`."""
        call, logits = self._tap.take()
        if not isinstance(logits, Tensor):
            raise InvalidTypeError(f"`head` must return the logits as one tensor, got {type(logits).__name__}.")
        features = call.tensor().detach()
        return as_rows(features) if isinstance(self.penalised, nn.Linear) else features, logits

    def remove(self) -> None:
        """Take the hooks off."""
        self._tap.remove()

    def hypergradient(self, task: MetaTask, parts: Sequence[Batch], meta: Batch) -> Hypergradient:
        """Of the training batch in parts, each what the head was given and labels, and a held-out batch."""
        problem = self._problem(task, parts, meta)
        precision = torch.autocast(problem.labels.device.type, enabled=False)
        with task.quietly(self.penalised, "train"), torch.enable_grad(), precision, eagerly():
            found = self.estimator(problem)
            losses = problem.losses()
        return found._replace(judged=(problem.meta_features, problem.meta_labels), losses=losses)

    def _problem(self, task: MetaTask, parts: Sequence[Batch], meta: Batch) -> MetaProblem:
        head, model = self.penalised, unwrapped(self.model)
        if not any(parameter.requires_grad for parameter in head.parameters()):
            raise InvalidValueError("`head` must have a parameter that is trained, got none that requires a gradient.")
        if not task.optimizer.trains(head):
            raise InvalidValueError("`head` must be trained by `optimizer`, got one that it has no parameters of.")
        first = next(head.parameters())
        with task.quietly(model), torch.no_grad():
            meta_features, meta_logits = self.run(moved(meta[0], first.device), model)
        meta_labels = task.labels(moved(meta[1], first.device), meta_logits, "meta targets")
        features, labels = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
        dtype = at_least_float32(first.detach()).dtype  # that the head is simulated in
        batches = [(features, labels), (meta_features, meta_labels)]
        train, held_out = gather_batches([(x.to(dtype) if x.is_floating_point() else x, y) for x, y in batches])
        held_out = task.memory.filled_up(*held_out)
        scales = task.optimizer.scales(adaptive=task.outer.scaled)
        return MetaProblem(
            head=head,
            hyperparameters=task.hyperparameters,
            base_loss=task.base_loss,
            objective=task.objective,
            features=train[0],
            labels=train[1],
            meta_features=held_out[0],
            meta_labels=held_out[1],
            lr=task.optimizer.lr,
            phase=task.phase(),
            reduction=task.reduction,
            num_classes=class_count(meta_logits),
            scales={name: scales.get(value, 0.0) for name, value in head.named_parameters() if value.requires_grad},
        )


def changes_logits(output: Any, logits: Tensor) -> bool:
    """Whether a model returns something of the logits' shape that is none of logits, softmax, log-softmax."""
    if not isinstance(output, Tensor):
        output = getattr(output, "logits", None) if not isinstance(output, Mapping) else output.get("logits")
    if not isinstance(output, Tensor) or output is logits or output.shape != logits.shape:
        return False
    ours, theirs = logits.detach().float(), output.detach().float()
    return not any(torch.allclose(theirs, same, atol=1e-3) for same in (ours, ours.log_softmax(-1), ours.softmax(-1)))
