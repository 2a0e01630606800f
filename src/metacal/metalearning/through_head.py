"""`ThroughHead`: meta steps that simulate a step on the layer that returns the logits, as the paper does."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from metacal.errors import InvalidTypeError
from metacal.metalearning.batches import Batch, call_model, moved, rows_of, unwrapped, warn_of_change, widened
from metacal.metalearning.checks import check_trained, class_count
from metacal.metalearning.estimators import find_estimator
from metacal.metalearning.gather import gather_batches
from metacal.metalearning.head_tap import HeadTap
from metacal.metalearning.meta_task import MetaTask
from metacal.metalearning.problem import Hypergradient, MetaProblem
from metacal.metalearning.quiet_forward import eagerly


class ThroughHead:
    """Runs the model and remembers what its head was given: that is all a step on the head depends on.

    Args:
        model: as it is trained.
        head: the layer inside it that returns the logits.
        estimator: of the hypergradient, by name or as a function.

    Attributes:
        penalised: the module whose parameters a penalty is put on.
    """

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
            warn_of_change(output, logits, stacklevel=4)
        return given, logits

    @contextmanager
    def watching(self) -> Iterator[list[Any]]:
        """Somebody else runs the model inside; gives the list of logits so far."""
        with self._tap.listening() as outputs:
            yield outputs

    def taken(self, x: Any = None) -> tuple[Any, Tensor]:
        """What the head was given and returned inside `watching`."""
        call, logits = self._tap.take()
        if not isinstance(logits, Tensor):
            raise InvalidTypeError(f"`head` must return the logits as one tensor, got {type(logits).__name__}.")
        return rows_of(call.tensor(), self.penalised), logits

    def remove(self) -> None:
        """Take the hooks off."""
        self._tap.remove()

    def hypergradient(self, task: MetaTask, parts: Sequence[Batch], meta: Batch) -> Hypergradient:
        """Of the training batch in parts, each what the head was given and labels, and a held-out batch."""
        problem = self._problem(task, parts, meta)
        precision = torch.autocast(problem.labels.device.type, enabled=False)
        with task.quietly(self.penalised, "train"), torch.enable_grad(), precision, eagerly():
            found = self.estimator(problem)
        return found._replace(judged=(problem.meta_features, problem.meta_labels))

    def _problem(self, task: MetaTask, parts: Sequence[Batch], meta: Batch) -> MetaProblem:
        head = self.penalised
        check_trained(head, task.optimizer)
        model, device = unwrapped(self.model), next(head.parameters()).device
        with task.quietly(model), torch.no_grad():
            meta_features, meta_logits = self.run(moved(meta[0], device), model)
        meta_labels = task.labels(moved(meta[1], device), meta_logits, "meta targets")
        train = (torch.cat([features for features, _ in parts]), torch.cat([labels for _, labels in parts]))
        held_out = (meta_features, meta_labels)
        (features, labels), held_out = gather_batches([widened(train, head), widened(held_out, head)])
        meta_features, meta_labels = task.memory.filled_up(*held_out)
        return MetaProblem(
            head=head,
            hyperparameters=task.hyperparameters,
            base_loss=task.base_loss,
            objective=task.objective,
            features=features,
            labels=labels,
            meta_features=meta_features,
            meta_labels=meta_labels,
            lr=task.optimizer.lr,
            reduction=task.reduction,
            num_classes=class_count(meta_logits),
            scales=self._scales(task),
        )

    def _scales(self, task: MetaTask) -> dict[str, float | Tensor]:
        scales, named = task.optimizer.scales(adaptive=task.outer.scaled), self.penalised.named_parameters()
        return {name: scales.get(parameter, 0.0) for name, parameter in named if parameter.requires_grad}
