"""``metacal export``: a calibrator, or a model with one folded in, as ONNX, as a torch program, or as weights."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    """Export a calibrator, or a model with a calibrator folded in; what is written is run and compared first.

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
    places = [path.resolve() for path in (onnx, torch_export, weights) if path is not None]
    if not places:
        raise InvalidValueError(
            "At least one of `--onnx`, `--torch-export` and `--weights` must be given: what to write."
        )
    if source.resolve() in places:
        raise InvalidValueError(f"What is written must be another file than the one that is read, got {source}.")
    if torch_export is not None and torch_export.suffix != ".pt2":
        raise InvalidValueError(f"`--torch-export` must end in .pt2, got {torch_export}.")
    if scores is not None:
        check_choice("--scores", scores, ("logits", "probs"))
    console = Console()
    calibrator = None if fold is None else Calibrator.load(fold)
    found = read_source(source, trust_model)
    about: dict[str, Any] = {"source": str(source), "fold": None if fold is None else str(fold)}
    if isinstance(found, dict):
        if onnx is not None or torch_export is not None:
            raise InvalidValueError(
                f"{source}: holds weights and no model to trace; write `--weights`, or give a whole model (.pt2)."
            )
        if calibrator is None or weights is None:
            raise InvalidValueError(
                "`--fold` and `--weights` must be given with weights: the calibrator, and the file."
            )
        about |= write_weights(found, calibrator, layer, weights, console)
    else:
        if weights is not None:
            raise InvalidValueError(f"`--weights` must come with a state_dict, got {source}; write `--onnx`.")
        about |= write_graphs(found, calibrator, scores, input_shape, wanted, console)
    if json_file is not None:
        write_json(json_file, about)


def read_source(path: Path, trust_model: bool) -> Any:
    """A `Calibrator`, weights as a dictionary, an `ExportedProgram`, or a module: the last two only if trusted."""
    import torch

    from metacal.posthoc import Calibrator
    from metacal.posthoc.base import METADATA_KEY

    if not path.is_file():
        raise InvalidValueError(f"{path}: no such file.")
    if path.suffix == ".safetensors":
        with needs("cli"):
            import safetensors
            import safetensors.torch
        try:
            with safetensors.safe_open(path, framework="pt") as file:
                is_calibrator = METADATA_KEY in (file.metadata() or {})
            return Calibrator.load(path) if is_calibrator else safetensors.torch.load_file(path)
        except safetensors.SafetensorError as error:
            raise InvalidValueError(f"{path}: is no safetensors file: {error}.") from None
    if path.suffix == ".pt2":
        if not trust_model:  # it has pickled parts, and its shapes are expressions that are evaluated
            raise InvalidValueError(f"{path}: is a torch.export program; {RUNS_CODE}.")
        return read_or_refuse(path, torch.export.load, "a torch.export program")
    if path.suffix not in (".pt", ".pth"):
        raise InvalidValueError(f"{path}: must end in .safetensors, .pt, .pth or .pt2.")
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a file that anyone wrote makes of the unpickler
        if not trust_model:
            raise InvalidValueError(f"{path}: holds more than weights, or is damaged; {RUNS_CODE}.") from error
        found = read_or_refuse(path, load_module, "a module")
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(found, dict) and isinstance(found.get(key), dict):
            found = found[key]
    if not isinstance(found, (dict, torch.nn.Module)):
        raise InvalidValueError(f"{path}: must hold a module or a state_dict, got {type(found).__name__}.")
    return found


def load_module(path: Path) -> Any:
    """A pickled module; runs its code."""
    import torch

    found = torch.load(path, map_location="cpu", weights_only=False)
    if isinstance(found, torch.jit.ScriptModule):
        raise InvalidValueError("TorchScript is deprecated; write the model with torch.export.save")
    return found


def read_or_refuse(path: Path, read: Any, what: str) -> Any:
    """What ``read`` gives; any error of it in one line."""
    try:
        return read(path)
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InvalidValueError(f"{path}: cannot be read as {what}: {reason}.") from None


def write_weights(
    found: dict[str, Any], calibrator: "Calibrator", layer: str | None, path: Path, console: Console
) -> dict[str, Any]:
    """Fold, write, and say how far it is from the calibrator; the facts for JSON."""
    import torch

    from metacal.posthoc.export import MODEL_TOLERANCE, fold_into_layer

    if path.suffix not in (".pt", ".pth", ".safetensors"):
        raise InvalidValueError(f"`--weights` must end in .pt, .pth or .safetensors, got {path}.")
    folded = fold_into_layer(found, calibrator, layer)
    check_difference(folded.difference, MODEL_TOLERANCE, f"softmax of layer {folded.layer}", console)
    if path.suffix == ".safetensors":
        with needs("cli"):
            import safetensors.torch
        tensors = {
            name: value.contiguous() for name, value in folded.weights.items() if isinstance(value, torch.Tensor)
        }
        data = safetensors.torch.save(tensors)
        write_whole(path, lambda file: file.write(data))
    else:
        write_whole(path, lambda file: torch.save(folded.weights, file))
    console.say(
        f"Folded {type(calibrator).__name__} into layer {folded.layer}; wrote {path}: its logits are calibrated."
    )
    return {"weights": str(path), "layer": folded.layer, "difference": folded.difference, "tolerance": MODEL_TOLERANCE}


def write_graphs(
    found: Any,
    calibrator: "Calibrator | None",
    scores: str | None,
    input_shape: str | None,
    wanted: dict[str, Path | None],
    console: Console,
) -> dict[str, Any]:
    """Trace, write, compare; the facts for JSON. A file is in its place only if it passed."""
    import json
    import tempfile

    import torch
    from torch.utils._pytree import tree_map

    import metacal
    from metacal.posthoc import export as graphs

    model, samples, shapes = prepare(found, calibrator, scores, input_shape)
    program = read_or_refuse(Path("the model"), lambda _: graphs.export_program(model, samples[0], shapes), "a graph")
    if all(spec and 0 in spec for spec in free_sizes(program)):
        samples.append(tree_map(lambda value: value[:1], samples[-1]))
    else:
        warn("the number of rows is fixed: the model does not allow any other than that of its example.")
    about = {"metacal": metacal.__version__}
    if model.calibrator is not None:
        about |= {
            "calibrator": type(model.calibrator).__name__,
            "class_names": json.dumps(model.calibrator.class_names_),
        }
    names = [model.gives] if model.model is None else None
    tolerance = graphs.TOLERANCE if names else graphs.MODEL_TOLERANCE
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
            check_difference(gap, tolerance, by, console)
            for part in Path(folder).iterdir():  # large weights are a file of their own beside the graph
                part.replace(path.parent / part.name)
        rows = sum(len(args[0]) for args, _ in samples if args) or len(samples)
        console.say(
            f"Wrote {path}; {by} gives what metacal does on {rows:,} random and extreme rows: largest difference "
            f"{gap:.1g}, allowed {tolerance:g}."
        )
        facts[option] = {"file": str(path), "difference": gap, "rows": rows}
    return facts


def prepare(
    found: Any, calibrator: "Calibrator | None", scores: str | None, input_shape: str | None
) -> "tuple[CalibratedModel, list[Inputs], Inputs]":
    """What is traced, inputs to trace with (the first) and to compare on, and which of their sizes are free."""
    import torch
    from torch.export import Dim, ExportedProgram
    from torch.utils._pytree import tree_flatten, tree_unflatten

    from metacal.posthoc import Calibrator
    from metacal.posthoc.export import CalibratedModel, sample_scores, scores_of

    if isinstance(found, Calibrator):
        if calibrator is not None:
            raise InvalidValueError("`--fold` must come with a model or weights; FILE is a calibrator itself.")
        given = kind_of(found, scores)
        rows = sample_scores(found.num_classes_, given)
        return CalibratedModel(found, gives=given), [((rows,), {})], (({0: Dim("rows")},), {})
    if isinstance(found, ExportedProgram):
        if input_shape is not None:
            raise InvalidValueError("`--input-shape` must come with a .pt module: a .pt2 program knows its inputs.")
        module, example = found.module(), found.example_inputs
        if example is None:
            raise InvalidValueError(
                "The program must have its example inputs with it: write it with torch.export.save."
            )
        shapes = tree_unflatten(free_sizes(found), tree_flatten(example)[1])
    else:
        if input_shape is None:
            raise InvalidValueError(
                "`--input-shape` must be given with a .pt module: sizes of one input, such as 3,32,32."
            )
        sizes = input_shape.split(",")
        if not all(size.strip().isdigit() and int(size) > 0 for size in sizes):
            raise InvalidValueError(f"`--input-shape` must be sizes with commas, such as 3,32,32, got {input_shape!r}.")
        module = found.eval()
        example = ((torch.randn(32, *map(int, sizes), generator=torch.Generator().manual_seed(0)),), {})
        shapes = (({0: Dim.AUTO},), {})
    samples = [vary(example, size) for size in (None, 0.0, 0.1, 1.0, 10.0, 100.0)]
    gives: Kind = "logits"
    if calibrator is not None:
        gives = kind_of(calibrator, scores or "logits")
        with torch.no_grad():
            said = scores_of(module(*example[0], **example[1]))
        if said.shape[1] != calibrator.num_classes_:
            raise InvalidValueError(
                f"`--fold` must name a calibrator of the model's {said.shape[1]} classes, got one of "
                f"{calibrator.num_classes_}."
            )
    return CalibratedModel(calibrator, module, gives), samples, shapes


def kind_of(calibrator: "Calibrator", scores: str | None) -> "Kind":
    """Whether a calibrator is given logits or probabilities."""
    kind = scores or calibrator.fitted_on_ or calibrator.reads
    return "logits" if kind == "logits" else "probs"


def free_sizes(program: Any) -> list[Any]:
    """For each input of a program the dimensions whose sizes were left free; None if there are none."""
    import torch
    from torch.export import Dim

    values = {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}
    specs = []
    for name in program.graph_signature.user_inputs:
        shape = values[name].shape if name in values and isinstance(values[name], torch.Tensor) else ()
        specs.append({place: Dim.AUTO for place, size in enumerate(shape) if isinstance(size, torch.SymInt)} or None)
    return specs


def vary(example: "Inputs", size: float | None) -> "Inputs":
    """The example, or the same with normal numbers of this size in place of its own; whole numbers stay."""
    import torch
    from torch.utils._pytree import tree_map

    generator = torch.Generator().manual_seed(1)

    def other(value: Any) -> Any:
        if size is None or not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        return size * torch.randn(value.shape, generator=generator).to(value)

    varied: Inputs = tree_map(other, example)
    return varied


def check_difference(gap: float, tolerance: float, by: str, console: Console) -> None:
    """Leave with 1, nothing written, if what was exported does not agree with the library."""
    if not gap <= tolerance:
        warn(f"{by} differs from metacal by {gap:.3g}, more than {tolerance:g}: nothing is written.")
        raise typer.Exit(1)
