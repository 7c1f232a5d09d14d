"""Chapter 05: where values come from, and what must hold next time.

A *source* is the text of an expression that finds a value again in the next call: `a0` is the
first parameter, `F` the function itself, and so on outwards: `a0.layers[1].weight`.

`Guards` collects what the capture has relied on.  Each check is an expression over sources;
together they are one function, which the frame hook asks before it runs what was compiled:

    >>> guards = Guards(f)
    >>> guards.equals("a1", 3)
    >>> guards.build()(f, x, 4)
    False

No name of the user's can be seen by a guard, or hide one of its own: parameters are `a0`, `a1`,
..., and all else lies in a dictionary that the guard has for itself.

`Capture` hands out symbolic values for what was found at a source, and writes the guards for it.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from minidynamo.bytecode.assembler import parameter_count

from .effects import Journal, Outside
from .graph import Graph, Node, Refused
from .sizes import Shapes, Size

CONSTANTS = (int, float, bool, str, type(None), torch.dtype)


def same(value: Any, expected: Any) -> bool:
    """Of one type and one value; 0.0 and -0.0 are two values."""
    return type(value) is type(expected) and value == expected and repr(value) == repr(expected)


def tensor_fits(
    tensor: Any, dtype: torch.dtype, shape: tuple[int | None, ...], requires_grad: bool
) -> bool:
    """Is it a plain tensor on the CPU (a Parameter is one, other classes are not, and `is_neg` is
    not), with this dtype and shape, and gradients wanted or not?  None: any size over 1."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.device.type != "cpu":
        return False
    if (tensor.dtype, tensor.requires_grad) != (dtype, requires_grad) or tensor.is_neg():
        return False
    return tensor.ndim == len(shape) and all(
        wanted == size or wanted is None and size > 1
        for wanted, size in zip(shape, tensor.shape, strict=True)
    )


def modes() -> tuple[bool, bool, bool]:
    """The process's state that decides over results: gradients, autocast, hooks of all modules."""
    hooks = bool(torch.nn.modules.module._has_any_global_hook())
    return torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), hooks


class Guards:
    """Checks over the parameters of one function."""

    def __init__(self, function: types.FunctionType) -> None:
        self.names: dict[str, Any] = {"same": same, "tensor_fits": tensor_fits, "modes": modes}
        arguments = (f"a{number}" for number in range(parameter_count(function.__code__)))
        self.parameters = ", ".join(["F", *arguments])
        self.checks: dict[str, None] = {}  # a set that keeps its order
        self.identical("F.__globals__", function.__globals__)
        if function.__closure__:
            self.identical("F", function)
        if any(modes()[1:]):
            raise Refused("autocast, or hooks of all modules")
        self.add(f"modes() == {modes()}")

    def name(self, value: Any) -> str:
        """A name by which checks may speak of this very object (which lives on with them)."""
        name = f"c{id(value)}"
        self.names[name] = value
        return name

    def add(self, check: str) -> None:
        self.checks.setdefault(check)

    def identical(self, source: str, value: Any) -> None:
        self.add(f"{source} is {self.name(value)}")

    def equals(self, source: str, value: Any) -> None:
        """Add the check that `same` says yes.  Refused for what does not equal itself (NaN)."""
        if value != value:
            raise Refused("a number that does not equal itself")
        self.add(f"same({source}, {self.name(value)})")

    def tensor(self, source: str, tensor: torch.Tensor, shape: tuple[int | None, ...]) -> None:
        """Add the check that `tensor_fits` says yes for what this tensor is; of its sizes `shape`
        counts.  Refused for a tensor that does not fit itself: it is not plain."""
        if not tensor_fits(tensor, tensor.dtype, tuple(tensor.shape), tensor.requires_grad):
            raise Refused(f"a tensor that is not plain: {type(tensor).__name__}, {tensor.device}")
        dtype = self.name(tensor.dtype)
        self.add(f"tensor_fits({source}, {dtype}, {shape!r}, {tensor.requires_grad})")

    def function_of_arguments(self, expression: str) -> Callable:
        """`expression`, a text over sources, as a function of what a guard is given."""
        return eval(f"lambda {self.parameters}: {expression}", self.names)

    def build(self) -> Callable[..., bool]:
        """All checks as one function.  A source that cannot be found any more is a failed check."""
        check = self.function_of_arguments(" and ".join(self.checks))

        def guard(*arguments: Any) -> bool:
            try:
                return check(*arguments)
            except (AttributeError, LookupError, TypeError):
                return False

        return guard


@dataclass
class Bound:
    """A function, to be called with `first` before its other arguments."""

    function: Any
    first: Any


class Capture:
    """What a frame shares with those that are inlined into it: the graph, its inputs and guards.

    dynamic: (source, dimension) of the sizes that are symbols."""

    def __init__(self, function: types.FunctionType, dynamic: set[tuple[str, int]]) -> None:
        self.graph = Graph()
        self.guards = Guards(function)
        self.journal = Journal()
        self.dynamic = dynamic
        self.tensors: dict[str, torch.Tensor] = {}  # source -> example of the graph's inputs
        self.sizes: dict[str, str] = {}  # name of a symbol -> its source
        self.facts: list[str] = []
        # id of an object from outside -> (its value here, its source, itself)
        self.known: dict[int, tuple[Any, str, Any]] = {}

    @property
    def shapes(self) -> Shapes:
        return {source: tuple(tensor.shape) for source, tensor in self.tensors.items()}

    def wrap(self, value: Any, source: str) -> Any:
        """The symbolic value of something that was read from `source`, with the guards for it.
        One of `CONSTANTS` is itself.  What was met before, under another source, is the same value
        again: that the two sources give one object is guarded.  Of everything else `tensor` or
        `object` make a value, once; `known` remembers it."""
        if isinstance(value, CONSTANTS):
            self.guards.equals(source, value)
            return value
        if id(value) in self.known:
            found, other, _ = self.known[id(value)]
            self.guards.add(f"{source} is {other}")
            return found
        make = self.tensor if isinstance(value, torch.Tensor) else self.object
        found = make(value, source)
        self.known[id(value)] = found, source, value
        return found

    def object(self, value: Any, source: str) -> Outside:
        """Anything else, as an `Outside`.  Guarded: modules, classes and functions are themselves
        (`identical`), and a Python function has its `__code__` and `__defaults__` still; of every
        other object the type stays."""
        if isinstance(value, types.FunctionType):
            self.guards.identical(f"{source}.__code__", value.__code__)
            self.guards.identical(f"{source}.__defaults__", value.__defaults__)
        if isinstance(
            value, (types.ModuleType, type, types.BuiltinFunctionType, types.FunctionType)
        ):
            self.guards.identical(source, value)
        else:
            self.guards.identical(f"type({source})", type(value))
        return Outside(value, source)

    def tensor(self, value: torch.Tensor, source: str) -> Node:
        """A new input of the graph; `tensors` remembers the example.  A size over 1 that is in
        `dynamic` becomes a `symbol`.  The guard on the tensor leaves symbols open (None)."""
        shape = list(value.shape)
        for dim, size in enumerate(shape):
            if size > 1 and (source, dim) in self.dynamic:
                shape[dim] = self.symbol(size, f"{source}.shape[{dim}]")
        fixed = tuple(None if isinstance(size, Size) else size for size in shape)
        self.guards.tensor(source, value, fixed)
        self.tensors[source] = value
        return self.graph.input(tuple(shape), value.dtype)

    def symbol(self, size: int, source: str) -> Size:
        """A `Size` with the next of the names s0, s1, ... and `facts`; `sizes` says where the
        number is found again."""
        name = f"s{len(self.sizes)}"
        self.sizes[name] = source
        return Size(size, name, self.facts)

    def items(self, value: Any) -> Any:
        """The elements of a list, tuple or ModuleList from outside, as they are now; looked up once
        (`value.items`), their number guarded.  Refused for other objects; other values are given
        back as they are."""
        if not isinstance(value, Outside):
            return value
        if value.items is None:
            found, source = value.value, value.source
            if type(found) not in (list, tuple, torch.nn.ModuleList):
                raise Refused(f"the elements of {type(found).__name__}")
            self.guards.add(f"len({source}) == {len(found)}")
            items = [self.wrap(item, f"{source}[{n}]") for n, item in enumerate(found)]
            value.items = tuple(items) if type(found) is tuple else items
        return value.items

    def attribute(self, value: Outside, name: str) -> Any:
        """`value.name`, as it is now."""
        if name in value.written:
            return value.written[name]
        if isinstance(inspect.getattr_static(type(value.value), name, None), property):
            raise Refused(f"the property {name}")
        found = getattr(value.value, name)
        if isinstance(found, types.MethodType) and found.__self__ is value.value:
            return Bound(self.wrap(found.__func__, f"{value.source}.{name}.__func__"), value)
        if isinstance(found, types.BuiltinMethodType) and found.__self__ is value.value:
            return Bound(getattr(type(value.value), name), value)
        return self.wrap(found, f"{value.source}.{name}")
