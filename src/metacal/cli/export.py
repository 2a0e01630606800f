"""``metacal export``: a calibrator, or a model with one folded in, as ONNX, as a torch program, or as weights."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn

import typer

from metacal.cli import options
from metacal.cli.terminal import Console, warn
from metacal.errors import InvalidValueError, needs
from metacal.files import write_json, write_whole

if TYPE_CHECKING:
    from metacal.posthoc import Calibrator
    from metacal.posthoc.export import CalibratedModel, Inputs, Kind

RUNS_CODE = "loading it may run any code; pass `--trust-model` if you trust where it comes from"


def export(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A calibrator (.safetensors of calibrate --save), a model (.pt2, or .pt with a whole module), or a "
            "model's weights (.pt with a state_dict, .safetensors).",
        ),
    ],
    fold: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The calibrator to fold into the model or the weights.")
    ] = None,
    onnx: Annotated[Path | None, typer.Option(metavar="FILE", help="Write ONNX.")] = None,
    torch_export: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a torch.export program.")] = None,
    weights: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write weights (.pt or .safetensors) with the calibrator in.")
    ] = None,
    layer: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --weights: the last layer, if several have K outputs.")
    ] = None,
    scores: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="What the calibrator is given: logits or probs. By default as in its fit."),
    ] = None,
    input_shape: Annotated[
        str | None, typer.Option(metavar="SIZES", help="Shape of one input of a .pt module, such as 3,32,32.")
    ] = None,
    trust_model: Annotated[
        bool, typer.Option("--trust-model", help="Load a .pt module or a .pt2 program, which may run code.")
    ] = False,
    json_file: options.JSONFile = None,
) -> None:
    """Export a calibrator, or a model with a calibrator folded in; the result is run and compared before it is written.

    A calibrator becomes a graph from scores to probabilities; a model with one gives probabilities instead of logits.
    Temperature, vector and matrix scaling are folded exactly into the last layer of plain weights.

    Examples:
    [bold]metacal export calibrator.safetensors --onnx calibrator.onnx[/]

    [bold]metacal export model.pt2 --trust-model --fold calibrator.safetensors --onnx calibrated.onnx[/]

    [bold]metacal export weights.pt --fold calibrator.safetensors --weights calibrated.pt[/]
    """
    from metacal.functional.arguments import check_choice
    from metacal.posthoc import Calibrator

    wanted = {"onnx": onnx, "torch-export": torch_export, "weights": weights}
    options.check_places(**wanted, json=json_file)
    places = [path.resolve() for path in wanted.values() if path is not None]
    if not places:
        refuse("At least one of `--onnx`, `--torch-export` and `--weights` must be given: what to write.")
    if source.resolve() in places:
        refuse(f"What is written must be another file than the one that is read, got {source}.")
    if torch_export is not None and torch_export.suffix != ".pt2":
        refuse(f"`--torch-export` must end in .pt2, got {torch_export}.")
    if scores is not None:
        check_choice("--scores", scores, ("logits", "probs"))
    calibrator = None if fold is None else Calibrator.load(fold)
    found = read_source(source, trust_model)
    about: dict[str, Any] = {"source": str(source), "fold": None if fold is None else str(fold)}
    if isinstance(found, dict):
        if onnx is not None or torch_export is not None:
            refuse(f"{source}: holds weights and no model to trace; write `--weights`, or give a whole model (.pt2).")
        if calibrator is None or weights is None:
            refuse("`--fold` and `--weights` must be given with weights: the calibrator, and the file.")
        about |= write_weights(found, calibrator, layer, weights)
    elif weights is not None:
        refuse(f"`--weights` must come with a state_dict, got {source}; write `--onnx`.")
    else:
        about |= write_graphs(prepare(found, calibrator, scores, input_shape), wanted)
    if json_file is not None:
        write_json(json_file, about)


def refuse(reason: str) -> NoReturn:
    """Raise an error with this reason."""
    raise InvalidValueError(reason)


def read_source(path: Path, trust_model: bool) -> Any:
    """Read a `Calibrator`, a state dict, an `ExportedProgram` or a module; the last two only if trusted."""
    import torch

    from metacal.posthoc import Calibrator
    from metacal.posthoc.base import METADATA_KEY

    if not path.is_file():
        refuse(f"{path}: no such file.")
    if path.suffix == ".safetensors":
        with needs("cli"):
            import safetensors
            import safetensors.torch
        try:
            with safetensors.safe_open(path, framework="pt") as file:
                is_calibrator = METADATA_KEY in (file.metadata() or {})
            return Calibrator.load(path) if is_calibrator else safetensors.torch.load_file(path)
        except safetensors.SafetensorError as error:
            refuse(f"{path}: is no safetensors file: {error}.")
    if path.suffix == ".pt2":
        if not trust_model:  # it has pickled parts, and its shapes are expressions that are evaluated
            refuse(f"{path}: is a torch.export program; {RUNS_CODE}.")
        with in_one_line(f"{path}: cannot be read as a torch.export program"):
            return torch.export.load(path)
    if path.suffix not in (".pt", ".pth"):
        refuse(f"{path}: must end in .safetensors, .pt, .pth or .pt2.")
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # whatever a file that anyone wrote makes of the unpickler
        if not trust_model:
            refuse(f"{path}: holds more than weights, or is damaged; {RUNS_CODE}.")
        with in_one_line(f"{path}: cannot be read as a module"):
            found = torch.load(path, map_location="cpu", weights_only=False)
    if isinstance(found, torch.jit.ScriptModule):
        refuse(f"{path}: is TorchScript, which is deprecated; write the model with torch.export.save.")
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(found, dict) and isinstance(found.get(key), dict):
            found = found[key]
    if not isinstance(found, (dict, torch.nn.Module)):
        refuse(f"{path}: must hold a module or a state_dict, got {type(found).__name__}.")
    return found


@contextmanager
def in_one_line(problem: str) -> Iterator[None]:
    """Turn any error into a metacal error with the first line of its message."""
    try:
        yield
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InvalidValueError(f"{problem}: {reason}.") from None


def write_weights(found: dict[str, Any], calibrator: "Calibrator", layer: str | None, path: Path) -> dict[str, Any]:
    """Fold the calibrator, write the weights, and report the largest difference; return the facts for JSON."""
    import torch

    from metacal.posthoc.export import MODEL_TOLERANCE, fold_into_layer

    if path.suffix not in (".pt", ".pth", ".safetensors"):
        refuse(f"`--weights` must end in .pt, .pth or .safetensors, got {path}.")
    folded = fold_into_layer(found, calibrator, layer)
    check_difference(folded.difference, MODEL_TOLERANCE, f"softmax of layer {folded.layer}")
    if path.suffix == ".safetensors":
        with needs("cli"):
            import safetensors.torch
        tensors = {name: each.contiguous() for name, each in folded.weights.items() if isinstance(each, torch.Tensor)}
        data = safetensors.torch.save(tensors)
        write_whole(path, lambda file: file.write(data))
    else:
        write_whole(path, lambda file: torch.save(folded.weights, file))
    what = f"Folded {type(calibrator).__name__} into layer {folded.layer}"
    Console().say(f"{what}; wrote {path}: its logits are calibrated.")
    return {"weights": str(path), "layer": folded.layer, "difference": folded.difference, "tolerance": MODEL_TOLERANCE}


class Traced(NamedTuple):
    """A model to trace, its inputs (the first to trace with, all to compare on), and the dynamic sizes of each."""

    model: "CalibratedModel"
    samples: "list[Inputs]"
    free: "Inputs"


def write_graphs(traced: Traced, wanted: dict[str, Path | None]) -> dict[str, Any]:
    """Trace, compare and write; return the facts for JSON. A file is replaced only if the comparison passed."""
    import torch
    from torch.utils._pytree import tree_map

    import metacal
    from metacal.posthoc import export as graphs

    model, samples, free = traced
    with in_one_line("the model: cannot be read as a graph"):
        program = graphs.export_program(model, samples[0], free)
    if all(spec and 0 in spec for spec in free_sizes(program)):
        samples.append(tree_map(lambda value: value[:1], samples[-1]))
    else:
        warn("the number of rows is fixed: the model does not allow any other than that of its example.")
    about = {"metacal": metacal.__version__}
    if model.calibrator is not None:
        about["calibrator"] = type(model.calibrator).__name__
        about["class_names"] = json.dumps(model.calibrator.class_names_)
    names = [model.gives] if model.model is None else None
    tolerance = graphs.TOLERANCE if names else graphs.MODEL_TOLERANCE
    rows = sum(len(args[0]) for args, _ in samples if args) or len(samples)
    facts: dict[str, Any] = {"tolerance": tolerance, "calibrator": about.get("calibrator")}
    for option, path in wanted.items():
        if path is None:
            continue
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".metacal") as folder:
            place = Path(folder) / path.name
            if option == "onnx":
                graphs.write_onnx(program, place, about, names)
                gap, by = graphs.compare_onnx(place, model, samples), "onnxruntime"
            else:
                torch.export.save(program, place, extra_files=dict(about))
                gap, by = graphs.compare_program(torch.export.load(place), model, samples), "torch"
            check_difference(gap, tolerance, by)
            for part in Path(folder).iterdir():  # large weights are a file of their own beside the graph
                part.replace(path.parent / part.name)
        Console().say(
            f"Wrote {path}; {by} gives what metacal does on {rows:,} random and extreme rows: largest difference "
            f"{gap:.1g}, allowed {tolerance:g}."
        )
        facts[option] = {"file": str(path), "difference": gap, "rows": rows}
    return facts


def prepare(found: Any, calibrator: "Calibrator | None", scores: str | None, input_shape: str | None) -> Traced:
    """Return what to trace for a calibrator, a program or a module."""
    import torch
    from torch.export import Dim, ExportedProgram
    from torch.utils._pytree import tree_flatten, tree_unflatten

    from metacal.posthoc import Calibrator
    from metacal.posthoc.export import CalibratedModel, sample_scores, scores_of

    if isinstance(found, Calibrator):
        if calibrator is not None:
            refuse("`--fold` must come with a model or weights; FILE is a calibrator itself.")
        given = kind_of(scores or found.fitted_on_ or found.reads)
        rows = sample_scores(found.num_classes_, given)
        return Traced(CalibratedModel(found, gives=given), [((rows,), {})], (({0: Dim("rows")},), {}))
    if isinstance(found, ExportedProgram):
        if input_shape is not None:
            refuse("`--input-shape` must come with a .pt module: a .pt2 program knows its inputs.")
        module, example = found.module(), found.example_inputs
        if example is None:
            refuse("The program must have its example inputs with it: write it with torch.export.save.")
        free = tree_unflatten(free_sizes(found), tree_flatten(example)[1])
    else:
        sizes = (input_shape or "").split(",")
        if not all(size.strip().isdigit() and int(size) > 0 for size in sizes):
            given_with = "must be given with a .pt module, and" if input_shape is None else "must"
            refuse(f"`--input-shape` {given_with} be sizes with commas, such as 3,32,32, got {input_shape!r}.")
        module = found.eval()
        example = ((torch.randn(32, *map(int, sizes), generator=torch.Generator().manual_seed(0)),), {})
        free = (({0: Dim.AUTO},), {})
    if calibrator is not None:
        with torch.no_grad():
            classes = scores_of(module(*example[0], **example[1])).shape[1]
        if classes != calibrator.num_classes_:
            got = f"got one of {calibrator.num_classes_}"
            refuse(f"`--fold` must name a calibrator of the model's {classes} classes, {got}.")
    samples = [example, *(vary(example, size) for size in (0.0, 0.1, 1.0, 10.0, 100.0))]
    return Traced(CalibratedModel(calibrator, module, kind_of(scores or "logits")), samples, free)


def kind_of(text: str) -> "Kind":
    """Whether a calibrator is given logits or probabilities, for the type checker."""
    return "logits" if text == "logits" else "probs"


def free_sizes(program: Any) -> list[Any]:
    """Return the dynamic dimensions of each input of a program; None if there are none."""
    import torch
    from torch.export import Dim

    values = {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}
    shapes = [getattr(values.get(name), "shape", ()) for name in program.graph_signature.user_inputs]
    free = ({place: Dim.AUTO for place, size in enumerate(shape) if isinstance(size, torch.SymInt)} for shape in shapes)
    return [each or None for each in free]


def vary(example: "Inputs", size: float) -> "Inputs":
    """Return the example with random normal values of this size; integer inputs stay as they are."""
    import torch
    from torch.utils._pytree import tree_map

    generator = torch.Generator().manual_seed(1)

    def other(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        return size * torch.randn(value.shape, generator=generator).to(value)

    varied: Inputs = tree_map(other, example)
    return varied


def check_difference(gap: float, tolerance: float, by: str) -> None:
    """Exit with 1, without writing, if the export does not agree with the library."""
    if not gap <= tolerance:
        warn(f"{by} differs from metacal by {gap:.3g}, more than {tolerance:g}: nothing is written.")
        raise typer.Exit(1)
