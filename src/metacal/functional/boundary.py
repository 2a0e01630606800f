"""The public boundary: converts arrays to tensors and back, and explains wrong calls.

Behind it there are tensors only. What came as NumPy arrays, lists or pandas objects leaves as NumPy; tensors leave as
tensors, on their device. A wrong call gets an error that names what does not fit and shows the right call.
"""

import difflib
import functools
import inspect
from collections.abc import Callable, Mapping
from numbers import Real
from types import UnionType
from typing import Any, ParamSpec, TypeVar, cast, get_args, get_origin

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Unpack

from metacal.errors import InvalidTypeError
from metacal.functional.inputs import ScoreArguments, read_inputs

P = ParamSpec("P")
R = TypeVar("R")

HABITS = {
    "preds": ("scores", "probs", "logits"),
    "y_pred": ("scores", "probs", "logits"),
    "y_prob": ("scores", "probs"),
    "y_score": ("scores", "probs", "logits"),
    "X": ("scores", "logits", "probs"),
    "target": ("targets",),
    "labels": ("targets",),
    "y_true": ("targets",),
    "y": ("targets",),
    "n_bins": ("num_bins",),
    "task": ("num_classes", "num_labels"),
    "num_classes": (),
    "num_labels": ("multilabel",),
    "validate_args": ("validate",),
}
"""What other libraries call an argument, and what it may be called here."""


def public(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function of tensors accept arrays, and explain wrong calls.

    Arguments whose annotation names ``Tensor`` may be anything that NumPy reads as an array. If none of them is a
    tensor, tensors of the result, alone or in a named tuple, become NumPy arrays and scalars. Arguments that are
    collected as ``**scores: Unpack[ScoreArguments]`` are shown, and explained, one by one.
    """
    signature = CallSignature(function)
    # The tensors among the arguments, with what each may be besides: None, or a number.
    kinds = {each.name: _kinds(each.annotation) for each in signature.parameters}
    tensors = [(name, kept) for name, kept in kinds.items() if Tensor in kept]

    @functools.wraps(function)
    def call(*args: P.args, **keywords: P.kwargs) -> R:
        if torch.compiler.is_compiling():  # of tensors, then
            return function(*args, **keywords)
        given = signature.bind(args, keywords)
        arrays = [name for name, kept in tensors if name in given and not isinstance(given[name], kept)]
        if not arrays:
            return cast(Callable[..., R], function)(**given)
        converted = {name: to_tensor(name, given[name]) for name in arrays}
        result = cast(Callable[..., R], function)(**{**given, **converted})
        has_tensor = any(isinstance(given.get(name), Tensor) for name, _ in tensors)
        return result if has_tensor else cast(R, to_numpy(result))

    shown = inspect.signature(function).replace(parameters=parameters_of(function))
    call.__signature__ = shown  # type: ignore[attr-defined]
    return call


def _kinds(annotation: Any) -> tuple[type, ...]:
    kinds = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
    return tuple(Real if kind is float else kind for kind in kinds)


def explained(function: Callable[P, R]) -> Callable[P, R]:
    """Explain wrong calls of a keyword-only function: an `InvalidTypeError` shows the right call."""
    if any(each.kind in (each.VAR_POSITIONAL, each.POSITIONAL_ONLY) for each in parameters_of(function)):
        return function
    signature = CallSignature(function)

    @functools.wraps(function)
    def call(*args: P.args, **keywords: P.kwargs) -> R:
        return cast(Callable[..., R], function)(**signature.bind(args, keywords))

    return call


def explain_methods(cls: type, *names: str) -> None:
    """Explain wrong calls of those of these methods that a class defines itself; for ``__init_subclass__``."""
    for name in vars(cls).keys() & set(names):
        setattr(cls, name, explained(vars(cls)[name]))


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of a function in order, with `ScoreArguments` expanded."""
    own = list(inspect.signature(function).parameters.values())
    annotation = own[-1].annotation if own else None  # a string in modules that postpone annotations
    if get_origin(annotation) is not Unpack and annotation != f"Unpack[{ScoreArguments.__name__}]":
        return own
    known = inspect.signature(read_inputs).parameters
    scores = [known[name] for name in ScoreArguments.__annotations__]
    return [*scores[:3], *own[:-1], *scores[3:]]


class CallSignature:
    """The signature of a function, and the messages for wrong calls."""

    def __init__(self, function: Callable[..., Any], name: str | None = None) -> None:
        parameters = parameters_of(function)
        self.name = name or function.__qualname__.removesuffix(".__init__").rpartition(".")[2]
        self.parameters = [each for each in parameters if each.kind is not each.VAR_KEYWORD]
        self.names = [each.name for each in self.parameters]
        self.positional = [each.name for each in self.parameters if each.kind is not each.KEYWORD_ONLY]
        self.required = {each.name for each in self.parameters if each.default is each.empty}
        self.allowed = None if len(parameters) > len(self.parameters) else set(self.names)

    def bind(self, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return all arguments by name; raise `InvalidTypeError` if the call is wrong."""
        given = {**dict(zip(self.positional, args, strict=False)), **keywords} if args else keywords
        fits = len(given) == len(args) + len(keywords) and given.keys() >= self.required
        if not fits or not (self.allowed is None or given.keys() <= self.allowed):
            raise InvalidTypeError(f"`{self.name}` {self._problem(args, keywords)}; call it as {self.right_call()}.")
        return given

    def right_call(self) -> str:
        """Return the correct call as text."""
        parts = []
        for each in self.parameters:
            if each.name == "logits" and "probs" in self.names:
                parts.append("logits=... or probs=...")
            elif each.default is not each.empty:
                parts.append(f"{each.name}={each.default!r}")
            else:
                parts.append(each.name if each.name in self.positional else f"{each.name}=...")
        parts += ["..."] if self.allowed is None else []
        return f"{self.name}({', '.join(part for part in parts if part not in ('self', 'probs=None'))})"

    def unknown(self, names: list[str]) -> str:
        """Return a message on unknown arguments, with the names to use instead."""
        return f"has no argument {', '.join(f'`{name}`{self._hint(name)}' for name in names)}"

    def _problem(self, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> str:
        strange = [name for name in keywords if self.allowed is not None and name not in self.allowed]
        if strange:
            return self.unknown(strange)
        own = "self" in self.positional
        if len(args) > len(self.positional):
            most, got = len(self.positional) - own, len(args) - own
            return f"takes {most or 'no'} positional argument{'s' * (most != 1)}, got {got}"
        by_place = self.positional[: len(args)]
        twice = [name for name in by_place if name in keywords]
        if twice:
            return f"got `{twice[0]}` twice"
        missing = [name for name in self.names if name in self.required - {*by_place, *keywords}]
        return f"needs {' and '.join(f'`{name}`' for name in missing)}"

    def _hint(self, name: str) -> str:
        like = HABITS.get(name, difflib.get_close_matches(name, self.names))
        here = [known for known in like if self.allowed is None or known in self.allowed]
        if here:
            return f" (here {' or '.join(f'`{known}`' for known in here)})"
        return " (not needed here)" if name in HABITS else ""


def to_tensor(name: str, values: Any) -> Tensor:
    """Return a tensor without its graph; convert anything else that NumPy can read, sharing memory if possible."""
    if isinstance(values, Tensor):
        return values.detach()
    try:
        array = np.asarray(values)
    except (RuntimeError, TypeError, ValueError) as error:  # rows of different lengths, a list of tensors with a graph
        raise InvalidTypeError(f"`{name}` must be a tensor or an array of numbers, got none: {error}") from None
    if array.dtype.kind == "O" and array.size and all(isinstance(value, Real) for value in array.flat):
        array = np.array(array.tolist())  # of pandas' own types of numbers, say
    if array.dtype.kind not in "fiub":
        kind = type(values).__name__ + (f" of dtype {array.dtype}" if array.ndim else "")
        raise InvalidTypeError(f"`{name}` must be a tensor or an array of numbers, got {kind}.")
    if np.ma.is_masked(values):
        raise InvalidTypeError(f"`{name}` must be an array without masked entries, got one that has some.")
    dtype = np.dtype(np.float64) if array.dtype.itemsize > 8 else array.dtype.newbyteorder("=")
    if dtype.kind == "u" and dtype.itemsize > 1:  # dtypes that torch hardly knows
        dtype = np.dtype(np.int64)
    has_to_copy = not array.flags.writeable or any(stride < 0 for stride in array.strides)
    return torch.from_numpy(array.astype(dtype, copy=has_to_copy))


def to_numpy(result: Any) -> Any:
    """Convert tensors to NumPy arrays or scalars, also in named tuples; other values are unchanged."""
    if isinstance(result, Tensor):
        return result.detach().numpy()[()]
    if isinstance(result, tuple) and hasattr(result, "_fields"):
        return type(result)(*map(to_numpy, result))
    return result
