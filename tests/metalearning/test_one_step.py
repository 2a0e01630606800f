"""The one-step hypergradient: golden vectors, finite differences, and closed form against the general form."""

import pytest
import torch
from tests.metalearning.problems import (
    GENERAL,
    HYPERPARAMETERS,
    D,
    K,
    finite_differences,
    linear_head,
    problem_of,
    random_scales,
    randomised,
)
from torch import nn

from metacal import NonUniformLabelSmoothing, ScalarLabelSmoothing, UnitwiseL2, VectorLabelSmoothing
from metacal.losses import CrossEntropyLoss, DECELoss
from metacal.metalearning import LearnableFocalGamma, LearnableTemperature
from metacal.metalearning.hyperparameter import as_one
from metacal.metalearning.through_head import MetaProblem, closed_form, has_closed_form, one_step, through_graph

SETTINGS = ["sum_lr0.1", "sum_lr0.001", "mean_lr0.1"]


def golden_problem(golden, kind, setting):
    def array(name):
        return torch.tensor(golden[f"hypergradient/{kind}_{setting}/{name}"])

    head = nn.Linear(array("weight").shape[1], array("weight").shape[0])
    head.weight.data, head.bias.data = array("weight"), array("bias")
    num_classes = len(head.weight)
    if kind == "learnable_l2":
        hyperparameters = UnitwiseL2(head)
        hyperparameters.weight.data, hyperparameters.bias.data = array("omega0"), array("omega1")
    elif kind == "non_uniform_label_smoothing":
        hyperparameters = NonUniformLabelSmoothing(num_classes)
        hyperparameters.distribution.data, hyperparameters.strength.data = array("omega0"), array("omega1")
    else:
        smoothing = {"vector_label_smoothing": VectorLabelSmoothing, "scalar_label_smoothing": ScalarLabelSmoothing}
        hyperparameters = smoothing[kind](num_classes)
        hyperparameters.strength.data = array("omega0")
    problem = MetaProblem(
        head=head,
        hyperparameters=hyperparameters,
        base_loss=CrossEntropyLoss(reduction="none"),
        objective=CrossEntropyLoss() + 0.5 * DECELoss(),
        features=array("features"),
        labels=array("targets"),
        meta_features=array("meta_features"),
        meta_labels=array("meta_targets"),
        lr=float(array("lr")),
        reduction=setting.split("_")[0],
        num_classes=num_classes,
    )
    names = {"learnable_l2": ["weight", "bias"], "non_uniform_label_smoothing": ["distribution", "strength"]}
    expected = {name: array(f"hypergrad{i}") for i, name in enumerate(names.get(kind, ["strength"]))}
    return problem, expected, array("meta_loss"), array("inner_loss_sum")


@pytest.mark.parametrize("form", [closed_form, None], ids=["closed_form", "through_graph"])
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize(
    "kind", ["non_uniform_label_smoothing", "vector_label_smoothing", "scalar_label_smoothing", "learnable_l2"]
)
def test_golden_vectors(golden, kind, setting, form):
    problem, expected, meta_loss, inner_loss = golden_problem(golden, kind, setting)
    assert has_closed_form(problem, problem.inner())
    found = closed_form(problem, problem.inner()) if form else through_graph(problem)
    names = [name for name, _ in problem.hyperparameters.named_parameters()]
    for name, gradient in zip(names, found.total):
        error = (gradient - expected[name]).abs().max() / expected[name].abs().max()
        assert error <= 1e-4, name
    assert found.meta_loss.item() == pytest.approx(float(meta_loss), rel=1e-5)
    value = problem.inner_value(problem.parameters()) / problem.scale
    assert value.item() == pytest.approx(float(inner_loss), rel=1e-5)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", HYPERPARAMETERS)
def test_closed_form_is_the_general_form_and_the_finite_difference(name, bias, reduction, scaled):
    head = linear_head(bias=bias)
    hyperparameters = HYPERPARAMETERS[name]() if bias or not name.startswith("l2") else UnitwiseL2(head)
    scales = random_scales(head) if scaled else {}
    problem = problem_of(hyperparameters, head, reduction=reduction, lr=0.05, scales=scales)
    assert has_closed_form(problem, problem.inner())
    closed, general = closed_form(problem, problem.inner()), through_graph(problem)
    for ours, other in zip(closed.total, general.total):
        torch.testing.assert_close(ours, other, rtol=1e-10, atol=1e-12)
    # A row of zeros is normalised by epsilon = 1e-6 alone: the difference has to be taken well inside of that.
    size, rtol, atol = (1e-9, 1e-4, 1e-5) if name == "non_uniform_zero_row" else (1e-5, 1e-5, 1e-8)
    for ours, numeric in zip(closed.total, finite_differences(problem, size)):
        torch.testing.assert_close(ours, numeric, rtol=rtol, atol=atol)


def test_rows_that_do_not_sum_to_one_decide_the_sign():
    """At omega = 0 a closed form that takes soft labels for normalised gives another gradient altogether."""
    problem = problem_of(NonUniformLabelSmoothing(K))
    found = dict(zip(["strength", "distribution"], one_step(problem).total))
    assert found["distribution"].abs().max() == 0.0
    assert found["strength"].abs().max() > 0.0
    uniform = problem_of(NonUniformLabelSmoothing(K, initial="uniform"))
    assert not torch.allclose(found["strength"], one_step(uniform).total[0], rtol=0.2)


@pytest.mark.parametrize("name", GENERAL)
def test_general_form_is_the_finite_difference(name):
    problem = problem_of(GENERAL[name](), lr=0.5)
    assert has_closed_form(problem, problem.inner()) == (name == "temperature")
    for ours, numeric in zip(one_step(problem).total, finite_differences(problem)):
        torch.testing.assert_close(ours, numeric, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(
    "head",
    [
        nn.Sequential(nn.Linear(D, 5), nn.Tanh(), nn.Linear(5, K)),
        nn.Sequential(nn.Linear(D, K, bias=False)),
        nn.utils.parametrizations.weight_norm(nn.Linear(D, K)),
    ],
    ids=["mlp", "no_bias", "weight_norm"],
)
def test_any_head(head):
    problem = problem_of(randomised(NonUniformLabelSmoothing(K)), head.double())
    assert not has_closed_form(problem, problem.inner())
    for ours, numeric in zip(one_step(problem).total, finite_differences(problem)):
        torch.testing.assert_close(ours, numeric, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("kind", [ScalarLabelSmoothing, VectorLabelSmoothing, NonUniformLabelSmoothing])
def test_binary_head_with_one_logit(kind):
    head = linear_head(outputs=1)
    problem = problem_of(randomised(kind(2)), head, num_classes=2)
    closed = closed_form(problem, problem.inner())
    for ours, other, numeric in zip(closed.total, through_graph(problem).total, finite_differences(problem)):
        torch.testing.assert_close(ours, other, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(ours, numeric, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("kind", [ScalarLabelSmoothing, VectorLabelSmoothing, NonUniformLabelSmoothing])
def test_class_weights(kind):
    """The closed form is that of the unweighted loss and steps aside."""
    weights = torch.tensor([0.2, 1.0, 3.0, 0.5], dtype=torch.float64)
    problem = problem_of(randomised(kind(K)), base_loss=CrossEntropyLoss(weights, "none"))
    assert not has_closed_form(problem, problem.inner())
    found, unweighted = one_step(problem).total, one_step(problem_of(randomised(kind(K)))).total
    for ours, numeric, plain in zip(found, finite_differences(problem), unweighted):
        torch.testing.assert_close(ours, numeric, rtol=1e-4, atol=1e-7)
        assert not torch.allclose(ours, plain, rtol=0.1, atol=1e-7)


def test_several_at_once():
    both = as_one([randomised(NonUniformLabelSmoothing(K)), randomised(UnitwiseL2(linear_head()))])
    problem = problem_of(both)
    assert has_closed_form(problem, problem.inner())
    for ours, numeric in zip(one_step(problem).total, finite_differences(problem)):
        torch.testing.assert_close(ours, numeric, rtol=1e-5, atol=1e-8)
    everything = as_one(
        {
            "smoothing": randomised(VectorLabelSmoothing(K)),
            "more": randomised(ScalarLabelSmoothing(K)),
            "gamma": randomised(LearnableFocalGamma(K)),
            "temperature": randomised(LearnableTemperature(in_training=True)),
            "l2": randomised(UnitwiseL2(linear_head())),
        }
    )
    problem = problem_of(everything)
    for ours, numeric in zip(one_step(problem).total, finite_differences(problem)):
        torch.testing.assert_close(ours, numeric, rtol=1e-5, atol=1e-8)
