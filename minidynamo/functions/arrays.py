"""NumPy's numbers, which are constants as Python's are, and arrays on their way to tensors.

In:   `numpy.float32(0.5)`; an array from outside, or one that the frame makes of constants;
      `tensor.numpy()`.
Out:  constants; tensors of the graph over an array's memory, arrays again behind it.

    >>> argument_of(numpy.int64(3))
    3
    >>> array.as_tensor(tx)                 # what torch.from_numpy(array) gives

An array that the frame has made of constants is computed while tracing, by NumPy itself, until a
tensor over its memory is asked for.  Computing with any other is a graph break, as are writes.
# PyTorch: torch._numpy computes with arrays in the graph (NumpyNdarrayVariable).

NumPy's functions and operators on constants, and the way from arrays to tensors and back.

    torch.from_numpy(np.linspace(0, 1, 4) * 2)

In, out: see `symbolic_eval.registry`.  A call on constants is made now, by NumPy, and what it gives
is a constant of the graph (`functions/arrays.py`); with any other array the graph breaks, as
it does at `np.random` and files.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from miniinductor.errors import ours

from ..errors import Break
from ..evaluate.calls import CONSTANT_CLASSES
from ..evaluate.operators import (
    COMPARISONS,
    OPERATORS,
    Operator,
    comparison,
    in_place,
    left_operand,
    right_operand,
)
from ..guards.sources import KINDS, NAMES
from ..variables.base import Args, Codegen, Frame, Named, OutputGraph, Variable
from ..variables.constant import (
    ARGUMENTS,
    CONSTANT_TYPES,
    NUMBERS,
    NUMPY,
    ConstantVar,
    wrap_constant,
)
from ..variables.constant import numpy as numpy
from ..variables.dicts import TupleVar
from ..variables.functions import MethodVar
from ..variables.registry import BY_VALUE, RESULTS, SHARED
from ..variables.rules import refused, rule
from ..variables.tensor import TensorVar
from ..wrap.tensors import wrap_input


# ---- numbers
def no_argument(value: Any) -> Any:
    """A bool of NumPy's is no bool to torch."""
    raise Break("argument", f"NumPy's {type(value).__name__} as an argument of torch")


CONSTANT_TYPES.update(NUMPY)
CONSTANT_CLASSES.update(NUMPY)
BY_VALUE.rule(*NUMPY)(wrap_constant)
ARGUMENTS.update(dict.fromkeys(NUMPY, no_argument))
ARGUMENTS.update(dict.fromkeys(NUMBERS, lambda value: value.item()))

# ---- arrays
HINT = "keep NumPy outside the compiled function, or use torch"
LARGEST = 1 << 20  # bytes of an array that is a constant of a graph
# the tensor over an array's memory
KINDS["array"], NAMES["from_numpy"] = "from_numpy({p})", torch.from_numpy


class ArrayVar(Variable):
    """`value`: the array, of one from outside and of a constant; `tensor`: the one over its memory,
    once it was asked for."""

    shared = True
    value: Any
    tensor: TensorVar | None = None

    def python_type(self) -> type:
        return numpy.ndarray

    def known(self) -> Any:
        """The array, of a constant that nothing in the graph can write."""
        if self.source is not None or self.tensor is not None:
            raise Break("NumPy", "computing with an array that is no constant", HINT)
        return self.value

    def as_tensor(self, tx: Frame) -> TensorVar:
        if self.tensor is None:
            make = constant_tensor if self.source is None else input_tensor
            self.tensor = make(tx, self)
        return self.tensor

    def getattr(self, tx: Frame, name: str) -> Variable:
        if name == "shape" and (self.source is not None or self.tensor is not None):
            return TupleVar(list(self.as_tensor(tx).getattr(tx, name).iterate(tx)))
        if callable(getattr(numpy.ndarray, name, None)):
            return MethodVar(self, name)
        return computed(tx, getattr, [self, ConstantVar(name)], {})

    def call_method(self, tx: Frame, name: str, args: Args, kwargs: Named) -> Variable:
        method = getattr(numpy.ndarray, name, None)
        if method is None or name in ("tofile", "dump"):
            raise Break("NumPy", f"the method .{name}() of an array", HINT)
        return computed(tx, method, [self, *args], kwargs)

    def length(self, tx: Frame) -> Any:
        return len(self.known())

    def getitem(self, tx: Frame, key: Variable) -> Variable:
        return computed(tx, numpy.ndarray.__getitem__, [self, key], {})

    def reconstruct(self, cg: Codegen) -> None:
        if self.tensor is not None:
            cg.call_object(torch.Tensor.numpy, self.tensor)
        else:
            cg.call_object(numpy.copy, lambda: cg.pinned(self.value))


def computed(tx: Frame, function: Callable, args: Any, kwargs: Named) -> Variable:
    """What NumPy gives for constants, now."""

    def host(value: Variable) -> Any:
        return value.known() if isinstance(value, ArrayVar) else value.real()

    positional, named = list(map(host, args)), {key: host(value) for key, value in kwargs.items()}
    result = tx.run_now(function, *positional, **named)
    if not isinstance(result, numpy.ndarray):
        return tx.output.wrap_result(result)
    if result.dtype.kind not in "biufc" or not result.dtype.isnative or result.nbytes > LARGEST:
        raise Break("NumPy", f"a constant array of type {result.dtype}", HINT)
    given = [value for value in (*positional, *named.values()) if isinstance(value, numpy.ndarray)]
    if any(numpy.may_share_memory(result, array) for array in given):
        raise Break("NumPy", "two arrays over one memory", HINT)
    return ArrayVar(result)


def constant_tensor(tx: Frame, array: ArrayVar) -> Any:
    """A copy of a constant of the graph, made anew in each call."""
    output = tx.output
    name = output.unique_name("array")
    value = output.attributes[name] = torch.from_numpy(numpy.array(array.value))
    fake = output.fake_of(value)
    held = TensorVar(output.add_input("get_attr", name, fake), fake)
    return held.call_method(tx, "clone", [], {})


def input_tensor(tx: Frame, array: ArrayVar) -> TensorVar:
    """The tensor over the memory of an array from outside: an input of the graph."""
    output, source = tx.output, array.source
    if not array.value.flags.writeable:
        raise Break("NumPy", "an array that must not be written", HINT)
    try:
        tensor = torch.from_numpy(array.value)
    except ours(TypeError, ValueError) as error:
        raise Break("NumPy", f"an array that is no tensor: {error}", HINT) from None
    output.guard(source, ("FLAG", "writeable"), "{0}.flags.writeable")
    for other, _ in list(output.memo.values()):
        if isinstance(other, ArrayVar) and other is not array:
            output.guard_pair("{0} is not {1}", source, other.source)
    made = wrap_input(output, tensor, source.child("array"))
    output.by_fake[id(made.fake)] = made
    return made


def refuse_result(output: OutputGraph, value: Any) -> Variable:
    raise Break("NumPy", "a call gave an array", HINT)


if numpy is not None:
    SHARED.rule(numpy.ndarray)(lambda builder, value, source: ArrayVar(value, source=source))
    RESULTS.rule(numpy.ndarray)(refuse_result)


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
