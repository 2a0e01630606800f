"""The meta step in the published order and with a graph over everything, to be timed against ours."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

import metacal
from benchmarks.differentiable import all_pairs_dece, guarded_sigmoid
from metacal.lab.models.resnet import ResNet

Batch = tuple[Tensor, Tensor]


class PublishedStep:
    """The training loss of one iteration, after the meta step.

    The stepped classifier is part of a graph that holds the training and the meta batch's passes through the whole
    network, so the meta-loss is propagated back through both of them; DECE is that of n x K x K. The loss that is
    given back is the mean, as for the others.
    """

    def __init__(self, model: ResNet, num_classes: int, lr: float) -> None:
        self.model, self.lr = model, lr
        self.smoothing = metacal.NonUniformLabelSmoothing(num_classes)
        self.adam = torch.optim.Adam(self.smoothing.parameters(), lr=1e-3)
        self.features: list[Tensor] = []
        model.head.register_forward_pre_hook(lambda _, inputs: self.features.append(inputs[0]))

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Summed cross-entropy with the learned soft labels."""
        return -(self.smoothing.soft_labels(labels) * torch.log_softmax(logits, dim=1)).sum()

    def __call__(self, batch: Batch, meta_batches: Iterator[Batch]) -> Tensor:
        """Simulate a step of the classifier, move omega by what the meta batch says of it, and give the loss."""
        (x, y), (meta_x, meta_y) = batch, next(meta_batches)
        head = self.model.head
        logits = self.model(x)
        pulls = torch.autograd.grad(self.loss(logits, y), list(head.parameters()), create_graph=True)
        weight, bias = (p - self.lr * pull for p, pull in zip(head.parameters(), pulls, strict=True))
        self.model(meta_x)
        meta_logits = nn.functional.linear(self.features[-1], weight, bias)
        self.features.clear()
        meta_loss = nn.functional.cross_entropy(meta_logits, meta_y)
        meta_loss = meta_loss + 0.5 * all_pairs_dece(meta_logits, meta_y, guarded_sigmoid)
        self.adam.zero_grad()
        meta_loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]
        self.adam.step()
        with torch.no_grad():
            self.smoothing.strength.clamp_(0.0, 0.5)
            self.smoothing.distribution.clamp_(min=0.0)
        return self.loss(logits, y) / len(y)
