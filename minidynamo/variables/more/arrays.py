"""NumPy's arrays: tensors of the graph, with which `torch._numpy` computes as NumPy does.

In:   an array from outside; `tensor.numpy()`; the results of NumPy's functions on such.
Out:  nodes of the graph, arrays again behind it.

    >>> array.call_method(tx, "sum", [], {"axis": ConstantVar(0)})      # an ArrayVar

What `torch._numpy` gives is not taken on trust.  The call is made with NumPy itself, too, on small
numbers in the same strides: type, shape and strides of the result must be the same, and it must
share memory with the same arguments (a view) or with none (a copy).  Any difference is a graph
break, as are results that are several arrays, and writes.
Numbers of NumPy's types (`a.sum()`) are arrays without dimensions in the graph, and numbers again
behind it.  Mirrors torch/_dynamo/variables/tensor.py (NumpyNdarrayVariable).
# PyTorch: differences between torch._numpy and NumPy are the program's.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ...extras.extending import extends
from ...convert_frame import COMPILERS
from ...exceptions import Break
from ...extras.late_tensors import with_items
from ...extras.graph_errors import storage
from ...foreign import ours
from ...guards import NAMES
from ...sources import KINDS
from ..base import Args, Codegen, Frame, Lazy, Named, OutputGraph, Source, Variable
from ..constant import ConstantVar
from .numpy_numbers import NUMPY
from ..containers import ListVar, SequenceVar, TupleVar
from ..functions import MethodVar
from ..registry import SHARED
from ..tensor import TensorVar
from .slices import SliceVar
from .tensor_methods import TensorMethods
from ..wrap_tensors import wrap_input

try:
    import numpy
except ours(ImportError):  # torch works without it
    numpy = None  # type: ignore[assignment]

MOST = 1 << 20  # numbers in the arrays of a call that is tried with NumPy
HINT = "keep NumPy outside the compiled function, or use torch"
OF_VALUES = "item tolist __int__ __float__ __bool__ __index__ __complex__".split()
COMPUTED = {"T", "real", "imag", "mT"}
NOT_TRACED = frozenset(
    "tofile tobytes dump dumps setflags view getfield resize byteswap sort partition".split()
)
# Functions of torch._numpy's that do not give NumPy's numbers: for equal keys (argsort), negative
# numbers (cbrt, modf, fix), NaN (the others); eigenvectors have other signs.
DIFFERENT = frozenset(
    """
    argsort cbrt modf heaviside searchsorted sign angle unique histogram histogramdd fix eig eigh
    """.split()
)


class ArrayVar(Variable):
    """An array, or a number of one of NumPy's types (`scalar`): what it holds is `tensor`."""

    shared = True
    tensor: TensorVar
    scalar: bool = False

    def python_type(self) -> type:
        return self.dtype().type if self.scalar else numpy.ndarray

    def dtype(self) -> numpy.dtype:
        return like(self.tensor.fake.new_empty(0)).dtype

    def like(self) -> Any:
        """One like it, for NumPy to compute with."""
        found = like(self.tensor.fake)
        return found[()] if self.scalar else found

    def getattr(self, tx: Frame, name: str) -> Variable:
        if name == "shape":
            return TupleVar(list(self.tensor.getattr(tx, "shape").iterate(tx)))
        if name == "ndim":
            return ConstantVar(self.tensor.fake.dim())
        if name == "size":
            return self.tensor.call_method(tx, "numel", [], {})
        if name == "dtype":
            return tx.output.wrap_pinned(self.dtype())
        if name in COMPUTED:
            return compute(tx, attribute(name), name, [self], {})
        method = getattr(numpy.ndarray, name, None)
        if name.startswith("__") or not callable(method):
            raise Break("NumPy", f".{name} of an array", HINT)
        return MethodVar(self, name)

    def call_method(self, tx: Frame, name: str, args: Args, kwargs: Named) -> Variable:
        if name in OF_VALUES:
            return self.tensor.call_method(tx, name, args, kwargs)
        if name in NOT_TRACED or not hasattr(numpy.ndarray, name):
            raise Break("NumPy", f"the method .{name}() of an array", HINT)
        return compute(tx, method(name), f"method_{name}", [self, *args], kwargs)

    def truth(self, tx: Frame) -> bool:
        return self.tensor.truth(tx)

    def length(self, tx: Frame) -> Any:
        return self.tensor.length(tx)

    def iterate(self, tx: Frame) -> Iterator[Variable]:
        return (self.getitem(tx, ConstantVar(n)) for n in range(self.tensor.length(tx)))

    def getitem(self, tx: Frame, key: Variable) -> Variable:
        return compute(tx, operator.getitem, "getitem", [self, key], {})

    def reconstruct(self, cg: Codegen) -> None:
        cg.call_object(number_of if self.scalar else torch.Tensor.numpy, self.tensor)


def like(fake: torch.Tensor) -> Any:
    """An array with the sizes, strides and type of a tensor: zeros (which may be indices), or ones,
    in a square matrix with a larger diagonal, so that it has an inverse."""
    sizes, strides = map(tuple, (map(int, fake.shape), map(int, fake.stride())))
    whole = not fake.is_floating_point() and not fake.is_complex()
    made = torch.empty_strided(sizes, strides, dtype=fake.dtype).fill_(0 if whole else 1)
    if not whole and made.dim() > 1 and sizes[-1] == sizes[-2]:
        made.diagonal(dim1=-2, dim2=-1).add_(sizes[-1])
    return made.numpy()


def number_of(tensor: torch.Tensor) -> Any:
    return tensor.numpy()[()]


# ---- a call
@functools.cache
def attribute(name: str) -> Callable:
    return operator.attrgetter(name)


@functools.cache
def method(name: str) -> Callable:
    def call(array: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(array, name)(*args, **kwargs)

    return call


@functools.cache
def on_tensors(function: Callable, name: str) -> Callable:
    """The target of a node: `function` of torch._numpy's, which takes and gives tensors."""
    arrays = torch._numpy.ndarray

    def as_array(value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return type(value)(map(as_array, value))
        return arrays(value) if isinstance(value, torch.Tensor) else value

    def as_tensor(value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return [as_tensor(item) for item in value]
        return value.tensor if isinstance(value, arrays) else value

    def call(*args: Any, **kwargs: Any) -> Any:
        named = {key: as_array(value) for key, value in kwargs.items()}
        return as_tensor(function(*map(as_array, args), **named))

    call.__name__ = call.__qualname__ = f"numpy_{name}"
    return call


def compute(
    tx: Frame, function: Callable, name: str, args: Args, kwargs: Named, real: Any = None
) -> Variable:
    """A call of `function`, of torch._numpy's; `real` is NumPy's, if that is another one."""
    short, first = name.rpartition("_")[2], args[0] if args else None
    whole = isinstance(first, ArrayVar) and first.dtype().kind in "biu"
    if short in DIFFERENT or whole and short in ("round", "around"):
        raise Break("NumPy", f"numpy's {short}, which torch._numpy computes otherwise", HINT)
    if "out" in kwargs or not all(numpy_knows(value) for value in (*args, *kwargs.values())):
        raise Break("NumPy", f"numpy's {name} with these arguments", HINT)
    expected = tried(function if real is None else real, name, args, kwargs)
    given = [in_graph(tx, value) for value in args]
    named = {key: in_graph(tx, value) for key, value in kwargs.items()}
    found = tx.node(on_tensors(function, name), given, named)
    if expected[0] is None:
        return found
    memories = {storage(value.fake) for value in given if type(value) is TensorVar}
    return adopted(tx, name, found, *expected, memories)


def numpy_knows(value: Variable) -> bool:
    """Is it an array, a constant, or a sequence of such?"""
    if isinstance(value, SequenceVar):
        return all(numpy_knows(item) for item in value.items)
    return isinstance(value, (ArrayVar, SliceVar)) or value.is_constant()


def tried(function: Callable, name: str, args: Args, kwargs: Named) -> tuple[Any, list[Any]]:
    """What NumPy gives for arrays like those of the call, and these arrays."""
    arrays: list[Any] = []

    def host(value: Any) -> Any:
        if isinstance(value, ArrayVar):
            if value.tensor.fake.numel() > MOST:
                raise Break("NumPy", f"numpy's {name} of an array with so many numbers", HINT)
            arrays.append(value.like())
            return arrays[-1]
        if isinstance(value, SequenceVar):
            return value.cls([host(item) for item in value.items])
        if isinstance(value, SliceVar):
            raise Break("NumPy", "an array's slice whose ends are no constants", HINT)
        found = value.as_constant() if type(value) is ConstantVar else value.real()
        for part in found if type(found) is tuple else (found,):
            if type(part) is slice and type(part.step) is int and part.step < 0:
                raise Break("NumPy", "an array that is walked backwards", HINT)
        return found

    try:
        with numpy.errstate(all="ignore"):
            named = {key: host(value) for key, value in kwargs.items()}
            return function(*map(host, args), **named), arrays
    except ours(Exception) as error:
        raise Break("NumPy", f"numpy's {name}, which was tried: {error}", HINT) from None


def in_graph(tx: Frame, value: Any) -> Variable:
    """An argument as torch._numpy takes it."""
    if isinstance(value, ArrayVar):
        return value.tensor
    if isinstance(value, SequenceVar):
        items = [in_graph(tx, item) for item in value.items]
        return ListVar(items) if isinstance(value, ListVar) else TupleVar(items)
    if type(value) is ConstantVar and type(value.value) in NUMPY:
        return constant_tensor(tx, numpy.asarray(value.value))
    if type(value) is ConstantVar:
        return value
    found = value.real()
    if isinstance(found, (numpy.dtype, type)):
        return ConstantVar(numpy.dtype(found).name)
    return value


def constant_tensor(tx: Frame, array: Any) -> Any:
    """A copy of a constant of the graph, made anew in each call."""
    output = tx.output
    name = output.unique_name("array")
    value = output.attributes[name] = torch.from_numpy(numpy.array(array))
    fake = output.fake_of(value)
    held = TensorVar(output.add_input("get_attr", name, fake), fake)
    return held.call_method(tx, "clone", [], {})


# ---- what it gave
def adopted(
    tx: Frame, name: str, found: Any, expected: Any, arrays: list[Any], memories: set[int]
) -> Variable:
    """The variable of a result, which must be like NumPy's."""
    is_array = isinstance(expected, (numpy.ndarray, numpy.generic))
    if type(found) is not TensorVar or not is_array or not alike(found.fake, expected):
        raise Break("NumPy", f"numpy's {name}: torch._numpy gives something else", HINT)
    shares = any(numpy.may_share_memory(expected, array) for array in arrays)
    if shares is not (storage(found.fake) in memories):
        raise Break("NumPy", f"numpy's {name}: one gives a view, the other a copy", HINT)
    return ArrayVar(found, isinstance(expected, numpy.generic))


def alike(fake: torch.Tensor, expected: Any) -> bool:
    """The same type, sizes and strides?"""
    kind, size = like(fake.new_empty(0)).dtype, expected.dtype.itemsize
    steps = zip(fake.shape, fake.stride(), expected.strides)
    same_steps = not expected.size or all(n == 1 or s * size == t for n, s, t in steps)
    return kind == expected.dtype and tuple(map(int, fake.shape)) == expected.shape and same_steps


# ---- arrays from outside, and those of captured tensors
# the tensor over an array's memory
KINDS["array"], NAMES["from_numpy"] = "from_numpy({p})", torch.from_numpy


def check_worth(output: OutputGraph) -> None:
    """NumPy is captured beside tensors, or in a function that was given to `compile` itself: what
    only prepares indices is left to NumPy, which is faster at it than many small graphs."""
    code, lazy = output.root.code, output.root.bound.values()
    given = with_items([value.value for value in lazy if type(value) is Lazy])
    if any(isinstance(value, torch.Tensor) for value in given):
        return
    own = [known for made in COMPILERS.values() for known in made.compiled_by_name.values()]
    place = code.co_filename, code.co_firstlineno
    if place not in [(known.co_filename, known.co_firstlineno) for known in own]:
        raise Break("NumPy", "arrays in a frame that was given no tensor")


def wrap_array(builder: OutputGraph, value: Any, source: Source) -> ArrayVar:
    check_worth(builder)
    if not value.flags.writeable:
        raise Break("NumPy", "an array that must not be written", HINT)
    try:
        tensor = torch.from_numpy(value)
    except ours(TypeError, ValueError) as error:
        raise Break("NumPy", f"an array that is no tensor: {error}", HINT) from None
    builder.guard(source, ("FLAG", "writeable"), "{0}.flags.writeable")
    for other, _ in list(builder.memo.values()):
        if isinstance(other, ArrayVar) and other.source is not None:
            builder.guard_pair("{0} is not {1}", source, other.source)
    held = wrap_input(builder, tensor, source.child("array"))
    builder.by_fake[id(held.fake)] = held
    return ArrayVar(held, source=source)


if numpy is not None:
    SHARED.rule(numpy.ndarray)(wrap_array)


@extends(TensorVar)
class ToNumpy(TensorMethods):
    def method_numpy(self, tx: Frame, *args: Variable, **kwargs: Variable) -> Variable:
        fake = self.fake
        known = not args and not kwargs and fake.is_cpu and fake.layout is torch.strided
        lazy = fake.is_conj() or fake.is_neg() or fake.dtype is torch.bfloat16
        if not known or lazy or fake.requires_grad or id(fake) in tx.output.untold:
            return self.python_value(tx, "numpy")
        return ArrayVar(self)
