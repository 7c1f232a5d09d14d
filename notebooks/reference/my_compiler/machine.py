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
from .sizes import ARITHMETIC, COMPARISONS, Size, plain

NULL = object()  # CPython's mark beside the callee
OPERATORS = ARITHMETIC | {"/": "truediv", "@": "matmul", "**": "pow"}
BINARY = {symbol: getattr(operator, name) for symbol, name in OPERATORS.items()}
COMPARE = {symbol: getattr(operator, name) for symbol, name in COMPARISONS.items()}
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
# what writes into the graph: methods of a tensor, functions of torch
METHODS = {
    name: function
    for name, function in vars(Node).items()
    if inspect.isfunction(function) and not name.startswith("_") and name not in ("dims", "expand")
} | {"softmax": nodes.softmax}
SIMPLE = ("exp", "log", "tanh", "sqrt", "relu", "sum", "mean", "amax", "matmul", "softmax")
COMPOSED = ("relu", "softmax", "layer_norm", "gelu", "linear", "embedding", "cross_entropy")
TORCH = {function: function for function in METHODS.values()} | {torch.matmul: operator.matmul}
TORCH |= {getattr(torch, name): METHODS[name] for name in SIMPLE if name in METHODS}
TORCH |= {getattr(F, name): getattr(nodes, name, METHODS.get(name)) for name in COMPOSED}
# functions that are called at once if no argument is a tensor
PLAIN = {len, range, min, max, abs, int, float, bool, tuple, list, enumerate, zip, math.sqrt}
SETATTR = (object.__setattr__, torch.nn.Module.__setattr__)


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

    def wrap(self, value: Any, source: str) -> Any:
        """The symbolic value of something that was read from `source`, with the guards for it."""
        if isinstance(value, CONSTANTS):
            self.guards.equals(source, value)
            return value
        if id(value) in self.known:
            found, other, _ = self.known[id(value)]
            self.guards.add(f"{source} is {other}")
            return found
        made = self.tensor if isinstance(value, torch.Tensor) else self.object
        self.known[id(value)] = made(value, source), source, value
        return self.known[id(value)][0]

    def object(self, value: Any, source: str) -> Outside:
        if isinstance(value, (types.ModuleType, type, types.BuiltinFunctionType)):
            self.guards.identical(source, value)
        elif isinstance(value, types.FunctionType):
            self.guards.identical(source, value)
            self.guards.identical(f"{source}.__code__", value.__code__)
            self.guards.identical(f"{source}.__defaults__", value.__defaults__)
        else:
            self.guards.has_type(source, value)
        return Outside(value, source)

    def tensor(self, value: torch.Tensor, source: str) -> Node:
        """A new input of the graph."""
        shape = list(value.shape)
        for dim, size in enumerate(shape):
            if size > 1 and (source, dim) in self.dynamic:
                name = f"s{len(self.sizes)}"
                self.sizes[name] = f"{source}.shape[{dim}]"
                shape[dim] = Size(size, name, self.facts)
        fixed = tuple(None if isinstance(size, Size) else size for size in shape)
        self.guards.tensor(source, value, fixed)
        self.tensors[source] = value
        node = self.graph.input(tuple(shape), value.dtype)
        node.contiguous = value.is_contiguous()
        return node

    def items(self, value: Any) -> Any:
        """The elements of a list, tuple, dict or ModuleList from outside, as they are now."""
        if not isinstance(value, Outside):
            return value
        if value.items is None:
            value.items = self._read(value.value, value.source)
        return value.items

    def _read(self, found: Any, source: str) -> Any:
        if type(found) is dict and all(isinstance(key, str) for key in found):
            self.guards.add(f"tuple({source}) == {tuple(found)!r}")
            return {key: self.wrap(item, f"{source}[{key!r}]") for key, item in found.items()}
        if type(found) not in (list, tuple, torch.nn.ModuleList):
            raise Refused(f"the elements of {type(found).__name__}")
        self.guards.add(f"len({source}) == {len(found)}")
        read = [self.wrap(item, f"{source}[{n}]") for n, item in enumerate(found)]
        return tuple(read) if isinstance(found, tuple) else read

    def attribute(self, value: Any, name: str) -> Any:
        """`value.name`"""
        if isinstance(value, Node) and name in METHODS:
            return Bound(METHODS[name], value)
        if isinstance(value, Node) and name == "shape":
            return torch.Size(value.shape)
        if isinstance(value, list) and name == "append":
            return Bound(list.append, value)
        if not isinstance(value, Outside):
            raise Refused(f"the attribute {name} of {type(value).__name__}")
        if name in value.written:
            return value.written[name]
        if isinstance(inspect.getattr_static(type(value.value), name, None), property):
            raise Refused(f"the property {name}")
        found = getattr(value.value, name)
        source = f"{value.source}.{name}"
        if isinstance(found, types.MethodType) and found.__self__ is value.value:
            function = f"{source}.__func__"
            return Bound(self.wrap(found.__func__, function), value)
        if isinstance(found, types.BuiltinMethodType) and found.__self__ is value.value:
            return Bound(getattr(type(value.value), name), value)
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
        self.reason = ""  # why it has stopped before the end

    def run(self) -> Any:
        while not self.step():
            pass
        return self.stack.pop()

    def step(self) -> bool:
        """One operation; True at the end."""
        operation = self.operations[self.pc]
        handler = getattr(self, operation.op, None)
        if handler is None or operation.exc:
            raise Refused(f"the instruction {operation.op}, or a try or with statement")
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
        found = self.function.__closure__[place].cell_contents
        source = f"{self.source}.__closure__[{place}].cell_contents"
        self.stack.append(self.capture.wrap(found, source))

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
        self.stack += [NULL, callee]

    def STORE_ATTR(self, name: str) -> None:
        value, target = self.pop(2)
        is_plain = isinstance(target, Outside) and type(target.value).__setattr__ in SETATTR
        if not is_plain or isinstance(value, (Outside, Node, Bound)):
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

    def UNARY_NEGATIVE(self, _: Any) -> None:
        self.stack.append(-plain(self.stack.pop()))

    def UNARY_OP(self, symbol: str) -> None:
        """Where all of minidynamo is loaded, its translation has this name for four operators."""
        if symbol != "-":
            raise Refused(f"the operator {symbol}")
        self.UNARY_NEGATIVE(None)

    def COMPARE_OP(self, symbol: str) -> None:
        """Pop two, push whether the lower one is < (or ..., `COMPARE`) the upper one.  Refused for
        nodes and objects from outside; sizes stay symbols."""
        left, right = self.pop(2)
        if any(isinstance(value, (Node, Outside)) for value in (left, right)):
            raise Refused("a comparison of tensors or objects")
        self.stack.append(COMPARE[symbol](left, right))

    # --- jumps ------------------------------------------------------------------------------------
    def truth(self, value: Any) -> bool:
        if isinstance(value, (Node, Outside, Bound)):
            raise Refused("a branch on a tensor or an object")
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

    def GET_ITER(self, _: Any) -> None:
        """Pop a sequence, push an iterator over its items (`capture.items`).  Refused for a
        tensor."""
        value = self.stack.pop()
        if isinstance(value, Node):
            raise Refused("a loop over a tensor")
        self.stack.append(iter(self.capture.items(value)))

    def FOR_ITER(self, target: int) -> None:
        """The top is an iterator.  Push its next item; or, if it has none, pop it and go on at
        `target`.  So a loop is unrolled."""
        try:
            self.stack.append(next(self.stack[-1]))
        except StopIteration:
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
        capture = self.capture
        if isinstance(function, torch.nn.Module):
            return self.call(self._forward(callee), args, kwargs)
        if function in TORCH and isinstance(args[0], Node):
            given = [capture.items(a) if isinstance(a, Outside) else a for a in args]
            return TORCH[function](*given, **kwargs)
        if function is list.append:
            capture.items(args[0])
            return capture.journal.append(capture.journal.items_of(args[0]), args[1])
        if function in PLAIN and not any(isinstance(v, (Node, Bound)) for v in args):
            return function(*(plain(capture.items(v)) for v in args), **kwargs)
        if isinstance(callee, Outside) and isinstance(function, types.FunctionType):
            return self.inline(callee, args, kwargs)
        raise Refused(f"a call of {getattr(function, '__name__', function)}")

    def _forward(self, module: Outside) -> Any:
        """What is called when a module is called; guarded: nobody hooks in."""
        for hooks in HOOKS:
            if getattr(module.value, hooks):
                raise Refused("a module with hooks")
            self.capture.guards.add(f"len({module.source}.{hooks}) == 0")
        return self.capture.attribute(module, "forward")

    def inline(self, callee: Outside, args: list, kwargs: dict[str, Any]) -> Any:
        """Evaluate a Python function by a machine of its own that writes into the same graph.
        Refused where a default value is no constant: it may change."""
        function = callee.value
        defaults = [function.__kwdefaults__, *(function.__defaults__ or ())]
        if not all(isinstance(value, CONSTANTS) for value in defaults):
            raise Refused("a default value that may change")
        inner = Machine(self.capture, function.__code__, function, callee.source)
        bound = inspect.signature(function, follow_wrapped=False).bind(*args, **kwargs)
        bound.apply_defaults()
        inner.locals |= bound.arguments
        return inner.run()
