"""The public boundary: arrays become tensors on the way in and arrays again on the way out; a wrong call is explained.

Behind it there are tensors only. What came as NumPy arrays, lists or pandas objects leaves as NumPy; tensors leave as
tensors, on their device.
"""

import functools
from collections.abc import Callable
from numbers import Real
from types import UnionType
from typing import Any, ParamSpec, TypeVar, cast, get_args

import numpy as np
import torch
from torch import Tensor

from metacal.errors import InvalidTypeError
from metacal.functional.calls import CallSignature

P = ParamSpec("P")
R = TypeVar("R")


def public(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function of tensors take arrays too, and explain a wrong call of it.

    Arguments whose annotation names ``Tensor`` may be anything that NumPy reads as an array. If none of them is a
    tensor, tensors of the result, alone or in a named tuple, become NumPy arrays and scalars.
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

    return call


def _kinds(annotation: Any) -> tuple[type, ...]:
    kinds = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
    return tuple(Real if kind is float else kind for kind in kinds)


def to_tensor(name: str, values: Any) -> Tensor:
    """A tensor as it is (without its graph); anything NumPy can read as a tensor that shares its memory if it may.

    Raises:
        InvalidTypeError: not an array of numbers.
    """
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
    if array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:  # dtypes that torch hardly knows
        array = array.astype(np.int64)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    return torch.from_numpy(array)


def to_numpy(result: Any) -> Any:
    """Tensors as NumPy arrays, those without dimensions as NumPy scalars; in named tuples too, other values as is."""
    if isinstance(result, Tensor):
        return result.detach().numpy()[()]
    if isinstance(result, tuple) and hasattr(result, "_fields"):
        return type(result)(*map(to_numpy, result))
    return result
