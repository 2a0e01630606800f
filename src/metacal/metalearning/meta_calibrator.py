"""`MetaCalibrator`: learns hyper-parameters step by step inside your training loop."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.files import write_json
from metacal.functional.arguments import check_choice
from metacal.functional.inputs import as_rows, at_least_float32, class_logits
from metacal.losses import CrossEntropyLoss, Loss
from metacal.metalearning import checks
from metacal.metalearning.finish import Finish, finish
from metacal.metalearning.gather import joint_rows
from metacal.metalearning.head_tap import find_output_layer, named_layers
from metacal.metalearning.hyperparameter import Hyperparameter, as_one
from metacal.metalearning.logit_penalty import LogitPenalty
from metacal.metalearning.meta_stream import MetaStream
from metacal.metalearning.meta_task import Hypergradient, MetaMemory, MetaTask, default_objective
from metacal.metalearning.model_calls import Batch, leaving_no_trace, moved, unwrapped
from metacal.metalearning.optimizer_step import OptimizerStep
from metacal.metalearning.outer_step import AdamState, OuterStep, adam_step_
from metacal.metalearning.progress import History, Progress
from metacal.metalearning.steering import steer_gradient
from metacal.metalearning.through_head import ThroughHead
from metacal.metalearning.through_model import ThroughModel

COMPARED_BATCHES = 5
"""First meta batches that are compared with their training batch for samples in common."""
WARNING_INTERVAL = 256
SAVED = ("hyperparameters", "adam", "iterations", "meta_steps", "history")
"""What every saved state has."""


class MetaCalibrator:
    """Learns hyper-parameters by the gradient of a held-out objective, while your loop trains (Bohdal et al. 2023).

    Each `step` runs the model on the training batch and, when a meta step is due, on held-out samples. It returns the
    training loss with the updated hyper-parameters; call ``backward`` on it. After training, `finish` fits one
    temperature on the held-out samples and folds it into the last layer. Meta steps never change the model's ``.grad``,
    running statistics or random stream. ``last_logits`` are the detached logits of the last training batch.

    Args:
        model: the model as you train it: plain, or wrapped by DDP, Fabric or `torch.compile`.
        optimizer: the model's optimiser. It determines the trained parameters, their learning rates and the scaling of
            gradients; the simulated step is the step that it takes.
        meta: a loader of held-out samples, or any iterable of batches ``(x, y)``. Use your validation samples, which
            are not trained on. They are drawn again and again, in the calibrator's own order.
        hyperparameters: one `Hyperparameter`, or a list or dictionary of several; default `LogitPenalty`.
        objective: the `Loss` of held-out data. Default ``CrossEntropyLoss()`` after the best temperature for the
            samples (`AfterTemperature`), unless a temperature is learned.
        through: what the simulated step moves: ``"model"``, all trained parameters of any model
            (`metacal.metalearning.through_model`); or ``"head"``, the layer that returns the logits, in closed form if
            it is linear. Default: the head if it is named, else as ``outer`` says (the model).
        head: the layer that returns the logits (the module, or its attribute path such as ``"fc"``), if it cannot be
            detected as the layer whose output the model returns.
        base_loss: a `Loss` with one value per sample that takes soft labels if they are learned; default cross-entropy.
        reduction: ``"mean"`` or ``"sum"`` of the training loss, as your loop uses it.
        outer: when and how the hyper-parameters are updated; `metacal.PAPER` is the published rule.
        seed: seed of the order of held-out samples and of the random numbers in meta steps.

    Examples:
        >>> import torch, metacal
        >>> _ = torch.manual_seed(0)
        >>> model = torch.nn.Linear(4, 3)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> x, y, x_val, y_val = torch.randn(8, 4), torch.arange(8) % 3, torch.randn(8, 4), torch.arange(8) % 3
        >>> meta = metacal.MetaCalibrator(model, optimizer, meta=[(x_val, y_val)])
        >>> loss = meta.step(x, y)
        >>> optimizer.zero_grad(); loss.backward(); optimizer.step()
        >>> meta.through, round(meta.hyperparameters.strength.mean().item(), 2)
        ('model', 0.1)
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Any,
        meta: Any,
        hyperparameters: Hyperparameter | list[Hyperparameter] | dict[str, Hyperparameter] | None = None,
        objective: Loss | None = None,
        *,
        through: str | None = None,
        head: nn.Module | str | None = None,
        base_loss: Loss | None = None,
        reduction: str = "mean",
        outer: OuterStep | None = None,
        seed: int = 0,
    ) -> None:
        steps = OptimizerStep(optimizer)
        checks.check_model(model, steps)
        check_choice("reduction", reduction, ("mean", "sum"))
        if outer is not None and not isinstance(outer, OuterStep):
            raise InvalidTypeError(f"`outer` must be a metacal.OuterStep, got {type(outer).__name__}.")
        self.model, self.seed, self.reduction, self.outer = model, seed, reduction, outer or OuterStep()
        self.stream = meta if isinstance(meta, MetaStream) else MetaStream(meta, seed=seed)
        given = None if head is None else checks.find_head(model, head)
        logits, self.output_layer = self._probe(given)
        self._path = self._choose_path(through, given)
        self.through, self.num_classes = self._path.name, checks.class_count(logits)
        self.hyperparameters = as_one(LogitPenalty(self.num_classes) if hyperparameters is None else hyperparameters)
        if not self.hyperparameters.omega():
            raise InvalidValueError("`hyperparameters` must have a parameter that requires a gradient, got none.")
        objective = default_objective(self.outer, self.hyperparameters) if objective is None else objective
        base_loss = CrossEntropyLoss(reduction="none") if base_loss is None else base_loss
        first = at_least_float32(next(self._path.penalised.parameters()).detach())
        self._task = MetaTask(
            hyperparameters=self.hyperparameters.to(first.device, first.dtype),
            objective=checks.checked_loss("objective", objective).to(first.device),
            base_loss=checks.checked_loss("base_loss", base_loss).to(first.device),
            reduction=reduction,
            outer=self.outer,
            optimizer=steps,
            memory=MetaMemory(self.outer.memory),
            seed=seed,
        )
        checks.check_soft_labels(self._task.base_loss, self.hyperparameters)
        self._history, self._adam = History(), AdamState.zeros(self._omega())
        self._pending: list[Batch] = []
        self._iterations = self._steered = 0
        self._has_warned = False
        self._finished: Finish | None = None
        self.last_logits: Tensor | None = None

    def step(self, x: Any, y: Tensor, boundary: bool = True) -> Tensor:
        """Return the training loss of a batch, after a meta step if one is due.

        Args:
            x: input of the model: a tensor, a tuple of arguments or a dictionary of keyword arguments.
            y: int ``(n,)``.
            boundary: False for all but the last micro-batch when gradients are accumulated; the meta step is taken at
                the boundary, on all of them. The losses of the micro-batches before it are those of the old omega,
                without a penalty (`UnitwiseL2`), which the last one adds.

        Returns:
            Scalar with history, in the ``reduction`` of the calibrator; a sum times the number of DDP's processes.
        """
        self._follow_model()
        with self._forgetting_parts_on_error():
            if not self._path.runs_first:
                self._advance((x, y), boundary, x)
            given, logits = self._path.run(x)
            labels = self._task.labels(y, logits)
            if self._path.runs_first:
                self._advance((given, labels), boundary, x)
            self.last_logits = logits.detach()
            return self._task.training_loss(logits, labels, self._path.penalised, boundary=boundary)

    @contextmanager
    def watching(self) -> Iterator[list[Any]]:
        """Record the model's calls inside, for `steer`; yields the list of outputs so far."""
        with self._forgetting_parts_on_error(), self._path.watching() as outputs:
            yield outputs

    def steer(self, loss: Tensor, y: Tensor, boundary: bool = True, *, x: Any = None) -> None:
        """`step` for a trainer that runs the model (inside `watching`) and its own loss; call it before ``backward``.

        Takes the meta step if one is due; going backward from ``loss`` then gives the learned loss's gradient, times
        whatever ``loss`` is multiplied by. Its value stays, and so do terms that do not depend on the logits. For the
        rest it has to be ``base_loss`` of the logits, mean or sum: this is compared now and then. ``x`` is the input
        of the calibrator's model, where that is not what was called inside `watching`.
        """
        self._follow_model()
        with self._forgetting_parts_on_error(), torch.enable_grad():
            given, logits = self._path.taken(x)
            labels = self._task.labels(y, logits)
            self._advance((given, labels), boundary)
            self.last_logits = logits.detach()
            with self._task.training(labels, logits) as inner:
                # Not only at first: a model that knows nothing yet hides differences.
                compares = self._steered & (self._steered - 1) == 0  # at 0 and powers of two
                steer_gradient(loss, logits, inner, self._task.base_loss, compares=compares)
        self._steered += 1

    def loss(self, x: Any, y: Tensor) -> Tensor:
        """Return the training loss of a batch as `step` does, with the current omega and without a meta step."""
        self._follow_model()
        _, logits = self._path.run(x)
        return self._task.training_loss(logits, self._task.labels(y, logits), self._path.penalised)

    def hypergradient(self, x: Any, y: Tensor, meta_batch: Batch) -> dict[str, Tensor]:
        """Return the gradient of the meta-loss of a held-out batch with respect to omega, by name; nothing changes."""
        self._follow_model()
        part: Batch = (x, y)
        if self._path.runs_first:
            model = unwrapped(self.model)
            with self._task.quietly(model, "train"), torch.no_grad():
                given, logits = self._path.run(x, model)
            part = (given, self._task.labels(y, logits))
        found = self._path.hypergradient(self._task, [part], meta_batch)
        return dict(zip(self.hyperparameters.omega(), found.total, strict=True))

    def finish(self, *, fold: bool = True) -> Finish:
        """Fit one temperature on the held-out samples, with a weak prior, and fold it into the last layer.

        Args:
            fold: False fits only: the model is left as it is.

        Returns:
            What was found and done; print it.
        """
        logits, labels = self._held_out()
        self._finished = finish(self.model, self.output_layer, logits, labels, folds=fold)
        return self._finished

    @torch.no_grad()
    def calibrate(self, logits: Tensor) -> Tensor:
        """Return logits as the meta-objective sees them: scaled by a learned temperature, or unchanged."""
        return self.hyperparameters.meta_logits(logits)

    @property
    def history(self) -> list[dict[str, float]]:
        """A dictionary for each meta step (step, meta-loss, gradient norm, summary), thinned if there are many."""
        return self._history.records()

    @property
    def latest(self) -> dict[str, Tensor]:
        """The numbers of the last meta step, on the device; empty before the first."""
        return self._history.latest()

    @property
    def skipped(self) -> int:
        """Number of meta steps skipped because their gradient was not finite."""
        return int(self._adam.skipped)

    def export(self, path: str | Path | None = None) -> dict[str, Any]:
        """What was learned as plain numbers (soft labels, strengths, temperature), also written as JSON to ``path``."""
        learned = self.hyperparameters.export()
        if path is not None:
            write_json(Path(path), learned)
        return learned

    def summary(self) -> str:
        """Return two lines: the main numbers, and a verdict that says what to do."""
        self._warn_if_skipped()
        return Progress(
            hyperparameters=self.hyperparameters,
            history=self._history,
            meta_steps=self._task.meta_steps,
            skipped=self.skipped,
            samples=self.stream.samples,
            num_classes=self.num_classes,
            finished=self._finished,
        ).describe()

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to resume: omega, Adam's state, counters, history. Tensors and plain values only."""
        return {
            "hyperparameters": {name: value.clone() for name, value in self.hyperparameters.state_dict().items()},
            "adam": self._adam.state_dict(list(self.hyperparameters.omega())),
            "iterations": self._iterations,
            "meta_steps": self._task.meta_steps,
            "drawn": self.stream.drawn,
            "highest_lr": self._task.optimizer.highest_lr,
            "history": self._history.state_dict(),
            "memory": self._task.memory.state_dict(),
            "overfitting": self._task.overfitting.losses,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a saved state."""
        if missing := set(SAVED) - set(state):
            raise InvalidValueError(f"`state` must be what state_dict() returned, got one without {sorted(missing)}.")
        self.hyperparameters.load_state_dict(state["hyperparameters"])
        self._adam, self._pending = AdamState.zeros(self._omega()), []
        self._adam.load_state_dict(state["adam"], list(self.hyperparameters.omega()))
        self._iterations, self._task.meta_steps = state["iterations"], state["meta_steps"]
        self._task.optimizer.highest_lr = state.get("highest_lr", 0.0)
        self.stream.go_to(state.get("drawn", self._task.meta_steps))
        self._history.load_state_dict(state["history"])
        self._task.memory.load_state_dict(state.get("memory", {}))
        self._task.overfitting.losses = state.get("overfitting")
        self._task.overfitting.to(self._omega()[0].device)

    def remove(self) -> None:
        """Remove the hooks from the model."""
        self._path.remove()

    @contextmanager
    def _forgetting_parts_on_error(self) -> Iterator[None]:
        """Drop waiting micro-batches if something fails: they belong to no step."""
        try:
            yield
        except BaseException:
            self._pending = []
            raise

    def _advance(self, part: Batch, boundary: bool, x: Any = None) -> None:
        """Count a training batch; at its boundary, take the meta step if one is due."""
        self._task.optimizer.note_rate()
        is_due = self.outer.is_due(self._iterations) and (not self.outer.scaled or self._task.optimizer.is_known)
        parts = [*self._pending, part] if is_due else []
        self._pending = [] if boundary else parts
        if boundary and parts:
            self._meta_step(parts, x)
        self._iterations += boundary

    def _meta_step(self, parts: list[Batch], x: Any) -> None:
        """Draw a held-out batch, compute the hypergradient, and update omega."""
        task, batch = self._task, next(self.stream)
        if task.meta_steps < COMPARED_BATCHES and checks.share_samples(x, batch[0]):
            warnings.warn("A meta batch shares samples with its training batch: split them apart.", stacklevel=4)
        found = self._path.hypergradient(task, parts, batch)
        if found.judged is not None:
            task.memory.keep(*found.judged)
        self._update(found, sum(labels.numel() for _, labels in parts))
        if found.losses is not None:
            task.overfitting.see(found.losses)

    def _update(self, found: Hypergradient, samples: int) -> None:
        """Take an Adam step on omega, and add a row to the history; ``samples`` is the size of the training batch."""
        task, outer, lr = self._task, self.outer, self._task.optimizer.lr
        unit = lr if outer.per_unit_step and lr > 0.0 else 1.0
        grads = tuple(t / unit + d for t, d in zip(found.through, found.direct, strict=True))
        # What a meta-loss that is not finite says about the samples that are, is not to be followed either.
        grads = (torch.where(torch.isfinite(found.meta_loss), grads[0], torch.nan), *grads[1:])
        adam_step_(self.hyperparameters, grads, self._adam, outer, outer.interval(self._iterations))
        self.hyperparameters.project_()
        task.meta_steps += 1
        norm = torch.stack([g.square().sum() for g in grads]).sum().sqrt()
        values = {
            "meta_loss": found.meta_loss,
            "gradient_norm": norm,
            "inner_step": torch.full_like(norm, lr * (samples if self.reduction == "sum" else 1)),
            "overfitting": torch.as_tensor(task.overfitting.share, dtype=norm.dtype, device=norm.device),
        }
        self._history.add(self._iterations, {**values, **self.hyperparameters.summary()})
        if norm.device.type == "cpu" or task.meta_steps % WARNING_INTERVAL == 0:
            self._warn_if_skipped()

    def _warn_if_skipped(self) -> None:
        if not self._has_warned and self.skipped:
            self._has_warned = True
            warnings.warn(
                "A meta-gradient was not finite: that meta step was skipped, omega is unchanged; see `skipped`.",
                stacklevel=6,
            )

    @torch.no_grad()
    def _held_out(self) -> tuple[Tensor, Tensor]:
        """Return logits and labels of every held-out sample, of all processes, in evaluation mode."""
        model, rows, labels = unwrapped(self.model), [], []
        with self._task.quietly(model, "eval"):
            for x, y in self.stream.once():
                _, logits = self._path.run(moved(x, self._device()), model)
                labels.append(self._task.labels(moved(y, self._device()), logits, "meta targets"))
                rows.append(class_logits(as_rows(logits)))
        return joint_rows(torch.cat(rows), torch.cat(labels))[:2]

    def _probe(self, head: nn.Module | None) -> tuple[Tensor, nn.Module | None]:
        """Return the logits of a few held-out samples, and the innermost layer that returns them, if there is one."""
        model, device = unwrapped(self.model), self._device()
        with leaving_no_trace(model, mode="train", seed=self.seed, device=device):
            logits, found = find_output_layer(model, moved(self.stream.peek()[0], device), head)
        checks.check_logits(found if head is None else head, logits)
        return logits, found

    def _choose_path(self, through: str | None, given: nn.Module | None) -> ThroughHead | ThroughModel:
        """Choose what the simulated step moves: as requested, else the head if named, else as the outer step says.

        The parameters of a model in half precision are too coarse to be moved a little: then it is the head, too.
        """
        model = self.model
        if through is None:
            is_coarse = any(parameter.dtype.itemsize < 4 for parameter in model.parameters() if parameter.requires_grad)
            through = "head" if given is not None or is_coarse else self.outer.through
        check_choice("through", through, ("head", "model"))
        if through == "model":
            return ThroughModel(model, given, self.output_layer)
        head = self.output_layer if given is None else given
        if head is None:
            raise InvalidValueError(
                f"`head` must name the layer that returns the logits, got none whose output is the model's; "
                f"{named_layers(model)}"
            )
        return ThroughHead(model, head)

    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    def _omega(self) -> tuple[nn.Parameter, ...]:
        return tuple(self.hyperparameters.omega().values())

    def _follow_model(self) -> None:
        """Move omega and Adam's state to the model's device."""
        device = next(self._path.penalised.parameters()).device
        if self._adam.taken.device != device:
            for module in (self.hyperparameters, self._task.objective, self._task.base_loss):
                module.to(device)
            self._adam = self._adam.to(device)
            self._task.overfitting.to(device)
