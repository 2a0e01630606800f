"""Small bilevel problems in float64, and the bilevel step written out by hand, to hold the hypergradient against."""

import torch
from torch import nn

from metacal import (
    HierarchicalLabelSmoothing,
    LogitPenalty,
    NonUniformLabelSmoothing,
    ScalarLabelSmoothing,
    UnitwiseL2,
    VectorLabelSmoothing,
)
from metacal.losses import CrossEntropyLoss, DECELoss
from metacal.metalearning import GammaNet, LearnableFocalGamma, LearnableTemperature
from metacal.metalearning.through_head import MetaProblem

K, D = 4, 6


def linear_head(outputs=K, bias=True):
    torch.manual_seed(3)
    return nn.Linear(D, outputs, bias=bias).double()


def problem_of(hyperparameters, head=None, *, lr=0.3, reduction="mean", seed=0, **changes):
    head = linear_head() if head is None else head
    generator = torch.Generator().manual_seed(seed)
    num_classes = changes.pop("num_classes", K)
    fields = {
        "head": head,
        "hyperparameters": hyperparameters.double(),
        "base_loss": CrossEntropyLoss(reduction="none"),
        "objective": CrossEntropyLoss() + 0.5 * DECELoss(),
        "features": torch.randn(12, D, generator=generator, dtype=torch.float64),
        "labels": torch.randint(num_classes, (12,), generator=generator),
        "meta_features": torch.randn(10, D, generator=generator, dtype=torch.float64),
        "meta_labels": torch.randint(num_classes, (10,), generator=generator),
        "lr": lr,
        "reduction": reduction,
        "num_classes": num_classes,
    }
    return MetaProblem(**{**fields, **changes})


def randomised(hyperparameters, low=0.05, high=0.4, seed=1):
    generator = torch.Generator().manual_seed(seed)
    for parameter in hyperparameters.parameters():
        parameter.data = low + (high - low) * torch.rand(parameter.shape, generator=generator, dtype=torch.float64)
    return hyperparameters


def random_scales(head, seed=2):
    """What an optimiser might multiply gradients by: another factor for each number."""
    generator = torch.Generator().manual_seed(seed)
    named = head.named_parameters()
    return {name: torch.rand(p.shape, generator=generator, dtype=p.dtype) * 3.0 + 0.1 for name, p in named}


def hierarchical():
    """Inside its bounds, with deviations of both signs and a distribution that is not uniform."""
    smoothing = HierarchicalLabelSmoothing(K, start=0.2).double()
    generator = torch.Generator().manual_seed(1)
    smoothing.deviation.data = 0.1 * (torch.rand(K, generator=generator, dtype=torch.float64) - 0.5)
    smoothing.affinity.data = torch.randn(K, K, generator=generator, dtype=torch.float64)
    return smoothing


def with_zero_row(hyperparameters):
    randomised(hyperparameters).distribution.data[1] = 0.0
    return hyperparameters


HYPERPARAMETERS = {
    "scalar": lambda: randomised(ScalarLabelSmoothing(K)),
    "vector": lambda: randomised(VectorLabelSmoothing(K)),
    "non_uniform": lambda: randomised(NonUniformLabelSmoothing(K)),
    "non_uniform_at_zero": lambda: NonUniformLabelSmoothing(K),
    "non_uniform_uniform": lambda: NonUniformLabelSmoothing(K, initial="uniform"),
    "non_uniform_zero_row": lambda: with_zero_row(NonUniformLabelSmoothing(K)),
    "hierarchical": hierarchical,
    "hierarchical_at_start": lambda: HierarchicalLabelSmoothing(K),
    "l2": lambda: randomised(UnitwiseL2(linear_head()), -0.2, 0.2),
    "l2_at_zero": lambda: UnitwiseL2(linear_head()),
}
GENERAL = {
    "temperature": lambda: randomised(LearnableTemperature()),
    "temperature_in_training": lambda: randomised(LearnableTemperature(in_training=True)),
    "penalty": lambda: randomised(LogitPenalty(K), -0.5, 0.5),
    "penalty_at_start": lambda: LogitPenalty(K),
    "gamma": lambda: randomised(LearnableFocalGamma(K), 0.5, 2.0),
    "gamma_per_class": lambda: randomised(LearnableFocalGamma(K, per_class=True), 0.5, 2.0),
    "gamma_net": lambda: randomised(GammaNet(K, hidden=3), -1.0, 1.0),
}


def bilevel_meta_loss(problem):
    """The meta-loss after the whole inner step, by autograd on plain modules: what finite differences are taken of."""
    parameters = problem.parameters()
    steps = torch.autograd.grad(problem.inner_value(parameters), tuple(parameters.values()), allow_unused=True)
    stepped = {
        name: value.detach() if step is None else value.detach() - problem.lr * problem.scaled(name, step)
        for (name, value), step in zip(parameters.items(), steps)
    }
    with torch.no_grad():
        return problem.meta_value(problem.logits(stepped, problem.meta_features)).item()


def finite_differences(problem, size=1e-5):
    """Central differences of `bilevel_meta_loss` in every entry of omega."""
    gradients = []
    for parameter in problem.omega:
        gradient = torch.zeros_like(parameter)
        flat = parameter.data.view(-1)
        for i in range(flat.numel()):
            start = flat[i].item()
            flat[i] = start + size
            above = bilevel_meta_loss(problem)
            flat[i] = start - size
            below = bilevel_meta_loss(problem)
            flat[i] = start
            gradient.view(-1)[i] = (above - below) / (2 * size)
        gradients.append(gradient)
    return gradients
