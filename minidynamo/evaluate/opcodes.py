"""One function for each canonical opcode (named as in CPython 3.13), but for those of `try`,
`raise` and `with` (exceptions.py) and of f-strings (functions/strings.py).

In:   the frame and the opcode's argument.
Out:  the frame's stack, locals and program counter are changed; True where the frame is left.

    >>> HANDLERS["BINARY_OP"](frame, "+")

An opcode that only pushes one value, writes one, or jumps is a line in the tables `PUSHES`,
`WRITES` and `JUMPS`.
What has no handler is refused by its name.  Errors of the program that C code words (too few values
to unpack, two values for one argument) are graph breaks: plain Python raises them.
Mirrors the opcode methods of torch/_dynamo/symbolic_convert.py.
"""

from __future__ import annotations

import builtins
import importlib
import itertools
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from miniinductor.errors import ours

from ..errors import Break, ObservedException
from ..variables.base import NULL, Lazy, Variable, refusal
from ..variables.constant import ConstantVar
from ..variables.dicts import DictVar, ListVar, SequenceVar, SetVar, TupleVar, dict_pairs
from ..variables.functions import CallableVar, CellVar, FunctionVar
from ..variables.iterators import IteratorVar
from ..variables.sequences import slice_of

if TYPE_CHECKING:
    from .evaluator import Frame

Handler = Callable[[Any, Any], Any]  # (frame, argument)
HANDLERS: dict[str, Handler] = {}
unsupported = refusal("opcode", "the instruction {0} is not traced")


# ---- the table
def register(name: str, handler: Handler) -> None:
    if name in HANDLERS:
        raise ValueError(f"the opcode {name} has a handler already")
    HANDLERS[name] = handler


def opcode(function: Handler) -> Handler:
    """Decorator: the handler of the opcode that it is named after."""
    register(function.__name__, function)
    return function


def pushes(table: dict[str, Handler]) -> None:
    """Opcodes that push one value."""
    for name, make in table.items():
        register(name, pushing(make))


def pushing(make: Handler) -> Handler:
    def handler(frame: Frame, arg: Any) -> None:
        frame.stack.append(make(frame, arg))

    return handler


def jumping(test: Handler) -> Handler:
    def handler(frame: Frame, target: int) -> None:
        if test(frame, frame.stack.pop()):
            frame.pc = target

    return handler


PUSHES: dict[str, Handler] = {
    "COPY": lambda frame, n: frame.stack[-n],
    "PUSH_NULL": lambda frame, _: NULL,
    "LOAD_CONST": lambda frame, value: frame.output.wrap_result(value),
    "LOAD_CLOSURE": lambda frame, name: frame.cells[name],
    "LOAD_GLOBAL": lambda frame, name: frame.globals.load(frame, name),
    "LOAD_NAME": lambda frame, name: frame.globals.load(frame, name),
    "UNARY_OP": lambda frame, symbol: frame.unary(symbol, frame.stack.pop()),
    "IS_OP": lambda frame, invert: ConstantVar(frame.same(*frame.popn(2)) != bool(invert)),
    "BINARY_OP": lambda frame, symbol: frame.binary(symbol, *frame.popn(2)),
    "COMPARE_OP": lambda frame, symbol: frame.compare(symbol, *frame.popn(2)),
    "CONTAINS_OP": lambda frame, invert: ConstantVar(
        frame.stack.pop().contains(frame, frame.stack.pop()) != bool(invert)
    ),
    "BINARY_SUBSCR": lambda frame, _: frame.stack.pop(-2).getitem(frame, frame.stack.pop()),
    "LOAD_ATTR": lambda frame, name: frame.stack.pop().getattr(frame, name),
    "BUILD_TUPLE": lambda frame, n: TupleVar(frame.popn(n)),
    "BUILD_LIST": lambda frame, n: ListVar(frame.popn(n)),
    "BUILD_SET": lambda frame, n: SetVar.made(frame, TupleVar(frame.popn(n))),
    "BUILD_SLICE": lambda frame, n: slice_of(frame.popn(n)),
    "BUILD_MAP": lambda frame, n: dict_of_pairs(frame, frame.popn(2 * n)),
    "BUILD_CONST_KEY_MAP": lambda frame, n: dict_of(
        frame, frame.stack.pop().iterate(frame), frame.popn(n)
    ),
    "LIST_TO_TUPLE": lambda frame, _: TupleVar(list(frame.stack.pop().iterate(frame))),
    "GET_ITER": lambda frame, _: frame.iter_of(frame.stack.pop()),
    "GET_YIELD_FROM_ITER": lambda frame, _: frame.iter_of(frame.stack.pop()),
    "GET_LEN": lambda frame, _: frame.output.wrap_result(frame.stack[-1].length(frame)),
    "MATCH_SEQUENCE": lambda frame, _: ConstantVar(
        bool(frame.stack[-1].python_type().__flags__ & 1 << 5)
    ),  # Py_TPFLAGS_SEQUENCE
    # CPython pushes the generator, and its next instruction pops it: the body follows
    "RETURN_GENERATOR": lambda frame, _: ConstantVar(None),
    # its rule breaks, at the call
    "LOAD_BUILD_CLASS": lambda frame, _: CallableVar(builtins.__build_class__),
}
JUMPS: dict[str, Handler] = {
    "POP_JUMP_IF_FALSE": lambda frame, value: not value.truth(frame),
    "POP_JUMP_IF_TRUE": lambda frame, value: value.truth(frame),
    "POP_JUMP_IF_NONE": lambda frame, value: value.identity() is None,
    "POP_JUMP_IF_NOT_NONE": lambda frame, value: value.identity() is not None,
}
WRITES: dict[str, Handler] = {  # CPython has pushed the value first, then where it goes
    "STORE_DEREF": lambda frame, name: frame.cells[name].store(frame.stack.pop()),
    "STORE_GLOBAL": lambda frame, name: frame.globals.written.update({name: frame.stack.pop()}),
    "STORE_ATTR": lambda frame, name: frame.stack.pop().setattr(frame, name, frame.stack.pop()),
    "DELETE_ATTR": lambda frame, name: frame.stack.pop().delattr(frame, name),
    "DELETE_SUBSCR": lambda frame, _: frame.stack.pop(-2).delitem(frame, frame.stack.pop()),
    "POP_TOP": lambda frame, _: frame.stack.pop(),
    "END_SEND": lambda frame, _: frame.stack.pop(-2),
}
pushes(PUSHES)
for _name, _test in JUMPS.items():
    register(_name, jumping(_test))
for _name, _write in WRITES.items():
    register(_name, _write)


@opcode
def SWAP(frame: Frame, n: int) -> None:
    stack = frame.stack
    stack[-1], stack[-n] = stack[-n], stack[-1]


# ---- variables
@opcode
def LOAD_FAST(frame: Frame, name: str) -> None:
    """(A resume function may put the value of a loop's next turn back on the stack, to be stored at
    once.  Nobody has looked at the value then: it needs no guard yet.)"""
    value = frame.locals.get(name)
    if value is None:
        if name not in frame.cells:
            frame.unbound(name)
        value = frame.cells[name]  # 3.13 loads a cell for a closure with this opcode, too
    elif type(value) is Lazy and not (name.startswith(".") and stores_at_once(frame)):
        value = frame.locals[name] = value.realize(frame)
    frame.stack.append(value)


def stores_at_once(frame: Frame) -> bool:
    """Does the code that comes next jump to a STORE_FAST, as a resume function does behind the head
    of a loop?"""
    ops, position = frame.info.operations, frame.pc
    while ops[position].op == "DELETE_FAST":
        position += 1
    return ops[position].op == "JUMP" and ops[ops[position].arg].op == "STORE_FAST"


@opcode
def STORE_FAST(frame: Frame, name: str) -> None:
    value = frame.stack.pop()
    if value is NULL:  # behind an inlined comprehension, see LOAD_FAST_AND_CLEAR
        frame.locals.pop(name, None)
    elif type(value) is CellVar and name in frame.code.co_cellvars:  # such a comprehension's cell
        frame.cells[name] = value
    else:
        frame.locals[name] = value


@opcode
def LOAD_FAST_AND_CLEAR(frame: Frame, name: str) -> None:
    """In front of a comprehension that is inlined (3.12): its variable hides one of the frame's,
    which waits on the stack, NULL if it is unbound, until a STORE_FAST puts it back."""
    if name in frame.cells and name in frame.code.co_cellvars:
        frame.stack.append(frame.cells.pop(name))
        return
    value = frame.locals.pop(name, NULL)
    frame.stack.append(value.realize(frame))


@opcode
def DELETE_FAST(frame: Frame, name: str) -> None:
    if frame.locals.pop(name, None) is None:
        frame.unbound(name)


@opcode
def MAKE_CELL(frame: Frame, name: str) -> None:
    cell = frame.cells[name] = CellVar(frame.locals.pop(name, None))
    # the root's own cells exist in the replacement code too
    cell.cell = name if frame.parent is None else None


@opcode
def LOAD_DEREF(frame: Frame, name: str) -> None:
    value = frame.cells[name].load(frame)
    if value is None:
        frame.unbound(name)
    frame.stack.append(value)


# ---- attributes and items
@opcode
def LOAD_METHOD(frame: Frame, name: str) -> None:
    push_callable(frame, frame.stack.pop().getattr(frame, name))


@opcode
def LOAD_SUPER_ATTR(frame: Frame, arg: tuple[str, int]) -> None:
    name, flags = arg
    called, cls, instance = frame.popn(3)
    written_out = flags & 2  # super(cls, instance); Python adds the arguments of super() itself
    arguments = [cls, instance] if written_out or called.identity() is super else []
    found = called.call(frame, arguments, {}).getattr(frame, name)
    if flags & 1:
        push_callable(frame, found)
    else:
        frame.stack.append(found)


def push_callable(frame: Frame, found: Variable) -> None:
    """A callable and NULL, in this version's order: behind a graph break the real CALL takes
    them."""
    frame.stack.extend((NULL, found) if sys.version_info < (3, 13) else (found, NULL))


@opcode
def STORE_SUBSCR(frame: Frame, _: None) -> None:
    value, container, key = frame.popn(3)
    container.setitem(frame, key, value)


# ---- containers
@opcode
def UNPACK_SEQUENCE(frame: Frame, n: int) -> None:
    value = frame.stack.pop()
    walk = value.iterate(frame)
    # one value more than names shows that there are too many; a sequence is asked for all, as its
    # length is known
    values = list(walk if isinstance(value, SequenceVar) else itertools.islice(walk, n + 1))
    if len(values) != n:
        raise Break("unpack", f"{n} names for another number of values")
    frame.stack.extend(reversed(values))


@opcode
def UNPACK_EX(frame: Frame, arg: int) -> None:
    before, after = arg & 255, arg >> 8
    values = list(frame.stack.pop().iterate(frame))
    if len(values) < before + after:
        raise Break("unpack", f"{before + after} names for fewer values")
    middle = ListVar(values[before : len(values) - after])
    frame.stack.extend(reversed([*values[:before], middle, *values[len(values) - after :]]))


def putting(op: str, method: str, count: int = 1, needed: str = "") -> None:
    """An opcode that puts the `count` values on top of the stack into the container `n` below them,
    as a call of its `method` does.  Values without the method `needed` break the graph: the call
    would take some of them, the opcode takes none."""

    def handler(frame: Frame, n: int) -> None:
        values = frame.popn(count)
        if needed and not hasattr(values[0].python_type(), needed):
            raise Break("arguments", f"{op} of {values[0]}")
        frame.stack[-n].call_method(frame, method, values, {})

    register(op, handler)


putting("LIST_APPEND", "append")
putting("SET_ADD", "add")
putting("MAP_ADD", "__setitem__", 2)
putting("LIST_EXTEND", "extend", needed="__iter__")
putting("SET_UPDATE", "update")
putting("DICT_UPDATE", "update", needed="keys")


@opcode
def DICT_MERGE(frame: Frame, n: int) -> None:
    """`f(**options)`"""
    other, into = frame.stack.pop(), frame.stack[-n]
    for key, value in dict_pairs(frame, other):
        if key.hash_key(frame) in into.items:
            raise Break("arguments", f"two values for the argument {key.as_constant()!r}")
        into.store(frame, key, value)


def dict_of(frame: Frame, keys: Iterable[Variable], values: Iterable[Variable]) -> DictVar:
    made = DictVar({})
    for key, value in zip(keys, values):
        made.store(frame, key, value)
    return made


def dict_of_pairs(frame: Frame, keys_and_values: list[Variable]) -> DictVar:
    return dict_of(frame, keys_and_values[::2], keys_and_values[1::2])


# ---- calls
def call(frame: Frame, args: list[Variable], kwargs: dict[str, Variable]) -> None:
    """The two slots below the arguments hold NULL and the callable, in either order, or method and
    self."""
    function, instance = frame.popn(2)
    if function is NULL:
        function, instance = instance, NULL
    if instance is not NULL:
        args = [instance, *args]
    frame.stack.append(function.call(frame, args, kwargs))


@opcode
def CALL(frame: Frame, n: int) -> None:
    call(frame, frame.popn(n), {})


@opcode
def CALL_KW(frame: Frame, n: int) -> None:
    names = frame.stack.pop().as_constant()
    values = frame.popn(n)
    kwargs = dict(zip(names, values[n - len(names) :]))
    call(frame, values[: n - len(names)], kwargs)


@opcode
def CALL_FUNCTION_EX(frame: Frame, flags: int) -> None:
    named = frame.stack.pop().pairs(frame) if flags & 1 else ()
    kwargs = {key.as_constant(): value for key, value in named}
    if not all(isinstance(name, str) for name in kwargs):
        raise Break("arguments", "a keyword that is no text")
    call(frame, frame.listed(frame.stack.pop()), kwargs)


@opcode
def MAKE_FUNCTION(frame: Frame, _: None) -> None:
    code = frame.stack.pop().value
    frame.stack.append(FunctionVar(None, code, frame.function.globals, code.co_qualname))


@opcode
def SET_FUNCTION_ATTRIBUTE(frame: Frame, part: int) -> None:
    value, made = frame.popn(2)
    if part == 1:
        made.defaults = tuple(value.iterate(frame))
    elif part == 2:
        made.kwdefaults = {key.as_constant(): item for key, item in value.pairs(frame)}
    elif part == 4:
        made.annotations = dict_of_pairs(frame, list(value.iterate(frame)))
    else:
        made.closure = tuple(value.items)
    frame.stack.append(made)


# ---- control flow
@opcode
def JUMP(frame: Frame, target: int) -> None:
    frame.pc = target


@opcode
def FOR_ITER(frame: Frame, target: int) -> None:
    if not isinstance(frame.stack[-1], IteratorVar):
        raise Break("loop", "the next step of a loop whose iterator was made before this frame")
    value = frame.stack[-1].next(frame)
    if value is None:
        frame.stack.pop()
        frame.pc = target
    else:
        frame.stack.append(value)


@opcode
def RETURN_VALUE(frame: Frame, _: None) -> bool:
    frame.returned = frame.stack.pop()
    return True


@opcode
def YIELD_VALUE(frame: Frame, _: None) -> bool:
    frame.yielded = frame.stack.pop()
    return True


@opcode
def SEND(frame: Frame, target: int) -> None:
    """`yield from`"""
    sent, receiver = frame.stack.pop(), frame.stack[-1]
    method, args = ("__next__", []) if sent.identity() is None else ("send", [sent])
    try:
        frame.stack.append(receiver.call_method(frame, method, args, {}))
    except ObservedException as raised:
        if not issubclass(raised.var.python_type(), StopIteration):
            raise
        if sys.version_info < (3, 12):  # later ones have END_SEND take it away
            frame.stack.pop()
        frame.stack.append(raised.var.getattr(frame, "value"))
        frame.pc = target


# ---- imports
@opcode
def IMPORT_NAME(frame: Frame, name: str) -> None:
    """The import is done while tracing; guarded is that `sys.modules` has the same modules."""
    level, fromlist = (value.as_constant() for value in frame.popn(2))
    inside = frame.function.globals.get("__name__", "")
    if not isinstance(inside, str):
        raise Break("import", "an import inside a module whose name is no text")
    package = frame.function.globals.get("__package__") or inside.rpartition(".")[0]
    where = {"__package__": package, "__name__": inside or None}
    try:
        module = importlib.__import__(name, where, None, fromlist or (), level)
    except ours(ImportError):
        raise Break("import", f"{name} cannot be imported") from None
    start = package.rsplit(".", level - 1)[0] if level else ""
    full_name = ".".join([part for part in (start, name) if part])  # `from ..name import value`
    modules = frame.output.tree.pinned(sys.modules, "modules")
    for each in sorted({full_name, module.__name__}):  # `import a.b` gives a
        frame.output.guard_fixed(modules.item(each), sys.modules[each])
    frame.stack.append(frame.output.wrap_pinned(module))


@opcode
def IMPORT_FROM(frame: Frame, name: str) -> None:
    module = frame.stack[-1]
    if not frame.has_attr(module, name):
        raise Break("import", f"{name} is not in {module}")
    frame.stack.append(module.getattr(frame, name))
