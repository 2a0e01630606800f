"""`MetaCalibrator`: learns the training's hyper-parameters, a step at a time, inside the loop you have."""

import math
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from metacal.files import write_json
from metacal.functional.arguments import check_choice
from metacal.functional.inputs import at_least_float32
from metacal.losses import DECE, CrossEntropy, Loss
from metacal.metalearning.adam import AdamState, adam_step_
from metacal.metalearning.batches import (
    call_model,
    moved,
    next_batch,
    rows_of,
    share_samples,
    unwrapped,
    warn_of_change,
    widened,
)
from metacal.metalearning.checks import (
    check_classes_come_last,
    check_omega,
    check_soft_labels,
    check_state,
    check_trained,
    check_wrapper,
    checked_base_loss,
    checked_labels,
    checked_loss,
    checked_lr,
    class_count,
    find_head,
)
from metacal.metalearning.estimators import find_estimator
from metacal.metalearning.gather import gather_batches, own_seed
from metacal.metalearning.head_tap import HeadTap
from metacal.metalearning.history import History
from metacal.metalearning.hyperparameter import Hyperparameter
from metacal.metalearning.hyperparameter_set import as_one
from metacal.metalearning.inner_loss import InnerLoss
from metacal.metalearning.meta_memory import MetaMemory
from metacal.metalearning.problem import Estimator, Hypergradient, MetaProblem
from metacal.metalearning.quiet_forward import eagerly, fresh_random_stream, leaving_no_trace
from metacal.metalearning.settings import OuterSettings, outer_settings
from metacal.metalearning.steering import is_look_due, steer_gradient
from metacal.metalearning.summary import describe, warn_of_skipped
from metacal.metalearning.training_loss import filled_inner_loss, training_loss

LOOKS_FOR_SHARED_SAMPLES = 5
WARNING_INTERVAL = 256


class MetaCalibrator:
    """Tunes hyper-parameters by the gradient of held-out cross-entropy plus DECE (Bohdal et al. 2023).

    Each `step` runs the model once on the training batch and, when a meta step is due, once more, without gradients, on
    a meta batch; it returns the training loss with the updated hyper-parameters, for you to go backward from. The
    model's ``.grad``, running statistics and random stream are never touched. ``last_logits`` are the training batch's
    of the last `step`, detached: for training figures without another forward pass.

    Args:
        model: the model as you train it: plain, or wrapped by DDP, Fabric or `torch.compile`.
        head: the layer inside it that returns the logits (the module, or its attribute path such as ``"fc"``); only
            its effect is simulated. Pass the model itself to simulate a step on all of it (small models).
        hyperparameters: one `Hyperparameter`, or a list or dictionary of several.
        objective: any `Loss`; what held-out data is judged by. Default ``CrossEntropy() + 0.5 * DECE()``.
        base_loss: any `Loss` of one value per sample, with soft labels if these are learned; default cross-entropy.
        inner_reduction: ``"mean"`` or ``"sum"`` of the training loss, as your loop uses it.
        every: iterations from one meta step to the next; `math.inf` takes none. Adam's step is multiplied by it and
            its betas raised to its power, so that its memory in training steps stays the same. Default: each of the
            first 1,000 iterations, then every 16th.
        meta_lr: Adam's step size for the hyper-parameters, per training step; where it starts, if it adapts.
        per_unit_step: gradient per unit of the inner step: a schedule leaves its scale alone; it can overshoot late.
        adaptive: let the step size grow and shrink with the agreement of successive gradients, within
            [1e-5, 1e-3]: the result then hardly depends on ``meta_lr``.
        estimator: ``"one_step"``, ``"small_step"``, ``"implicit"``, ``"evograd"``, or a function of a `MetaProblem`.
        memory: fill meta batches up to so many samples with those of the meta batches before, at the features they had
            then: a less noisy objective, and only the head is run on them. Default 0: the new batch alone.
        meta_forward: mode of the model on the meta batch, ``"train"``: normalised by the batch's own statistics; or
            ``"eval"``. The head's simulated step is always in the mode the head is in.
        preset: choices for what is not given. ``"paper"``: the published ones. ``"steady"``: less noise, and no stall
            when the learning rate drops (per unit of a small step, DECE through confidences, a memory of 512).
        seed: of the random numbers drawn in meta steps.

    Examples:
        >>> import torch, metacal
        >>> _ = torch.manual_seed(0)
        >>> model = torch.nn.Linear(4, 3)
        >>> meta = metacal.MetaCalibrator(model, head=model, hyperparameters=metacal.VectorLabelSmoothing(3), every=1)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> x, y, x_meta, y_meta = torch.randn(8, 4), torch.arange(8) % 3, torch.randn(8, 4), torch.arange(8) % 3
        >>> loss = meta.step(x, y, meta=(x_meta, y_meta), lr=0.1)
        >>> optimizer.zero_grad(); loss.backward(); optimizer.step()
        >>> bool((meta.hyperparameters.strength >= 0).all())
        True
    """

    def __init__(
        self,
        model: nn.Module,
        head: nn.Module | str,
        hyperparameters: Hyperparameter | list[Hyperparameter] | dict[str, Hyperparameter],
        objective: Loss | None = None,
        *,
        base_loss: Loss | None = None,
        inner_reduction: str | None = None,
        every: float | None = None,
        meta_lr: float | None = None,
        per_unit_step: bool | None = None,
        adaptive: bool | None = None,
        estimator: str | Estimator | None = None,
        memory: int | None = None,
        meta_forward: str = "train",
        preset: str | None = None,
        seed: int = 0,
    ) -> None:
        self.model, self.head = model, find_head(model, head)
        check_wrapper(model)
        self.hyperparameters = as_one(hyperparameters)
        check_omega(self.hyperparameters)
        self.settings: OuterSettings = outer_settings(
            preset,
            inner_reduction=inner_reduction,
            every=every,
            meta_lr=meta_lr,
            per_unit_step=per_unit_step,
            adaptive=adaptive,
            estimator=estimator,
            memory=memory,
        )
        check_choice("meta_forward", meta_forward, ("train", "eval"))
        if objective is None:
            objective = CrossEntropy() + 0.5 * DECE(gradient=self.settings.dece_gradient)
        self.objective = checked_loss("objective", objective)
        self.base_loss = CrossEntropy(reduction="none") if base_loss is None else checked_base_loss(base_loss)
        self.estimator = find_estimator(self.settings.estimator)
        self.meta_forward, self.seed = meta_forward, seed
        self._history, self._memory = History(), MetaMemory(self.settings.memory)
        self._pending: list[tuple[Tensor, Tensor]] = []
        self._iterations = self._meta_steps = self._steered = 0
        self._has_warned = False
        self.last_logits: Tensor | None = None
        self._has_looked_at_output = False
        first = at_least_float32(next(self.head.parameters()).detach())
        self.hyperparameters.to(first.device, first.dtype)
        self.objective.to(first.device)
        check_soft_labels(self.base_loss.to(first.device), self.hyperparameters)
        self._adam = AdamState.zeros(self._omega())
        self._tap = HeadTap(self.head)

    def step(self, x: Any, y: Tensor, *, meta: Any, lr: float | Tensor, boundary: bool = True) -> Tensor:
        """The training loss of a batch, after a meta step if one is due.

        Args:
            x: input of the model: a tensor, a tuple of arguments or a dictionary of keyword arguments.
            y: int ``(n,)``.
            meta: a batch ``(x, y)``, or an iterator of batches (see `metacal.data.cycle`), drawn from only when a meta
                step is due.
            lr: the training's current learning rate.
            boundary: False for all but the last micro-batch when gradients are accumulated; the meta step is taken at
                the boundary, on all of them. The losses of the micro-batches before it are those of the old omega,
                without a penalty (`UnitwiseL2`), which the last one adds.

        Returns:
            Scalar with history, in the reduction of ``inner_reduction``; a sum times the number of DDP's processes.
        """
        self._follow_head()
        with self._forgetting_parts_on_error():
            features, logits = self._forward(x)
            labels = self._advance(x, features, logits, y, meta, lr, boundary)
            return self._training_loss(logits, labels, boundary)

    @contextmanager
    def watching(self) -> Iterator[list[Any]]:
        """Inside, the head's calls are recorded, for `steer`; gives the list of what they have returned so far."""
        with self._forgetting_parts_on_error(), self._tap.listening() as outputs:
            yield outputs

    def steer(self, loss: Tensor, y: Tensor, *, meta: Any, lr: float | Tensor, boundary: bool = True) -> None:
        """`step` for a trainer that runs the model (inside `watching`) and its own loss; call it before ``backward``.

        Takes the meta step if one is due; going backward from ``loss`` then gives the learned loss's gradient, times
        whatever ``loss`` is multiplied by. Its value stays, and so do terms that do not depend on the logits. For the
        rest it has to be ``base_loss`` of the head's output, mean or sum: this is looked at now and then.
        """
        self._follow_head()
        with self._forgetting_parts_on_error(), torch.enable_grad():
            features, logits = self._tap.take()
            labels = self._advance(None, features, logits, y, meta, lr, boundary)
            steer_gradient(loss, logits, self._inner(labels, logits), self.base_loss, looks=is_look_due(self._steered))
        self._steered += 1

    def loss(self, x: Any, y: Tensor) -> Tensor:
        """The training loss of a batch as `step` returns it, with omega as it is; no meta step, nothing counted."""
        self._follow_head()
        _, logits = self._forward(x)
        return self._training_loss(logits, self._labels(y, logits, "targets"))

    def hypergradient(self, x: Any, y: Tensor, *, meta: Any, lr: float | Tensor) -> dict[str, Tensor]:
        """Gradient of the meta-loss with respect to each hyper-parameter, by name. Nothing at all is changed.

        An iterator given as ``meta`` is drawn from once.
        """
        self._follow_head()
        with self._quietly(unwrapped(self.model), "train"), torch.no_grad():
            features, logits = self._forward(x, unwrapped(self.model))
        labels = self._labels(y, logits, "targets")
        problem = self._problem([(rows_of(features, self.head), labels)], self._draw(meta), checked_lr(lr))
        return dict(zip(self.hyperparameters.omega(), self._estimate(problem).total, strict=True))

    @torch.no_grad()
    def calibrate(self, logits: Tensor) -> Tensor:
        """Logits as the meta-objective saw them: scaled by a learned temperature, or as they are."""
        return self.hyperparameters.meta_logits(logits)

    @property
    def history(self) -> list[dict[str, float]]:
        """A dictionary for each meta step (step, meta-loss, gradient norm, summary), thinned out if there are many."""
        return self._history.records()

    @property
    def latest(self) -> dict[str, Tensor]:
        """The numbers of the last meta step, on the device; empty before the first."""
        return self._history.latest()

    @property
    def skipped(self) -> int:
        """Meta steps that were not taken because their gradient was not finite."""
        return int(self._adam.skipped)

    def export(self, path: str | Path | None = None) -> dict[str, Any]:
        """What was learned as plain numbers (soft labels, strengths, temperature), also written as JSON to ``path``."""
        learned = self.hyperparameters.export()
        if path is not None:
            write_json(Path(path), learned)
        return learned

    def summary(self) -> str:
        """One line: the numbers worth knowing, and whether omega moves."""
        self._warn_if_skipped()
        return describe(self.hyperparameters, self._history, self._meta_steps, self.skipped)

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on: omega, Adam's state, counters, history. Tensors and plain values only."""
        return {
            "hyperparameters": {name: value.clone() for name, value in self.hyperparameters.state_dict().items()},
            "adam": self._adam.state_dict(list(self.hyperparameters.omega())),
            "iterations": self._iterations,
            "meta_steps": self._meta_steps,
            "history": self._history.state_dict(),
            "memory": self._memory.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        check_state(state)
        self.hyperparameters.load_state_dict(state["hyperparameters"])
        self._adam, self._pending = AdamState.zeros(self._omega()), []
        self._adam.load_state_dict(state["adam"], list(self.hyperparameters.omega()))
        self._iterations, self._meta_steps = state["iterations"], state["meta_steps"]
        self._history.load_state_dict(state["history"])
        self._memory.load_state_dict(state.get("memory", {}))

    def remove(self) -> None:
        """Take the hook off the head; the model is then as it was before."""
        self._tap.remove()

    @contextmanager
    def _forgetting_parts_on_error(self) -> Iterator[None]:
        """Micro-batches that wait for their boundary are dropped when something fails: they belong to no step."""
        try:
            yield
        except BaseException:
            self._pending = []
            raise

    def _advance(
        self, x: Any, features: Tensor, logits: Tensor, y: Tensor, meta: Any, lr: float | Tensor, boundary: bool
    ) -> Tensor:
        """The meta step, if one is due, for a training batch that has been run; returns its labels."""
        self.last_logits = logits.detach()
        labels = self._labels(y, logits, "targets")
        parts = [*self._pending, (rows_of(features, self.head), labels)] if self._is_due() else []
        self._pending = [] if boundary else parts
        if boundary:
            if parts:
                self._meta_step(parts, x, meta, checked_lr(lr))
            self._iterations += 1
        return labels

    def _omega(self) -> tuple[nn.Parameter, ...]:
        return tuple(self.hyperparameters.omega().values())

    def _forward(self, x: Any, model: nn.Module | None = None) -> tuple[Tensor, Tensor]:
        with self._tap.listening():
            output = call_model(self.model if model is None else model, x)
        features, logits = self._tap.take()
        if not self._has_looked_at_output:
            self._has_looked_at_output = True
            warn_of_change(output, logits, stacklevel=5)
        return features, logits

    def _draw(self, meta: Any) -> tuple[Any, Tensor]:
        """The next meta batch; a loader's shuffling does not touch the training's random stream."""
        with fresh_random_stream(own_seed(self.seed + self._meta_steps), next(self.head.parameters()).device):
            return next_batch(meta)

    def _is_due(self) -> bool:
        interval = self.settings.interval(self._iterations)
        return math.isfinite(interval) and self._iterations % int(interval) == 0

    def _inner(self, labels: Tensor, logits: Tensor) -> InnerLoss:
        return filled_inner_loss(self.hyperparameters, labels, logits)

    def _training_loss(self, logits: Tensor, labels: Tensor, boundary: bool = True) -> Tensor:
        inner, reduction = self._inner(labels, logits), self.settings.inner_reduction
        return training_loss(inner, self.base_loss, self.head, logits, reduction, boundary=boundary)

    def _meta_step(self, parts: list[tuple[Tensor, Tensor]], x: Any, meta: Any, lr: float) -> None:
        batch = self._draw(meta)
        if self._meta_steps < LOOKS_FOR_SHARED_SAMPLES and share_samples(x, batch[0]):
            warnings.warn("A meta batch shares samples with its training batch: split them apart.", stacklevel=4)
        problem = self._problem(parts, batch, lr)
        found = self._estimate(problem)
        self._memory.keep(problem.meta_features, problem.meta_labels)
        self._update(found, problem)

    def _update(self, found: Hypergradient, problem: MetaProblem) -> None:
        settings, omega = self.settings, self._omega()
        step = problem.lr * problem.scale * len(problem.labels)
        unit = problem.lr if settings.per_unit_step and problem.lr > 0.0 else 1.0
        grads = tuple(t / unit + d for t, d in zip(found.through, found.direct, strict=True))
        taken = adam_step_(omega, grads, self._adam, settings, settings.interval(self._iterations))
        self.hyperparameters.project_()
        self._meta_steps += 1
        norm = torch.stack([g.square().sum() for g in grads]).sum().sqrt()
        values = {"meta_loss": found.meta_loss, "gradient_norm": norm, "inner_step": torch.full_like(norm, step)}
        self._history.add(self._iterations, {**values, **self.hyperparameters.summary()})
        if taken.device.type == "cpu" or self._meta_steps % WARNING_INTERVAL == 0:
            self._warn_if_skipped()

    def _warn_if_skipped(self) -> None:
        if not self._has_warned and self.skipped:
            self._has_warned = True
            warn_of_skipped(stacklevel=7)

    def _problem(self, parts: list[tuple[Tensor, Tensor]], batch: tuple[Any, Tensor], lr: float) -> MetaProblem:
        device = parts[0][0].device
        check_trained(self.head)
        with self._quietly(unwrapped(self.model), self.meta_forward), torch.no_grad():
            meta_features, meta_logits = self._forward(moved(batch[0], device), unwrapped(self.model))
        meta_labels = self._labels(moved(batch[1], device), meta_logits, "meta targets")
        train = (torch.cat([features for features, _ in parts]), torch.cat([labels for _, labels in parts]))
        held_out = (rows_of(meta_features, self.head), meta_labels)
        (features, labels), held_out = gather_batches([widened(train, self.head), widened(held_out, self.head)])
        meta_features, meta_labels = self._memory.filled_up(*held_out)
        return MetaProblem(
            head=self.head,
            hyperparameters=self.hyperparameters,
            base_loss=self.base_loss,
            objective=self.objective,
            features=features,
            labels=labels,
            meta_features=meta_features,
            meta_labels=meta_labels,
            lr=lr,
            reduction=self.settings.inner_reduction,
            num_classes=class_count(meta_logits),
        )

    def _estimate(self, problem: MetaProblem) -> Hypergradient:
        precision = torch.autocast(problem.labels.device.type, enabled=False)
        with self._quietly(self.head, "train"), torch.enable_grad(), precision, eagerly():
            return self.estimator(problem)

    def _quietly(self, module: nn.Module, mode: str) -> AbstractContextManager[None]:
        device = next(self.head.parameters()).device
        return leaving_no_trace(module, mode=mode, seed=self.seed + self._meta_steps, device=device)

    def _labels(self, y: Tensor, logits: Tensor, name: str) -> Tensor:
        check_classes_come_last(self.head, logits)
        return checked_labels(y, logits, name, self.hyperparameters.num_classes)

    def _follow_head(self) -> None:
        """Move omega and Adam's state along when the model has been moved to another device."""
        device = next(self.head.parameters()).device
        if next(self.hyperparameters.parameters()).device != device:
            for module in (self.hyperparameters, self.objective, self.base_loss):
                module.to(device)
            self._adam = self._adam.to(device)
