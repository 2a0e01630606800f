"""Arrays, lists and pandas objects are taken where tensors are, and wrong calls are explained."""

import numpy as np
import pandas as pd
import pytest
import torch
from tests.evaluation.files import draw

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.evaluation import (
    Predictions,
    detection,
    evaluate_predictions,
    ood_figures,
    risk_coverage,
    score_predictions,
    temperature_gain,
)

LOGITS, PROBS, TARGETS = (each.double() if each.is_floating_point() else each for each in draw(n=80))
KINDS = {
    "numpy": lambda values: values.numpy(),
    "list": lambda values: values.tolist(),
    "pandas": lambda values: pd.Series(values.numpy()) if values.ndim == 1 else pd.DataFrame(values.numpy()),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_figures_of_arrays_are_those_of_tensors(kind):
    logits, probs, targets = map(kind, (LOGITS, PROBS, TARGETS))
    assert score_predictions(probs=probs, targets=targets) == score_predictions(probs=PROBS, targets=TARGETS)
    assert temperature_gain(logits=logits, targets=targets) == temperature_gain(logits=LOGITS, targets=TARGETS)
    assert ood_figures(probs, probs) == ood_figures(PROBS, PROBS)
    for made, wanted in (
        (Predictions.from_logits(logits, targets), Predictions.from_logits(LOGITS, TARGETS)),
        (Predictions.from_probs(probs, targets), Predictions.from_probs(PROBS, TARGETS)),
        (Predictions.from_probs(kind(PROBS[:, 1]), kind(TARGETS.clamp(max=1))), None),
    ):
        found = evaluate_predictions(made, num_resamples=10)
        assert wanted is None or found.figures == evaluate_predictions(wanted, num_resamples=10).figures
        assert found.num_classes == (2 if wanted is None else 3)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_curves_of_arrays_are_those_of_tensors(kind):
    confidences, correct = PROBS.max(1).values, PROBS.argmax(1) == TARGETS
    curve, wanted = risk_coverage(kind(confidences), kind(correct)), risk_coverage(confidences, correct)
    assert isinstance(curve.risks, np.ndarray)
    assert curve.risks.tolist() == wanted.risks.tolist()
    assert curve.area == pytest.approx(wanted.area, rel=1e-15)
    for risk in (0.0, 0.1, 1.0):
        assert curve.coverage_at_risk(risk) == wanted.coverage_at_risk(risk)
    half = len(confidences) // 2
    parts = confidences[:half], confidences[half:].float()
    assert detection(*map(kind, parts)) == detection(parts[0], parts[1].double())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: score_predictions(PROBS, TARGETS),
            "`score_predictions` takes no positional arguments, got 2; call it",
        ),
        (
            lambda: score_predictions(preds=PROBS, target=TARGETS),
            r"has no argument `preds` \(here `probs` or `logits`\)",
        ),
        (lambda: temperature_gain(LOGITS, TARGETS), "`temperature_gain` takes no positional arguments, got 2; call it"),
        (lambda: risk_coverage(PROBS[:, 0]), "`risk_coverage` needs `correct`; call it as"),
        (lambda: Predictions.from_probs("0.5", TARGETS), "`probs` must be a tensor or an array of numbers, got str"),
    ],
)
def test_wrong_calls(call, message):
    with pytest.raises(InvalidTypeError, match=message):
        call()


def test_detection_by_scores_that_are_not_numbers():
    with pytest.raises(InvalidValueError, match="`outside` must hold numbers, got nan"):
        detection(torch.tensor([0.5]), torch.tensor([0.25, torch.nan]))
