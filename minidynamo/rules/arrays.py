"""NumPy's functions and operators on arrays, and the way from arrays to tensors and back.

    np.maximum(a, 0).sum(axis=1)        torch.from_numpy(np.linspace(0, 1, 4))        a @ b + 1

In, out: see `symbolic_eval.registry`.  A call on arrays is a node of the graph that `torch._numpy`
computes (`variables/more/arrays.py`); one on constants alone is made now, by NumPy, and what it
gives is a constant of the graph.  `np.random` and files stay graph breaks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from ..exceptions import Break
from ..symbolic_eval.calls import unknown
from ..symbolic_eval.operations import on_host
from ..symbolic_eval.operators import (
    COMPARISONS,
    OPERATORS,
    Operator,
    comparison,
    in_place,
    left_operand,
    right_operand,
)
from ..symbolic_eval.registry import rule
from ..variables.base import Args, Frame, Named, Variable
from ..variables.constant import ConstantVar
from ..variables.containers import SequenceVar
from ..variables.more.arrays import HINT, ArrayVar, check_worth, compute, constant_tensor, numpy
from ..variables.tensor import TensorVar
from .refusals import refused

LARGEST = 1 << 20  # bytes of an array that is a constant of a graph


def called(real: Any, place: str, name: str, tx: Frame, *args: Any, **kwargs: Any) -> Variable:
    """numpy.name(...): `real` is the function, `place` the module of torch._numpy's ("linalg")."""
    given = (*args, *kwargs.values())
    if any(holds(value, TensorVar) for value in given):
        raise Break("NumPy", f"numpy's {name} of a tensor", HINT)
    if not any(holds(value, ArrayVar) for value in given):
        return of_constants(tx, real, args, kwargs)
    import torch._numpy as torchs

    function = getattr(getattr(torchs, place) if place else torchs, name, None)
    if function is None:
        raise unknown(real)
    return compute(tx, function, f"{place}_{name}".strip("_"), list(args), kwargs, real)


def holds(value: Any, kind: type) -> bool:
    if isinstance(value, SequenceVar):
        return any(holds(item, kind) for item in value.items)
    return isinstance(value, kind)


def of_constants(tx: Frame, real: Any, args: Any, kwargs: Named) -> Variable:
    """Called now, by NumPy itself."""
    result = tx.run_now(on_host(real, args, kwargs))
    if not isinstance(result, numpy.ndarray):
        return tx.output.wrap_result(result)
    plain = result.dtype.kind in "biufc" and result.dtype.isnative
    if not plain or result.nbytes > LARGEST:
        raise Break("NumPy", f"a constant array of type {result.dtype}", HINT)
    check_worth(tx.output)
    return ArrayVar(constant_tensor(tx, result))


def register(module: Any, place: str) -> None:
    kinds = type(numpy.linspace), numpy.ufunc, type(numpy.array), type(numpy.eye)
    for name, function in vars(module).items():
        if isinstance(function, kinds) and not name.startswith("_"):
            rule(function)(functools.partial(called, function, place, name))


if numpy is not None:
    register(numpy, "")
    register(numpy.linalg, "linalg")
    register(numpy.fft, "fft")
    rule(numpy.dtype)(lambda tx, *args, **kwargs: of_constants(tx, numpy.dtype, args, kwargs))


# ---- operators
def operated(tx: Frame, function: Callable, name: str, *operands: Variable) -> Variable:
    if any(holds(value, TensorVar) for value in operands):
        raise Break("NumPy", f"{name} of an array and a tensor", HINT)
    return compute(tx, function, f"operator_{name}", list(operands), {})


@left_operand(ArrayVar)
@right_operand(ArrayVar)
def _binary(tx: Frame, operator: Operator, a: Variable, b: Variable) -> Variable:
    if operator.plain == "/":  # torch would divide whole numbers in float32
        a, b = as_floats(tx, a), as_floats(tx, b)
    return operated(tx, OPERATORS[operator.plain].function, operator.name, a, b)


def as_floats(tx: Frame, value: Any) -> Variable:
    whole = isinstance(value, ArrayVar) and value.dtype().kind in "biu"
    return value.call_method(tx, "astype", [ConstantVar("float64")], {}) if whole else value


in_place(ArrayVar)(refused("NumPy", "an array that is written", HINT))


@comparison(ArrayVar)
def _compare(tx: Frame, symbol: str, a: Variable, b: Variable) -> Variable:
    return operated(tx, COMPARISONS[symbol], COMPARISONS[symbol].__name__, a, b)


# ---- tensors of arrays
@rule(torch.from_numpy)
def _from_numpy(tx: Frame, array: Variable, /) -> Variable:
    """A tensor over the same memory."""
    if not isinstance(array, ArrayVar) or array.scalar:
        raise Break("NumPy", f"torch.from_numpy() of {array}", HINT)
    return array.tensor.call_method(tx, "detach", [], {})


def tensor_of(tx: Frame, function: Any, array: ArrayVar, args: Args, kwargs: Named) -> Variable:
    """torch.tensor(array), as_tensor, asarray."""
    if args or kwargs.keys() - {"data", "obj"} or array.scalar:
        raise Break("NumPy", "a tensor of an array, with unusual arguments", HINT)
    if function is not torch.tensor:
        return array.tensor.call_method(tx, "detach", [], {})
    return array.tensor.call_method(tx, "clone", [], {}).call_method(tx, "contiguous", [], {})
