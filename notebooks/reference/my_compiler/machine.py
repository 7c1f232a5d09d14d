"""Chapter 04: bytecode, evaluated on symbols.

A `Machine` runs one frame's bytecode on a stack of its own.  On that stack lie

    Node      a tensor, of which only shape and dtype are known
    Outside   an object that existed before the frame ran (effects.py)
    Bound     a function together with its first argument (guards.py)
    others    plain Python values: constants, and lists, tuples, dicts that the frame has made

What involves tensors is written into the graph, everything else happens at once.  What the machine
does not know raises `Refused`.
"""

from __future__ import annotations

import builtins
import inspect
import operator
import types
from typing import Any

import torch
import torch.nn.functional as F

from minidynamo.bytecode import canonical, disassemble

from . import graph as nodes
from .effects import Outside
from .graph import Node, Refused
from .guards import CONSTANTS, Bound, Capture
from .sizes import ARITHMETIC, COMPARISONS, plain

NULL = object()  # CPython's mark beside the callee
OPERATORS = ARITHMETIC | {"/": "truediv", "@": "matmul", "**": "pow"}
BINARY = {symbol: getattr(operator, name) for symbol, name in OPERATORS.items()}
COMPARE = {symbol: getattr(operator, name) for symbol, name in COMPARISONS.items()}
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
# what writes into the graph: methods of a tensor, functions of torch
NAMES = ("exp", "log", "tanh", "sqrt", "relu", "sum", "mean", "amax", "transpose", "reshape")
METHODS = {name: getattr(Node, name) for name in (*NAMES, "permute", "view")}
METHODS["softmax"] = nodes.softmax
TORCH: dict[Any, Any] = {getattr(torch, name): METHODS[name] for name in (*NAMES, "softmax")}
TORCH |= {method: method for method in METHODS.values()}
TORCH |= {F.relu: Node.relu, torch.matmul: operator.matmul}
COMPOSED = ("softmax", "layer_norm", "gelu", "linear", "embedding", "cross_entropy")
TORCH |= {getattr(F, name): getattr(nodes, name) for name in COMPOSED}
# functions that are called at once if no argument is a tensor
PLAIN = {len, range, min, max, abs, int, float, bool, tuple, list, enumerate, zip}
SETATTR = (object.__setattr__, torch.nn.Module.__setattr__)


def unknown(value: Any) -> bool:
    """Is it a tensor or an object from outside, or does it hold one?  Only the program can compare
    those: here two lists would be two objects, equal or not."""
    if isinstance(value, (list, tuple)):
        return any(map(unknown, value))
    return isinstance(value, (Node, Outside, Bound))


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
        """Push a global of the function, wrapped (`capture.wrap`; its source begins with that of
        the function).  Where there is none push Python's own, of `builtins`; that there is none is
        guarded."""
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
    def attribute(self, value: Any, name: str) -> Any:
        """Of a Node its shape and `METHODS`, of a list `append`; of an object from outside what
        `capture.attribute` says."""
        if isinstance(value, Node) and name == "shape":
            return torch.Size(value.shape)
        if isinstance(value, Node) and name in METHODS:
            return Bound(METHODS[name], value)
        if isinstance(value, list) and name == "append":
            return Bound(list.append, value)
        if isinstance(value, Outside):
            return self.capture.attribute(value, name)
        raise Refused(f"the attribute {name} of {type(value).__name__}")

    def LOAD_ATTR(self, name: str) -> None:
        self.stack.append(self.attribute(self.stack.pop(), name))

    def LOAD_METHOD(self, name: str) -> None:
        self.stack += [NULL, self.attribute(self.stack.pop(), name)]

    def STORE_ATTR(self, name: str) -> None:
        value, target = self.pop(2)
        is_plain = isinstance(target, Outside) and type(target.value).__setattr__ in SETATTR
        if not is_plain or isinstance(value, (Outside, Node, Bound)):
            raise Refused(f"writing the attribute {name}")
        self.capture.attribute(target, name)  # what it is now is guarded, and shadows nothing
        self.capture.journal.set_attribute(target, name, value)

    def BINARY_SUBSCR(self, _: Any) -> None:
        """Pop a container and, above it, a key; push the item (`items`, `plain`).  Refused for a
        key that is a node, or from outside."""
        container, key = self.pop(2)
        if isinstance(key, (Node, Outside)):
            raise Refused("an element whose place is a tensor, or an object")
        self.stack.append(self.items(container)[plain(key)])

    def STORE_SUBSCR(self, _: Any) -> None:
        value, container, key = self.pop(3)
        if isinstance(key, (Node, Outside)):
            raise Refused("an element whose place is a tensor, or an object")
        self.items(container)
        journal = self.capture.journal
        journal.set_item(journal.items_of(container), plain(key), value)

    def items(self, value: Any) -> Any:
        """What a container holds; of a tensor nobody knows."""
        if isinstance(value, Node):
            raise Refused("the elements of a tensor")
        return self.capture.items(value)

    def BUILD_TUPLE(self, count: int) -> None:
        """Pop so many values, push them as one tuple, the top last (`pop` keeps their order)."""
        self.stack.append(tuple(self.pop(count)))

    def UNPACK_SEQUENCE(self, count: int) -> None:
        """Pop a sequence and push its `items`, the first on top.  Refused for another number."""
        items = self.items(self.stack.pop())
        if len(items) != count:
            raise Refused("unpacking of another number of values")
        self.stack += reversed(items)

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

    def COMPARE_OP(self, symbol: str) -> None:
        """Pop two, push whether the lower one is < (or ..., `COMPARE`) the upper one.  Refused for
        what is `unknown`; sizes stay symbols."""
        left, right = self.pop(2)
        if unknown(left) or unknown(right):
            raise Refused("a comparison of tensors or objects")
        self.stack.append(COMPARE[symbol](left, right))

    # --- jumps ------------------------------------------------------------------------------------
    def truth(self, value: Any) -> bool:
        """Of a constant, a size (`plain`), or a container of the frame's own; else refused: who
        knows?"""
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
        """The same, if it is true."""
        if self.truth(self.stack.pop()):
            self.pc = target

    def GET_ITER(self, _: Any) -> None:
        """Pop a sequence, push an iterator over its `items`."""
        self.stack.append(iter(self.items(self.stack.pop())))

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
        """What the callee returns: one of `TORCH` a node, one of `PLAIN` a value, both with the
        items of containers from outside; a module is its `forward`; functions are inlined."""
        if isinstance(callee, Bound):
            return self.call(callee.function, [callee.first, *args], kwargs)
        function = callee.value if isinstance(callee, Outside) else callee
        capture = self.capture
        if isinstance(function, torch.nn.Module):
            return self.call(self._forward(callee), args, kwargs)
        if function in TORCH and isinstance(args[0], Node):
            return TORCH[function](*map(capture.items, args), **kwargs)
        if function is list.append:
            self.items(args[0])
            return capture.journal.append(capture.journal.items_of(args[0]), args[1])
        if function in PLAIN and not any(isinstance(value, Bound) for value in args):
            return function(*(plain(self.items(value)) for value in args), **kwargs)
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
