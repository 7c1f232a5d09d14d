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
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...exceptions import Break
from ...foreign import ours
from ...guards import NAMES
from ...sources import KINDS
from ...symbolic_eval.calls import CONSTANT_CLASSES
from ..base import Args, Codegen, Frame, Named, OutputGraph, Variable
from ..constant import ARGUMENTS, CONSTANT_TYPES, ConstantVar, wrap_constant
from ..containers import TupleVar
from ..functions import MethodVar
from ..registry import BY_VALUE, RESULTS, SHARED
from ..tensor import TensorVar
from ..wrap_tensors import wrap_input

try:
    import numpy

    kinds = "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64"
    NUMBERS = {getattr(numpy, name) for name in kinds.split()}
    NUMPY = NUMBERS | {numpy.bool_}
except ImportError:  # torch works without it
    numpy = None  # type: ignore[assignment]
    NUMBERS = NUMPY = set()


# ---- numbers
def refused(value: Any) -> Any:
    """A bool of NumPy's is no bool to torch."""
    raise Break("argument", f"NumPy's {type(value).__name__} as an argument of torch")


CONSTANT_TYPES.update(NUMPY)
CONSTANT_CLASSES.update(NUMPY)
BY_VALUE.rule(*NUMPY)(wrap_constant)
ARGUMENTS.update(dict.fromkeys(NUMPY, refused))
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
