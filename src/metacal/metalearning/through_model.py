r"""The hypergradient of a simulated step on all trained parameters, by finite differences of the training loss.

With P the optimiser's scaling and :math:`v = P \nabla_\theta L_{meta}(\theta)`, one step
:math:`\theta' = \theta - \alpha P \nabla_\theta L(\theta, \omega)` changes the meta-loss, to first order in it, by
:math:`-\alpha\, v \cdot \nabla_\theta L(\theta, \omega)`. Its derivative with respect to omega is the derivative of
:math:`\partial_\omega L` along v:

.. math:: -\frac{\alpha}{2 \epsilon} (g(\theta + \epsilon v) - g(\theta - \epsilon v)), \quad g = \partial_\omega L.

Omega acts on logits, labels, weights or a penalty, so the two terms need nothing but the training batch's logits: two
forward passes without a graph, no second derivative, any model. What is approximated: the effect of omega on training
is that of the current step, taken as small; momentum and weight decay are left out; P is held fixed. The difference is
exact to 1e-3 in float32 where the model is smooth, and to a few percent where ReLUs switch within the move.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from metacal.errors import InvalidTypeError
from metacal.functional.inputs import as_rows, at_least_float32, class_logits
from metacal.metalearning import model_calls
from metacal.metalearning.checks import class_count
from metacal.metalearning.gather import joint_count, joint_rows, summed_over_ranks, world_size
from metacal.metalearning.head_tap import HeadTap, logits_of
from metacal.metalearning.meta_task import Hypergradient, MetaTask, filled, gradients, meta_value
from metacal.metalearning.model_calls import Batch, call_model, moved, plain_model, unwrapped
from metacal.metalearning.optimizer_step import scaled


class ThroughModel:
    """Runs the model and stores only its inputs, which are run again when a meta step is due.

    Args:
        model: as it is trained.
        head: the layer that returns the logits, where it was named; a penalty is then put on its parameters.
        found: the layer that was found to return them; listened to where a trainer runs the model, which may convert
            its output.
    """

    name = "model"
    runs_first = False
    """Whether the training batch is run before the meta step: its graph and the meta batch's need not live together."""

    def __init__(self, model: nn.Module, head: nn.Module | None, found: nn.Module | None) -> None:
        self.model, self.head, self.penalised = model, head, model if head is None else head
        self._found = found
        self._outputs = None if head is None else HeadTap(head)
        self._inputs: HeadTap | None = None  # not before it is needed: a hook takes time, and a compiler stops at it

    def run(self, x: Any, model: nn.Module | None = None) -> tuple[Any, Tensor]:
        """Return the input, and the logits with history: the output of the model, or of its head if named."""
        model = self.model if model is None else model
        if self.head is None or self._outputs is None:
            return x, logits_of(call_model(model, x))
        with self._outputs.listening():
            call_model(model, x)
        return x, logits_of(self._outputs.take()[1])

    @contextmanager
    def watching(self) -> Iterator[list[Any]]:
        """Record the model run by a trainer inside; yields the list of outputs so far."""
        inputs, outputs = self._taps()
        with inputs.listening(), outputs.listening() as heard:
            yield heard

    def taken(self, x: Any = None) -> tuple[Any, Tensor]:
        """Return the model's input (``x`` if given) and the logits it returned inside `watching`."""
        inputs, outputs = self._taps()
        call, output = outputs.take()
        if x is None:
            x = call if outputs is inputs else inputs.take()[0]
        return x, logits_of(output)

    def remove(self) -> None:
        """Remove the hooks."""
        for tap in (self._inputs, self._outputs):
            if tap is not None:
                tap.remove()

    def _taps(self) -> tuple[HeadTap, HeadTap]:
        """Return the taps of the model's input and of the logits."""
        if self._inputs is None:
            self._inputs = HeadTap(plain_model(self.model))
        if self._outputs is None:
            found = self._inputs.head if self._found is None else self._found
            self._outputs = self._inputs if found is self._inputs.head else HeadTap(found)
        return self._inputs, self._outputs

    def hypergradient(self, task: MetaTask, parts: Sequence[Batch], meta: Batch) -> Hypergradient:
        """Compute it from the parts of a training batch and a held-out batch; see the module's docstring."""
        omega = tuple(task.hyperparameters.omega().values())
        scales = task.optimizer.scales(adaptive=task.outer.scaled)
        found, held_out = self._meta_gradient(task, tuple(scales), omega, meta)
        pulls = zip(scales.items(), found.through, strict=True)
        along = {parameter: scaled(scale, pull) for (parameter, scale), pull in pulls}
        length = torch.stack([torch.linalg.vector_norm(at_least_float32(part)) for part in along.values()]).norm()
        size = move_size(next(iter(along)).dtype)
        distance = torch.where(length > 0.0, size / length, 0.0)
        (above, plain_above), (below, plain_below) = (
            self._loss_at(task, parts, along, sign * distance) for sign in (1.0, -1.0)
        )
        training = torch.stack((plain_above, plain_below)).mean()  # between them lies that of the model as it is
        *slopes, training = summed_over_ranks((*gradients(above - below, omega), training))
        factor = task.optimizer.lr * length / (2.0 * size)
        return found._replace(
            through=tuple(-factor.to(slope.dtype) * slope for slope in slopes),
            losses=torch.stack((training, held_out.to(training.dtype))),
        )

    def _meta_gradient(
        self, task: MetaTask, trained: tuple[nn.Parameter, ...], omega: tuple[nn.Parameter, ...], meta: Batch
    ) -> tuple[Hypergradient, Tensor]:
        """Gradient of the joint meta-loss, ``through`` with respect to what is trained; and held-out cross-entropy."""
        model, device = unwrapped(self.model), trained[0].device
        with task.quietly(model), torch.enable_grad():
            _, logits = self.run(moved(meta[0], device), model)
            labels = task.labels(moved(meta[1], device), logits, "meta targets")
            rows = class_logits(as_rows(logits))
            joint, joint_labels, own = joint_rows(rows.detach(), labels)
            judged, judged_labels = task.memory.filled_up(joint, joint_labels)
            leaf = judged.detach().requires_grad_()
            with torch.autocast(device.type, enabled=False):
                meta_loss = meta_value(task.objective, task.hyperparameters, leaf, judged_labels)
                pull, *direct = gradients(meta_loss, (leaf, *omega))
            found = torch.autograd.grad(rows, trained, pull[: len(joint)][own], allow_unused=True)
        pulls = summed_over_ranks(filled(found, trained))
        gradient = Hypergradient(pulls, tuple(direct), meta_loss.detach(), (judged.detach(), judged_labels))
        return gradient, cross_entropy(at_least_float32(joint), joint_labels)

    def _loss_at(
        self, task: MetaTask, parts: Sequence[Batch], along: Mapping[nn.Parameter, Tensor], distance: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The training loss some way along a direction, as a function of omega alone; and its cross-entropy."""
        model, device = plain_model(self.model), distance.device
        total = plain = torch.zeros((), device=device)
        precision = torch.autocast(device.type, enabled=False)
        with moved_parameters(along, distance), precision, model_calls.unconverted(model), model_calls.eagerly():
            parameters = {name: parameter.detach() for name, parameter in self.penalised.named_parameters()}
            for number, (x, y) in enumerate(parts):
                with task.quietly(model, "train"), torch.no_grad():
                    _, logits = self.run(model_calls.in_dtype(x, model), model)
                labels = task.labels(y, logits)
                plain = plain + cross_entropy(at_least_float32(class_logits(as_rows(logits))), labels, reduction="sum")
                with torch.enable_grad():
                    inner = task.inner(labels, class_count(logits))
                    # A penalty is there once a step: each process adds its share, with its first part.
                    inner = inner.with_penalty_scaled(0.0 if number else 1.0 / world_size())
                    total = total + inner.value(task.base_loss, logits, parameters)
        count = joint_count(sum(y.numel() for _, y in parts), device)
        return total if task.reduction == "sum" else total / count, plain / count


@contextmanager
def moved_parameters(along: Mapping[nn.Parameter, Tensor], distance: Tensor) -> Iterator[None]:
    """Move parameters inside, without writing to their memory, so that existing graphs stay valid."""
    originals = {parameter: parameter.data for parameter in along}
    try:
        for parameter, direction in along.items():
            parameter.data = torch.addcmul(parameter.data, direction.to(parameter.dtype), distance.to(parameter.dtype))
        yield
    finally:
        for parameter, original in originals.items():
            parameter.data = original


def move_size(dtype: torch.dtype) -> float:
    """The length of the move that balances rounding and curvature: 0.01 in float32."""
    if dtype.itemsize < 4:
        raise InvalidTypeError(
            f"`through` must be 'head' for a model whose parameters are {dtype}: they are too coarse to be moved a "
            "little. Or keep them in float32 and use autocast."
        )
    return 2.0 * float(torch.finfo(dtype).eps ** (1.0 / 3.0))
