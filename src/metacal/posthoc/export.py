"""Exports calibrators: as a module after a model, a `torch.export` program, ONNX, or weights of a layer.

What is written is run and compared with the library first, on random and on extreme inputs (`compare_onnx`).
"""

import logging
import math
import warnings
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from metacal.errors import InvalidValueError, needs
from metacal.posthoc.arrays import Given
from metacal.posthoc.base import Calibrator, like
from metacal.posthoc.linear_scaling import DirichletCalibration, MatrixScaling, VectorScaling
from metacal.posthoc.one_against_rest import HistogramBinning
from metacal.posthoc.temperature_scaling import TemperatureScaling

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.export import ExportedProgram

Kind = Literal["logits", "probs"]
Inputs = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments of a model."""

TOLERANCE, MODEL_TOLERANCE = 1e-5, 1e-4
"""How far a probability may be from ours: of a calibrator alone, and after a model, which sums in any order."""

NEAR = 1e-6
"""Rows with a probability this close to an edge of histogram binning are not compared: rounding decides on the bin."""

EXTREME = 1e30


class CalibratedModel(nn.Module):
    """A model followed by a calibrator; its output is probabilities ``(n, K)``.

    Args:
        calibrator: a fitted one; None if it is in the model already, whose scores are then the output.
        model: its output is scores ``(n, K)``, alone, as ``.logits`` or first in a tuple; None: the input is scores.
        gives: whether the scores are logits or probabilities.

    Examples:
        >>> from metacal.posthoc import TemperatureScaling
        >>> logits, targets = torch.tensor([[2.0, 0.0], [2.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 1, 1])
        >>> scaling = TemperatureScaling().fit(logits=logits, targets=targets)
        >>> model = CalibratedModel(scaling, nn.Identity())
        >>> torch.equal(model(logits), scaling.predict_proba(logits=logits))
        True
    """

    def __init__(self, calibrator: Calibrator | None, model: nn.Module | None = None, gives: Kind = "logits") -> None:
        super().__init__()
        if calibrator is not None:
            check_gives(calibrator, gives)
        self.calibrator, self.model, self.gives = calibrator, model, gives

    def forward(self, *args: Any, **keywords: Any) -> Tensor:
        """Calibrated probabilities."""
        scores: Tensor = args[0] if self.model is None else scores_of(self.model(*args, **keywords))
        if self.calibrator is None:
            return scores
        given = Given(scores, is_logits=self.gives == "logits", is_tensor=True, is_flat=False)
        return self.calibrator._apply(getattr(given, self.calibrator.reads)).to(scores.dtype)


def scores_of(output: Any) -> Tensor:
    """Return the scores in a model's output."""
    if isinstance(output, Mapping):
        output = output["logits"] if "logits" in output else next(iter(output.values()))
    output = getattr(output, "logits", output)
    found = output[0] if isinstance(output, (tuple, list)) else output
    if not isinstance(found, Tensor) or found.ndim != 2:
        got = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise InvalidValueError(f"The model must return scores of shape (n, K), got {got}.")
    return found


def check_gives(calibrator: Calibrator, gives: str) -> None:
    """Raise if a calibrator fitted on logits would be given probabilities, or vice versa, and it matters."""
    if calibrator.shift_matters and calibrator.fitted_on_ not in (None, gives):
        raise InvalidValueError(
            f"{type(calibrator).__name__} must be given `{calibrator.fitted_on_}`, as in fit, got `{gives}`; fit it on "
            f"`{gives}`."
        )


def export_program(model: nn.Module, inputs: Inputs, free: Inputs) -> "ExportedProgram":
    """Trace a model with these inputs; ``free`` has the dynamic sizes of each."""
    with quiet(), torch.no_grad():
        return torch.export.export(model, *inputs, dynamic_shapes=tuple(filter(None, free)))


def write_onnx(program: "ExportedProgram", path: Path, about: Mapping[str, str], inputs: Sequence[str] | None) -> None:
    """Write a program as ONNX with metadata."""
    with needs("onnx"), quiet():
        import onnxscript  # noqa: F401

        written = torch.onnx.export(program, dynamo=True, verbose=False, input_names=inputs, output_names=["output"])
    assert written is not None
    written.model.metadata_props.update(about)
    written.save(path)


def compare_onnx(path: Path, model: CalibratedModel, samples: Sequence[Inputs]) -> float:
    """Return the largest difference of onnxruntime's output from a module's; NaN and inf must agree."""
    with needs("onnx"):
        import onnxruntime
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    largest = 0.0
    for args, keywords in samples:
        feed = dict(zip(names, (value.numpy() for value in (*args, *keywords.values())), strict=True))
        said = torch.from_numpy(session.run(None, feed)[0])
        largest = max(largest, difference(said, model, args, keywords))
    return largest


def compare_program(program: "ExportedProgram", model: CalibratedModel, samples: Sequence[Inputs]) -> float:
    """Return the largest difference of an exported program's output from a module's."""
    runs = program.module()
    with torch.no_grad():
        return max(difference(runs(*args, **keywords), model, args, keywords) for args, keywords in samples)


def difference(said: Tensor, model: CalibratedModel, args: tuple[Any, ...], keywords: dict[str, Any]) -> float:
    """Return the largest difference of two outputs, excluding rows at an edge of histogram binning."""
    with torch.no_grad():
        wanted = model(*args, **keywords).double()
    if said.shape != wanted.shape:
        return math.inf
    is_same = (said == wanted) | (said.isnan() & wanted.isnan())
    gaps = (said - wanted).abs().masked_fill(is_same, 0.0).nan_to_num(math.inf, math.inf)
    if model.calibrator is None:  # scores of any size
        gaps = gaps / wanted.abs().nan_to_num(0.0, 0.0, 0.0).amax(dim=1, keepdim=True).clamp(min=1.0)
    if isinstance(model.calibrator, HistogramBinning):
        scores = args[0] if model.model is None else scores_of(model.model(*args, **keywords))
        probs = Given(scores, model.gives == "logits", is_tensor=True, is_flat=False).probs
        inner = like(model.calibrator.edges_, probs)[:, 1:-1]
        is_near = ((probs.unsqueeze(2) - inner).abs() < NEAR).any(dim=2).any(dim=1)
        gaps = gaps[~is_near]
    return float(gaps.max()) if gaps.numel() else 0.0


def sample_scores(num_classes: int, gives: Kind, rows: int = 500, seed: int = 0) -> Tensor:
    """Return scores to compare on: random of many sizes, ties, certainties, and the largest finite logits."""
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(rows, num_classes, generator=generator)
    logits = torch.cat([size * normal for size in (0.01, 1.0, 5.0, 50.0, 1e4)])
    single = torch.eye(num_classes)[: min(num_classes, 100)]
    corners = torch.cat((torch.zeros(1, num_classes), single, 20.0 * single, 1e4 * single, -1e4 * single))
    if gives == "logits":
        return torch.cat((logits, corners, EXTREME * single, -EXTREME * single))
    return torch.cat((torch.softmax(torch.cat((logits, corners)), dim=1), single))


class Folded(NamedTuple):
    """Weights with a folded calibrator, and the difference of their probabilities from the calibrator's."""

    weights: dict[str, Any]
    layer: str
    difference: float


def fold_into_layer(weights: Mapping[str, Any], calibrator: Calibrator, layer: str | None = None) -> Folded:
    """Fold a calibrator into a model's last layer, so that ``softmax`` of its logits is calibrated.

    Exact for temperature scaling, and for vector and matrix scaling that were fitted on logits; all else is no linear
    map of the logits.

    Args:
        weights: a ``state_dict``.
        calibrator: a fitted one.
        layer: name of the last layer; by default the only one with K outputs.

    Raises:
        InvalidValueError: the calibrator is no linear map, or no such layer.
    """
    kind = type(calibrator).__name__
    linear = (TemperatureScaling, VectorScaling, MatrixScaling)
    if not isinstance(calibrator, linear) or isinstance(calibrator, DirichletCalibration):
        raise InvalidValueError(
            f"{kind} must be exported with its model: it is no linear map of the logits that a layer could hold; "
            "temperature, vector and matrix scaling are."
        )
    check_gives(calibrator, "logits")
    num_classes = calibrator.num_classes_
    name = find_layer(weights, num_classes) if layer is None else layer
    weight, bias = weights.get(f"{name}.weight"), weights.get(f"{name}.bias")
    if not isinstance(weight, Tensor) or weight.ndim < 2 or len(weight) != num_classes:
        found = tuple(weight.shape) if isinstance(weight, Tensor) else "none"
        raise InvalidValueError(
            f"`layer` must name a layer with a weight of {num_classes} rows, one a class, got {name} with {found}."
        )
    rows = weight.detach().double().reshape(num_classes, -1)
    offset = rows.new_zeros(num_classes) if bias is None else bias.detach().double()
    if isinstance(calibrator, TemperatureScaling):
        new_rows, new_offset = rows / calibrator.temperature_, offset / calibrator.temperature_
    else:
        by, added = like(calibrator.weight_, rows), like(calibrator.bias_, rows)
        if bias is None:
            raise InvalidValueError(f"`layer` must name a layer with a bias for {kind}, got {name} without one.")
        by = torch.diag(by) if by.ndim == 1 else by
        new_rows, new_offset = by @ rows, by @ offset + added
    changed = {f"{name}.weight": new_rows.reshape(weight.shape).to(weight.dtype)}
    if bias is not None:
        changed[f"{name}.bias"] = new_offset.to(bias.dtype)
    new = {key: changed.get(key, value) for key, value in weights.items()}
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(500, rows.shape[1], generator=generator, dtype=torch.float64).to(rows)
    features = torch.cat([size * normal for size in (0.0, 0.1, 1.0, 10.0)])
    logits = features @ rows.T + offset
    folded = new[f"{name}.weight"].double().reshape(num_classes, -1)
    said = torch.softmax(features @ folded.T + (0.0 if bias is None else new[f"{name}.bias"].double()), dim=1)
    return Folded(new, name, float((said - calibrator.predict_proba(logits=logits)).abs().max()))


def find_layer(weights: Mapping[str, Any], num_classes: int) -> str:
    """The only layer whose weight has K rows and whose bias, if any, has K entries."""
    found = [
        name.removesuffix(".weight")
        for name, value in weights.items()
        if name.endswith(".weight") and isinstance(value, Tensor) and value.ndim >= 2 and len(value) == num_classes
    ]
    if len(found) != 1:
        what = f"several have: {', '.join(found[:5])}" if found else "none has"
        raise InvalidValueError(f"`layer` must name the last layer, with {num_classes} outputs, one a class; {what}.")
    return found[0]


@contextmanager
def quiet() -> "Iterator[None]":
    """Silence the logs and warnings of torch's exporters."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
