"""NumPy's functions and operators on constants, and the way from arrays to tensors and back.

    torch.from_numpy(np.linspace(0, 1, 4) * 2)

In, out: see `symbolic_eval.registry`.  A call on constants is made now, by NumPy, and what it gives
is a constant of the graph (`variables/more/arrays.py`); with any other array the graph breaks, as
it does at `np.random` and files.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from ..exceptions import Break
from ..symbolic_eval.operators import (
    COMPARISONS,
    OPERATORS,
    Operator,
    comparison,
    in_place,
    left_operand,
    right_operand,
)
from ..symbolic_eval.registry import refused, rule
from ..variables.base import Args, Frame, Named, Variable
from ..variables.more.arrays import HINT, ArrayVar, computed, numpy
from ..variables.tensor import TensorVar

# beginnings of the names of those that read or write a file, or a state
NOT_PURE = ("_", "save", "load", "set", "get", "from", "genfrom", "print")


def called(real: Any, tx: Frame, *args: Any, **kwargs: Any) -> Variable:
    return computed(tx, real, args, kwargs)


def register(module: Any) -> None:
    kinds = type(numpy.linspace), numpy.ufunc, type(numpy.array), type(numpy.eye)
    for name, function in vars(module).items():
        if isinstance(function, kinds) and not name.startswith(NOT_PURE):
            rule(function)(functools.partial(called, function))


if numpy is not None:
    register(numpy)
    register(numpy.linalg)
    register(numpy.fft)
    rule(numpy.dtype)(functools.partial(called, numpy.dtype))


# ---- operators
@left_operand(ArrayVar)
@right_operand(ArrayVar)
def _binary(tx: Frame, operator: Operator, a: Variable, b: Variable) -> Variable:
    return computed(tx, OPERATORS[operator.plain].function, [a, b], {})


in_place(ArrayVar)(refused("NumPy", "an array that is written", HINT))


@comparison(ArrayVar)
def _compare(tx: Frame, symbol: str, a: Variable, b: Variable) -> Variable:
    return computed(tx, COMPARISONS[symbol], [a, b], {})


# ---- tensors of arrays, arrays of tensors
@rule(torch.Tensor.numpy)
def _to_numpy(tx: Frame, tensor: TensorVar, *args: Variable, **kwargs: Variable) -> Variable:
    fake = tensor.fake
    known = not args and not kwargs and fake.is_cpu and fake.layout is torch.strided
    lazy = fake.is_conj() or fake.is_neg() or fake.dtype is torch.bfloat16
    if not known or lazy or fake.requires_grad or torch.is_inference_mode_enabled():
        return tensor.python_value(tx, "numpy")
    return ArrayVar(None, tensor)


@rule(torch.from_numpy)
def _from_numpy(tx: Frame, array: Variable, /) -> Variable:
    """A tensor over the same memory."""
    if not isinstance(array, ArrayVar):
        raise Break("NumPy", f"torch.from_numpy() of {array}", HINT)
    return array.as_tensor(tx).call_method(tx, "detach", [], {})


def tensor_of(tx: Frame, function: Any, array: ArrayVar, args: Args, kwargs: Named) -> Variable:
    """torch.tensor(array), as_tensor, asarray."""
    if args or kwargs.keys() - {"data", "obj"}:
        raise Break("NumPy", "a tensor of an array, with unusual arguments", HINT)
    if function is not torch.tensor:
        return _from_numpy(tx, array)
    copied = array.as_tensor(tx).call_method(tx, "clone", [], {})
    return copied.call_method(tx, "contiguous", [], {})
