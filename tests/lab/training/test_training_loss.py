"""What the loop minimises: from a spec's method to its loss, its calibrator and its held-out objective."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import metacal
from metacal.lab.models import create_model
from metacal.lab.training import METHODS, Hardware, Method, RunFolder, build_spec, load_data, make_fabric
from metacal.lab.training.build import Job, make_batches
from metacal.lab.training.training_loss import build_loss, held_out_terms, sum_terms
from metacal.losses import AfterTemperature, DECELoss
from metacal.metalearning import PAPER, OuterStep

SMALL = {"dataset": "digits", "train_size": 256, "batch_size": 16, "meta_every": 1}


def settings(**changes):
    return build_spec({**SMALL, **changes})


def calibrator_of(spec):
    dataset, splits = load_data(spec, None)
    fabric = make_fabric(spec, Hardware())
    model = create_model("mlp", num_classes=10, input_shape=dataset.input_shape)
    optimizer = torch.optim.SGD(model.parameters(), lr=spec.lr)
    meta = make_batches(Job(spec, RunFolder("unused"), dataset, splits, fabric), spec.meta_part)
    return build_loss(spec, *fabric.setup(model, optimizer), meta, dataset.num_classes).calibrator


@pytest.mark.parametrize(
    ("outer", "expected", "gradient"),
    [
        ("default", OuterStep(), "full"),
        ("paper", PAPER, "full"),
        ("first", replace(PAPER, every=16, dense_start=1000, dense_every=1, adaptive=True), "full"),
        (
            "steady",
            replace(
                PAPER,
                every=16,
                dense_start=1000,
                dense_every=1,
                adaptive=True,
                per_unit_step=True,
                looks_ahead=False,
                memory=512,
            ),
            "confidence",
        ),
    ],
)
def test_the_outer_step_of_a_spec_reaches_its_calibrator(outer, expected, gradient):
    calibrator = calibrator_of(build_spec({"dataset": "digits", "method": "mc", "outer": outer}))
    assert calibrator.outer == expected
    assert calibrator.reduction == "mean"
    objective = calibrator._task.objective
    assert [term.gradient for term in objective.modules() if isinstance(term, DECELoss)] == [gradient]
    assert isinstance(objective, AfterTemperature) == expected.refine
    changed = calibrator_of(
        build_spec({"dataset": "digits", "method": "mc", "outer": outer, "meta_every": 3, "meta_lr": 0.01})
    )
    assert changed.outer == replace(expected, every=3, dense_start=0, lr=0.01)


@pytest.mark.parametrize("through", ["head", "model"])
def test_what_a_step_is_simulated_on_is_said_by_the_spec(through):
    assert calibrator_of(build_spec({"dataset": "digits", "method": "meta", "through": through})).through == through


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_mixup_is_the_loss_of_mixed_inputs_and_mixed_labels(reduction):
    model = create_model("mlp", num_classes=4, input_shape=(6,))
    x, y = torch.randn(10, 6), torch.arange(10) % 4
    spec = settings(method="mixup", reduction=reduction)
    assert spec.method.mixup == 0.2
    loss = build_loss(spec, model, None, None, 4)
    torch.manual_seed(5)
    found, logits = loss(x, y, boundary=True)
    torch.manual_seed(5)
    share = float(torch.distributions.Beta(torch.tensor(0.2), torch.tensor(0.2)).sample())
    other = torch.randperm(10).numpy()
    mixed = share * x.numpy() + (1 - share) * x.numpy()[other]
    labels = share * np.eye(4)[y] + (1 - share) * np.eye(4)[y.numpy()[other]]
    said = model(torch.from_numpy(mixed)).detach().double().numpy()
    expected = -(labels * (said - np.log(np.exp(said).sum(1, keepdims=True)))).sum(1)
    assert 0.0 < share < 1.0
    assert found.item() == pytest.approx(expected.mean() if reduction == "mean" else expected.sum(), rel=1e-5)
    np.testing.assert_allclose(logits, said, rtol=1e-5)


def test_mixup_does_not_go_with_hyperparameters():
    with pytest.raises(ValueError, match="mixup must be 0 for methods that learn hyper-parameters"):
        Method(name="both", mixup=0.2, hyperparameters=("scalar_smoothing",))


def test_the_method_meta_is_the_librarys_default():
    ours = calibrator_of(build_spec({"dataset": "digits", "method": "meta"}))
    net = torch.nn.Linear(4, 3)
    default = metacal.MetaCalibrator(
        net, torch.optim.SGD(net.parameters(), 0.1), [(torch.zeros(4, 4), torch.arange(4) % 3)]
    )
    assert (ours.through, ours.outer) == (default.through, default.outer)
    assert repr(ours._task.objective) == repr(default._task.objective)
    assert type(ours.hyperparameters) is type(default.hyperparameters)
    torch.testing.assert_close(ours.hyperparameters.base.detach(), default.hyperparameters.base.detach())


def test_a_learned_temperature_is_not_judged_after_another_one():
    method = Method(name="mine", hyperparameters=("vector_smoothing", "temperature"))
    assert not isinstance(calibrator_of(settings(method=method))._task.objective, AfterTemperature)


@pytest.mark.parametrize(("meta", "samples"), [("val", 50), ("split", 30)])
def test_what_is_learned_on(meta, samples):
    changes = {"val_size": 50, **({"meta_size": 30} if meta == "split" else {})}
    spec = settings(method="meta", meta=meta, **changes)
    _, splits = load_data(spec, None)
    seen = calibrator_of(spec).stream.meta.examples
    assert len(seen) == samples
    assert (splits.meta is None) == (meta == "val")
    assert torch.equal(seen.inputs, splits.val.inputs if meta == "val" else splits.meta.inputs)


@pytest.mark.parametrize(("outer", "gradient"), [("paper", "full"), ("steady", "confidence")])
@pytest.mark.parametrize("method", ["mc", "mc-dece"])
def test_the_objective_has_the_gradient_that_goes_with_the_outer_step(method, outer, gradient):
    terms = held_out_terms(build_spec({"dataset": "digits", "method": method, "outer": outer}))
    assert [term.gradient for term in sum_terms(terms).modules() if isinstance(term, DECELoss)] == [gradient]
    assert [term.loss for term in terms] == [term.loss for term in METHODS[method].objective]
