"""`InnerLoss`: the training loss as a value with slots, which hyper-parameters fill.

A hyper-parameter does not know the others and the trainer knows none of them: each takes an `InnerLoss` and returns one
with a slot changed. Slots compose: soft labels of soft labels, transform after transform, weight times weight,
penalty plus penalty.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from metacal.errors import InvalidValueError
from metacal.functional.inputs import as_rows, class_logits
from metacal.losses import CrossEntropyLoss, Loss


@dataclass(frozen=True)
class InnerLoss:
    """The loss of one training batch, as far as hyper-parameters can change it.

    Attributes:
        labels: int64 ``(n,)``, the true classes.
        num_classes: K; a model with one logit has K = 2.
        targets: what the base loss is given: the labels, or soft labels ``(n, K)``.
        logits_transform: applied to the logits before the base loss.
        sample_weight: maps (transformed) logits to one weight per sample, ``(n,)``.
        penalty: maps the head's parameters, by name, to a scalar that is added to the summed loss.
    """

    labels: Tensor
    num_classes: int
    targets: Tensor
    logits_transform: Callable[[Tensor], Tensor] | None = None
    sample_weight: Callable[[Tensor], Tensor] | None = None
    penalty: Callable[[Mapping[str, Tensor]], Tensor] | None = None

    @classmethod
    def plain(cls, labels: Tensor, num_classes: int) -> "InnerLoss":
        """The loss of hard labels, with no slot filled yet."""
        return cls(labels, num_classes, targets=labels)

    def with_targets(self, targets: Tensor) -> "InnerLoss":
        """The same with other targets."""
        return replace(self, targets=targets)

    def with_transform(self, transform: Callable[[Tensor], Tensor]) -> "InnerLoss":
        """The same with one more transform of the logits, after the earlier ones."""
        before = self.logits_transform
        after = transform if before is None else lambda logits: transform(before(logits))
        return replace(self, logits_transform=after)

    def with_weight(self, weight: Callable[[Tensor], Tensor]) -> "InnerLoss":
        """The same with samples weighted once more."""
        before = self.sample_weight
        product = weight if before is None else lambda logits: before(logits) * weight(logits)
        return replace(self, sample_weight=product)

    def with_penalty(self, penalty: Callable[[Mapping[str, Tensor]], Tensor]) -> "InnerLoss":
        """The same with one more penalty added."""
        before = self.penalty
        total = penalty if before is None else lambda parameters: before(parameters) + penalty(parameters)
        return replace(self, penalty=total)

    def with_penalty_scaled(self, factor: float) -> "InnerLoss":
        """The same with its penalty multiplied."""
        penalty = self.penalty
        return self if penalty is None else replace(self, penalty=lambda parameters: factor * penalty(parameters))

    @property
    def is_soft_label_loss(self) -> bool:
        """Whether only the targets (and a penalty) differ from a plain loss, so that the closed form holds."""
        return self.logits_transform is None and self.sample_weight is None

    def value(self, base: Loss, logits: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """The summed loss of the batch: ``sum_i w_i base(z_i, t_i) + penalty``.

        Args:
            base: returns one value per sample, ``(n,)``.
            logits: the head's output; of shape ``(n, T, K)`` it is that of n T samples.
            parameters: the head's parameters by name, for the penalty.
        """
        wide = class_logits(as_rows(logits))
        if self.logits_transform is not None:
            wide = self.logits_transform(wide)
        losses: Tensor = base(wide, self.targets)
        if losses.shape != self.labels.shape:
            raise InvalidValueError(
                f"`base_loss` must return one value per sample, shape {tuple(self.labels.shape)}, got "
                f"{tuple(losses.shape)}; most losses do with reduction='none'."
            )
        if self.sample_weight is not None:
            losses = losses * self.sample_weight(wide)
        total = losses.sum()
        return total if self.penalty is None else total + self.penalty(parameters)


def is_plain_cross_entropy(base: Loss) -> bool:
    """Whether a base loss is unweighted cross-entropy, whose head gradient is known in closed form."""
    return type(base) is CrossEntropyLoss and base.class_weights is None
