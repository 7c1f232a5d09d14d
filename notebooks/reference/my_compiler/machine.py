"""Chapter 04: bytecode, evaluated on symbols.

A `Machine` evaluates the bytecode of one frame on a stack of its own.  The stack holds

    Node      a tensor, of which only shape and dtype are known
    Outside   an object that existed before the frame ran (effects.py)
    Bound     a function together with its first argument (guards.py)
    others    plain Python values: constants, and lists, tuples, dicts that the frame has made

An operation on tensors becomes a node of the graph; every other operation is computed at once.  The
machine raises `Refused` for what it does not know.
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
    """Is the value a tensor or an object from outside, or does it contain one?  The machine cannot
    compare such values."""
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
        """Evaluate one operation by the method that has its name.  True at the end.  Refused
        without such a method, and inside a try or with statement (`operation.exc`)."""
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
        """Push a local variable.  Refused if it has no value yet."""
        if name not in self.locals:
            raise Refused(f"{name} may be unbound")
        self.stack.append(self.locals[name])

    def STORE_FAST(self, name: str) -> None:
        """Pop a value and store it in a local variable."""
        self.locals[name] = self.stack.pop()

    def LOAD_CONST(self, value: Any) -> None:
        self.stack.append(value)

    def LOAD_GLOBAL(self, name: str) -> None:
        """Push a global variable of the function, wrapped by `capture.wrap`; its source begins with
        that of the function.  If the function has no such global, push that of `builtins`, and add
        a guard that the global is still missing."""
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
        """Push a copy of the depth-th value from the top."""
        self.stack.append(self.stack[-depth])

    def SWAP(self, depth: int) -> None:
        """Exchange the top with the depth-th value from the top."""
        self.stack[-1], self.stack[-depth] = self.stack[-depth], self.stack[-1]

    def RETURN_VALUE(self, _: Any) -> bool:
        return True

    # --- attributes, elements, containers ---------------------------------------------------------
    def attribute(self, value: Any, name: str) -> Any:
        """A Node has a shape and `METHODS`, and a list has `append`.  For an object from outside
        call `capture.attribute`.  Refuse every other attribute."""
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
        """Pop a key and, below it, a container; push the item.  `items` gives the container's
        items, `plain` the key's number.  Refused if the key is a node, or from outside."""
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
        """The items of a container.  Refused for a tensor."""
        if isinstance(value, Node):
            raise Refused("the elements of a tensor")
        return self.capture.items(value)

    def BUILD_TUPLE(self, count: int) -> None:
        """Pop `count` values and push them as one tuple; the top becomes its last item."""
        self.stack.append(tuple(self.pop(count)))

    def UNPACK_SEQUENCE(self, count: int) -> None:
        """Pop a sequence and push its `items`, the first on top.  Refused unless it has `count`."""
        items = self.items(self.stack.pop())
        if len(items) != count:
            raise Refused("unpacking of another number of values")
        self.stack += reversed(items)

    # --- operators --------------------------------------------------------------------------------
    def BINARY_OP(self, symbol: str) -> None:
        """Pop two operands and push the result.  `BINARY` has the functions of the operators;
        refuse an operator that it lacks.  Refuse operands from outside, too, and `+=` and similar
        on a tensor or a list, which would write.  Sizes stay symbols for + - * // %.  For another
        operator make them numbers (`plain`), unless the left operand is a tensor."""
        left, right = self.pop(2)
        is_write = symbol.endswith("=") and isinstance(left, (Node, list))
        if is_write or symbol.rstrip("=") not in BINARY or isinstance(left, Outside):
            raise Refused(f"the operator {symbol}")
        if symbol not in ARITHMETIC and not isinstance(left, Node):
            left, right = plain(left), plain(right)
        self.stack.append(BINARY[symbol.rstrip("=")](left, right))

    def COMPARE_OP(self, symbol: str) -> None:
        """Pop two operands, compare the lower one with the upper one, and push the result.
        `COMPARE` has the functions.  Refused if an operand is `unknown`; sizes stay symbols."""
        left, right = self.pop(2)
        if unknown(left) or unknown(right):
            raise Refused("a comparison of tensors or objects")
        self.stack.append(COMPARE[symbol](left, right))

    # --- jumps ------------------------------------------------------------------------------------
    def truth(self, value: Any) -> bool:
        """Is the value true?  Known for a constant, a size (`plain`), and a container that the
        frame made.  Refused for every other value."""
        if isinstance(value, (Node, Outside, Bound)):
            raise Refused("a branch on a tensor or an object")
        return bool(plain(value))

    def JUMP(self, target: int) -> None:
        self.pc = target

    def POP_JUMP_IF_FALSE(self, target: int) -> None:
        """Pop a value; continue at `target` if `truth` says that it is false."""
        if not self.truth(self.stack.pop()):
            self.pc = target

    def POP_JUMP_IF_TRUE(self, target: int) -> None:
        """Pop a value; continue at `target` if it is true."""
        if self.truth(self.stack.pop()):
            self.pc = target

    def GET_ITER(self, _: Any) -> None:
        """Pop a sequence, push an iterator over its `items`."""
        self.stack.append(iter(self.items(self.stack.pop())))

    def FOR_ITER(self, target: int) -> None:
        """The top is an iterator.  Push its next item.  If it has none, pop the iterator and
        continue at `target`.  This unrolls a loop."""
        try:
            self.stack.append(next(self.stack[-1]))
        except StopIteration:
            self.stack.pop()
            self.pc = target

    # --- calls ------------------------------------------------------------------------------------
    def CALL(self, count: int) -> None:
        self._call_with(self.pop(count), {})

    def CALL_KW(self, count: int) -> None:
        """The top is a tuple of names.  Below it are `count` arguments; the names belong to the
        last of them."""
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
        """The value that the callee returns.  Check these cases in order: a `Bound`; a module,
        whose `forward` is called; a function in `TORCH`, which returns a node; `list.append`; a
        function in `PLAIN`, which returns a value; a Python function from outside, which is
        inlined."""
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
        """The `forward` of a module, with guards that it has no hooks.  Refused if it has one."""
        for hooks in HOOKS:
            if getattr(module.value, hooks):
                raise Refused("a module with hooks")
            self.capture.guards.add(f"len({module.source}.{hooks}) == 0")
        return self.capture.attribute(module, "forward")

    def inline(self, callee: Outside, args: list, kwargs: dict[str, Any]) -> Any:
        """Evaluate a Python function on another machine, which writes into the same graph.  Refused
        if a default value is not a constant, since it may change."""
        function = callee.value
        defaults = [function.__kwdefaults__, *(function.__defaults__ or ())]
        if not all(isinstance(value, CONSTANTS) for value in defaults):
            raise Refused("a default value that may change")
        inner = Machine(self.capture, function.__code__, function, callee.source)
        bound = inspect.signature(function, follow_wrapped=False).bind(*args, **kwargs)
        bound.apply_defaults()
        inner.locals |= bound.arguments
        return inner.run()
