"""Chapter 04: bytecode, evaluated on symbols.

A `Machine` runs one frame's bytecode on a stack of its own.  On that stack lie

    Node      a tensor, of which only shape and dtype are known
    Outside   an object that existed before the frame ran (effects.py)
    Bound     a function together with its first argument
    others    plain Python values: constants, and lists, tuples, dicts that the frame has made

What involves tensors is written into the graph, everything else happens at once.  What the machine
does not know raises `Refused`.
"""

from __future__ import annotations

import builtins
import inspect
import math
import operator
import sys
import types
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from minidynamo.bytecode import canonical, disassemble

from . import graph as nodes
from .effects import Journal, Outside
from .graph import Graph, Node, Refused
from .guards import CONSTANTS, Guards
from .sizes import ARITHMETIC, COMPARISONS, Shape, Size, plain

NULL = types.SimpleNamespace()  # CPython's mark beside the callee
OPERATORS = ARITHMETIC | {"/": "truediv", "@": "matmul", "**": "pow"}
BINARY = {symbol: getattr(operator, name) for symbol, name in OPERATORS.items()}
COMPARE = {symbol: getattr(operator, name) for symbol, name in COMPARISONS.items()}
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
# functions of torch -> what they write into the graph
SIMPLE = ("exp", "log", "tanh", "sqrt", "relu", "sum", "mean", "amax")
COMPOSED = ("softmax", "layer_norm", "gelu", "linear", "embedding", "cross_entropy")
TORCH = {getattr(torch, name): getattr(Node, name) for name in SIMPLE}
TORCH |= {getattr(F, name): getattr(nodes, name) for name in COMPOSED}
TORCH |= {torch.matmul: operator.matmul, torch.softmax: nodes.softmax, F.relu: Node.relu}
METHODS = {
    name: function
    for name, function in vars(Node).items()
    if inspect.isfunction(function) and not name.startswith("_") and name != "dims"
} | {"softmax": nodes.softmax}
# functions that are called at once if no argument is a tensor
PLAIN = {len, range, min, max, abs, int, float, bool, tuple, list, enumerate, zip, math.sqrt}


@dataclass
class Bound:
    """`first.name`: a function, to be called with `first` before its other arguments."""

    function: Any
    first: Any
    name: str


@dataclass
class Loop:
    """An iterator over values that are known: a `for` loop is unrolled."""

    items: list
    position: int = 0


class Capture:
    """What a frame shares with those that are inlined into it: the graph, its inputs and guards.

    dynamic: (source, dimension) of the sizes that are symbols."""

    def __init__(self, function: types.FunctionType, dynamic: set[tuple[str, int]]) -> None:
        self.graph = Graph()
        self.guards = Guards(function)
        self.journal = Journal()
        self.dynamic = dynamic
        self.tensors: list[str] = []  # the sources of the graph's inputs
        self.examples: list[torch.Tensor] = []
        self.sizes: dict[str, str] = {}  # name of a symbol -> its source
        self.facts: list[str] = []
        # id of an object from outside -> (its value here, its source, itself)
        self.known: dict[int, tuple[Any, str, Any]] = {}

    def wrap(self, value: Any, source: str) -> Any:
        """The symbolic value of something that was read from `source`, with the guards for it."""
        if isinstance(value, CONSTANTS):
            self.guards.equals(source, value)
            return value
        if id(value) in self.known:
            found, other, _ = self.known[id(value)]
            self.guards.add(f"{source} is {other}")
            return found
        made = self._new(value, source)
        self.known[id(value)] = made, source, value
        return made

    def _new(self, value: Any, source: str) -> Any:
        if isinstance(value, torch.Tensor):
            return self.tensor(value, source)
        outside = Outside(value, source)
        if isinstance(value, (types.ModuleType, type, types.BuiltinFunctionType)):
            self.guards.identical(source, value)
        elif isinstance(value, types.FunctionType):
            self.guards.identical(source, value)
            self.guards.identical(f"{source}.__code__", value.__code__)
        else:
            self.guards.has_type(source, value)
        return outside

    def tensor(self, value: torch.Tensor, source: str) -> Node:
        """A new input of the graph."""
        shape: list[int] = []
        for dim, size in enumerate(value.shape):
            is_symbol = size > 1 and (source, dim) in self.dynamic
            shape.append(self.symbol(size, f"{source}.shape[{dim}]") if is_symbol else size)
        fixed = tuple(None if isinstance(size, Size) else size for size in shape)
        self.guards.tensor(source, value, fixed)
        self.tensors.append(source)
        self.examples.append(value)
        node = self.graph.input(tuple(shape), value.dtype)
        node.contiguous = value.is_contiguous()
        return node

    def symbol(self, value: int, source: str) -> Size:
        name = f"s{len(self.sizes)}"
        self.sizes[name] = source
        return Size(value, name, self.facts)

    def rest_of_loop(self, value: Any, source: str) -> Loop:
        """What a `for` loop has left that was split by a break: the iterator is ours."""
        state = value.__reduce__()
        if len(state) < 3:
            self.guards.add(f"len({source}.__reduce__()) == 2")
            return Loop([])
        _, (items,), position = state
        source = f"{source}.__reduce__()"
        self.guards.add(f"len({source}) == 3 and {source}[2] == {position}")
        self.guards.add(f"len({source}[1][0]) == {len(items)}")
        places = range(position, len(items))
        return Loop([self.wrap(items[place], f"{source}[1][0][{place}]") for place in places])

    def items(self, value: Any) -> Any:
        """The elements of a list, tuple, dict or ModuleList from outside, as they are now."""
        if not isinstance(value, Outside):
            return value
        if value.items is None:
            kind = type(value.value)
            if kind not in (list, tuple, dict, torch.nn.ModuleList):
                raise Refused(f"the elements of {kind.__name__}")
            keys = tuple(value.value) if kind is dict else len(value.value)
            self.guards.add(f"{'tuple' if kind is dict else 'len'}({value.source}) == {keys!r}")
            value.items = self._read(value)
        return value.items

    def _read(self, value: Outside) -> Any:
        if isinstance(value.value, dict):
            if not all(isinstance(key, str) for key in value.value):
                raise Refused("a dict whose keys are not strings")
            pairs = value.value.items()
            return {key: self.wrap(item, f"{value.source}[{key!r}]") for key, item in pairs}
        read = [self.wrap(x, f"{value.source}[{n}]") for n, x in enumerate(value.value)]
        return tuple(read) if isinstance(value.value, tuple) else read

    def attribute(self, value: Any, name: str) -> Any:
        """`value.name`"""
        if isinstance(value, Node):
            if name == "shape":
                return Shape(value.shape)
            if name in ("dtype", "ndim"):
                return getattr(value, name)
            if name == "T":
                return value.transpose(0, 1)
            if name in METHODS:
                return Bound(METHODS[name], value, name)
            if not callable(getattr(torch.Tensor, name, None)):
                raise Refused(f"the attribute {name} of a tensor")
            return Bound(getattr(torch.Tensor, name), value, name)
        if isinstance(value, (list, dict)) and name in ("append", "get"):
            return Bound(getattr(type(value), name), value, name)
        if not isinstance(value, Outside):
            raise Refused(f"the attribute {name} of {type(value).__name__}")
        if name in value.written:
            return value.written[name]
        return self._attribute_from_outside(value, name)

    def _attribute_from_outside(self, value: Outside, name: str) -> Any:
        if isinstance(inspect.getattr_static(type(value.value), name, None), property):
            raise Refused(f"the property {name}")
        try:
            found = getattr(value.value, name)
        except AttributeError as error:
            raise Refused(f"no attribute {name}") from error
        source = f"{value.source}.{name}"
        if isinstance(found, types.MethodType):
            self.guards.identical(f"{source}.__func__", found.__func__)
            return Bound(Outside(found.__func__, f"{source}.__func__"), value, name)
        if isinstance(found, types.BuiltinMethodType) and found.__self__ is value.value:
            return Bound(getattr(type(value.value), name), value, name)
        return self.wrap(found, source)


class Machine:
    """Evaluates the bytecode of one function.  `run` returns the symbolic value of its result."""

    def __init__(self, capture: Capture, code: types.CodeType, function: Any, source: str) -> None:
        if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE) or code.co_cellvars:
            raise Refused(f"{code.co_name} is a generator, or makes functions")
        self.capture = capture
        self.function = function
        self.source = source
        self.native = disassemble(code)
        self.operations, self.first = canonical(self.native)
        self.locals: dict[str, Any] = {}
        self.stack: list[Any] = []
        self.pc = 0
        self.trace: list[tuple[str, list]] = []

    def run(self) -> Any:
        while True:
            if self.step():
                return self.stack.pop()

    def step(self) -> bool:
        """One operation; True at the end."""
        operation = self.operations[self.pc]
        handler = getattr(self, operation.op, None)
        if handler is None or operation.exc:
            raise Refused(f"the instruction {operation.op}, or a try or with statement")
        self.trace.append((str(operation), list(self.stack)))
        self.pc += 1
        return bool(handler(operation.arg))

    def pop(self, count: int) -> list[Any]:
        values = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return values

    # --- variables and constants ------------------------------------------------------------------
    def LOAD_FAST(self, name: str) -> None:
        """Push a local.  Refused if there is none of that name yet."""
        if name not in self.locals:
            raise Refused(f"{name} may be unbound")
        self.stack.append(self.locals[name])

    def STORE_FAST(self, name: str) -> None:
        """Pop it into a local."""
        self.locals[name] = self.stack.pop()

    def LOAD_CONST(self, value: Any) -> None:
        self.stack.append(value)

    def LOAD_GLOBAL(self, name: str) -> None:
        variables, source = self.function.__globals__, f"{self.source}.__globals__"
        if name in variables:
            self.stack.append(self.capture.wrap(variables[name], f"{source}[{name!r}]"))
            return
        self.capture.guards.add(f"{name!r} not in {source}")
        self.stack.append(getattr(builtins, name))

    def LOAD_DEREF(self, name: str) -> None:
        place = self.function.__code__.co_freevars.index(name)
        cell = self.function.__closure__[place]
        source = f"{self.source}.__closure__[{place}].cell_contents"
        self.stack.append(self.capture.wrap(cell.cell_contents, source))

    # --- the stack itself -------------------------------------------------------------------------
    def PUSH_NULL(self, _: Any) -> None:
        self.stack.append(NULL)

    def POP_TOP(self, _: Any) -> None:
        self.stack.pop()

    def COPY(self, depth: int) -> None:
        """Push the value that is the depth-th from above once more."""
        self.stack.append(self.stack[-depth])

    def SWAP(self, depth: int) -> None:
        """Exchange the top and the value that is the depth-th from above."""
        self.stack[-1], self.stack[-depth] = self.stack[-depth], self.stack[-1]

    def RETURN_VALUE(self, _: Any) -> bool:
        return True

    # --- attributes, elements, containers ---------------------------------------------------------
    def LOAD_ATTR(self, name: str) -> None:
        self.stack.append(self.capture.attribute(self.stack.pop(), name))

    def LOAD_METHOD(self, name: str) -> None:
        callee = self.capture.attribute(self.stack.pop(), name)
        # in CPython's order, in which a frame that is split puts them back
        self.stack += [callee, NULL] if sys.version_info >= (3, 13) else [NULL, callee]

    def STORE_ATTR(self, name: str) -> None:
        value, target = self.pop(2)
        is_plain = isinstance(target, Outside) and type(target.value).__setattr__ in (
            object.__setattr__,
            torch.nn.Module.__setattr__,
        )
        if not is_plain or isinstance(value, (Outside, Node)):
            raise Refused(f"writing the attribute {name}")
        self.capture.attribute(target, name)  # what it is now is guarded, and shadows nothing
        self.capture.journal.set_attribute(target, name, value)

    def BINARY_SUBSCR(self, _: Any) -> None:
        container, key = self.pop(2)
        if isinstance(container, Node) or isinstance(key, (Node, Outside)):
            raise Refused("an element of a tensor")
        self.stack.append(self.capture.items(container)[plain(key)])

    def STORE_SUBSCR(self, _: Any) -> None:
        value, container, key = self.pop(3)
        if isinstance(container, Node) or isinstance(key, (Node, Outside)):
            raise Refused("writing an element of a tensor")
        self.capture.items(container)
        journal = self.capture.journal
        journal.set_item(journal.items_of(container), plain(key), value)

    def BUILD_TUPLE(self, count: int) -> None:
        """Pop so many values, push them as one tuple, the top last (`pop` keeps their order)."""
        self.stack.append(tuple(self.pop(count)))

    def BUILD_LIST(self, count: int) -> None:
        self.stack.append(self.pop(count))

    def BUILD_SLICE(self, count: int) -> None:
        self.stack.append(slice(*map(plain, self.pop(count))))

    def UNPACK_SEQUENCE(self, count: int) -> None:
        """Pop a sequence and push its items, the first on top.  Refused for a tensor, or for
        another number of items (`capture.items` gives them)."""
        value = self.stack.pop()
        if isinstance(value, Node) or len(self.capture.items(value)) != count:
            raise Refused("unpacking of a tensor, or of another number of values")
        self.stack += reversed(self.capture.items(value))

    # --- operators --------------------------------------------------------------------------------
    def BINARY_OP(self, symbol: str) -> None:
        """Pop two, push the result (`BINARY`).  Refused: an operator that is not there, `+=` and
        its like on a tensor or list, which write, and objects from outside.  Sizes stay symbols
        for + - * // % only; for others they become plain numbers, unless the left is a tensor."""
        left, right = self.pop(2)
        is_write = symbol.endswith("=") and isinstance(left, (Node, list))
        if is_write or symbol.rstrip("=") not in BINARY or isinstance(left, Outside):
            raise Refused(f"the operator {symbol}")
        if symbol not in ARITHMETIC and not isinstance(left, Node):
            left, right = plain(left), plain(right)
        self.stack.append(BINARY[symbol.rstrip("=")](left, right))

    def UNARY_OP(self, symbol: str) -> None:
        value = self.stack.pop()
        if symbol == "not":
            self.stack.append(not self.truth(value))
        elif symbol == "-" and not isinstance(value, Outside):
            self.stack.append(-plain(value))
        else:
            raise Refused(f"the operator {symbol}")

    def COMPARE_OP(self, symbol: str) -> None:
        """Pop two, push whether the lower one is < (or ..., `COMPARE`) the upper one.  Refused for
        nodes and objects from outside; sizes stay symbols."""
        left, right = self.pop(2)
        if any(isinstance(value, (Node, Outside)) for value in (left, right)):
            raise Refused("a comparison of tensors or objects")
        self.stack.append(COMPARE[symbol](left, right))

    def IS_OP(self, inverted: int) -> None:
        left, right = self.pop(2)
        if left is not None and right is not None:
            raise Refused("`is` between objects")
        self.stack.append((left is right) != bool(inverted))

    # --- jumps ------------------------------------------------------------------------------------
    def truth(self, value: Any) -> bool:
        if isinstance(value, (Node, Outside, Bound)):
            raise Refused(f"a branch on {'a tensor' if isinstance(value, Node) else 'an object'}")
        return bool(plain(value))

    def JUMP(self, target: int) -> None:
        self.pc = target

    def POP_JUMP_IF_FALSE(self, target: int) -> None:
        """Pop; go on at `target` if it is false (`truth` answers, or refuses)."""
        if not self.truth(self.stack.pop()):
            self.pc = target

    def POP_JUMP_IF_TRUE(self, target: int) -> None:
        if self.truth(self.stack.pop()):
            self.pc = target

    def POP_JUMP_IF_NONE(self, target: int) -> None:
        if self.stack.pop() is None:
            self.pc = target

    def POP_JUMP_IF_NOT_NONE(self, target: int) -> None:
        if self.stack.pop() is not None:
            self.pc = target

    def GET_ITER(self, _: Any) -> None:
        """Pop a sequence, push a `Loop` over a list of its items (`capture.items`).  Refused for a
        tensor."""
        value = self.stack.pop()
        if isinstance(value, Node):
            raise Refused("a loop over a tensor")
        self.stack.append(Loop(list(self.capture.items(value))))

    def FOR_ITER(self, target: int) -> None:
        """The top is a `Loop`.  Push its next item, with a new Loop that is one further below it;
        or pop it and go on at `target`.  (A Loop is never changed: the frame may be split
        here.)"""
        loop = self.stack[-1]
        if loop.position < len(loop.items):
            self.stack[-1] = Loop(loop.items, loop.position + 1)
            self.stack.append(loop.items[loop.position])
        else:
            self.stack.pop()
            self.pc = target

    # --- calls ------------------------------------------------------------------------------------
    def CALL(self, count: int) -> None:
        self._call_with(self.pop(count), {})

    def CALL_KW(self, count: int) -> None:
        """On top lies a tuple of names, below it `count` arguments, of which the last ones have
        those names.  `_call_with` does the rest."""
        names = self.stack.pop()
        values = self.pop(count)
        first = len(values) - len(names)
        self._call_with(values[:first], dict(zip(names, values[first:], strict=True)))

    def _call_with(self, args: list, kwargs: dict[str, Any]) -> None:
        """Pop the two values below the arguments: NULL and the callee, in either order, or a
        function and, above it, its first argument.  Push what `call` returns."""
        below, above = self.pop(2)
        if below is NULL:
            self.stack.append(self.call(above, args, kwargs))
        elif above is NULL:
            self.stack.append(self.call(below, args, kwargs))
        else:
            self.stack.append(self.call(below, [above, *args], kwargs))

    def call(self, callee: Any, args: list, kwargs: dict[str, Any]) -> Any:
        if isinstance(callee, Bound):
            return self.call(callee.function, [callee.first, *args], kwargs)
        function = callee.value if isinstance(callee, Outside) else callee
        values = [*args, *kwargs.values()]
        if isinstance(function, torch.nn.Module):
            return self._call_module(callee, args, kwargs)
        if function in (list.append, dict.get):
            return self._container_method(function, args)
        if function in TORCH or function in METHODS.values():
            return self._tensor_operation(TORCH.get(function, function), args, kwargs)
        if function in PLAIN and not any(isinstance(v, (Node, Bound)) for v in values):
            items = [plain(self.capture.items(v)) for v in args]
            return function(*items, **kwargs)
        if isinstance(callee, Outside) and isinstance(function, types.FunctionType):
            return self.inline(callee, args, kwargs)
        raise Refused(f"a call of {getattr(function, '__name__', function)}")

    def _tensor_operation(self, function: Any, args: list, kwargs: dict[str, Any]) -> Any:
        """Write it into the graph.  An argument that the operation here does not have is one that
        only torch's own knows."""
        if not isinstance(args[0], Node):
            raise Refused("an operation of torch whose first argument is no tensor")
        try:
            inspect.signature(function).bind(*args, **kwargs)
        except (TypeError, ValueError) as error:
            raise Refused(f"{function.__name__}: {error}") from error
        args = [self.capture.items(a) if isinstance(a, Outside) else a for a in args]
        return function(*args, **kwargs)

    def _container_method(self, function: Any, args: list) -> Any:
        self.capture.items(args[0])
        if function is dict.get:
            return self.capture.items(args[0]).get(*args[1:])
        journal = self.capture.journal
        journal.append(journal.items_of(args[0]), args[1])
        return None

    def _call_module(self, module: Outside, args: list, kwargs: dict[str, Any]) -> Any:
        for hooks in HOOKS:
            if getattr(module.value, hooks):
                raise Refused("a module with hooks")
            self.capture.guards.add(f"len({module.source}.{hooks}) == 0")
        forward = self.capture.attribute(module, "forward")
        return self.call(forward, args, kwargs)

    def inline(self, callee: Outside, args: list, kwargs: dict[str, Any]) -> Any:
        """Evaluate a Python function by a machine of its own that writes into the same graph."""
        function = callee.value
        inner = Machine(self.capture, function.__code__, function, callee.source)
        try:
            bound = inspect.signature(function).bind(*args, **kwargs)
        except TypeError as error:
            raise Refused(str(error)) from error
        for name, parameter in inspect.signature(function).parameters.items():
            if name in bound.arguments:
                inner.locals[name] = bound.arguments[name]
            elif parameter.default is not parameter.empty:
                inner.locals[name] = self._default(callee, name)
            else:
                inner.locals[name] = () if parameter.kind is parameter.VAR_POSITIONAL else {}
        return inner.run()

    def _default(self, callee: Outside, name: str) -> Any:
        """The default value of a parameter, which the program may replace."""
        function, code = callee.value, callee.value.__code__
        if name in (function.__kwdefaults__ or {}):
            source = f"{callee.source}.__kwdefaults__[{name!r}]"
            return self.capture.wrap(function.__kwdefaults__[name], source)
        place = code.co_varnames.index(name) - code.co_argcount
        source = f"{callee.source}.__defaults__[{place}]"
        return self.capture.wrap(function.__defaults__[place], source)
