"""One function for each canonical opcode (named as in CPython 3.13).

In:   the frame and the opcode's argument.
Out:  the frame's stack, locals and program counter are changed; True where the frame is left.

    >>> HANDLERS["BINARY_OP"](frame, "+")

Mirrors the opcode methods of torch/_dynamo/symbolic_convert.py.

Opcodes that few programs have: imports, `del`, `yield from`, `*rest`, `**named`, `case [a, b]`.

In, out: as in `symbolic_eval.opcodes`, whose table these handlers join.
"""

from __future__ import annotations

import builtins
import importlib
import itertools
import sys
import types
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch

from miniinductor.errors import ours

from ..bytecode.assembler import CLOSURE
from ..errors import Break, ObservedException
from ..variables.base import MISSING, NULL, Args, Lazy, Named, RealVar, Variable, refusal
from ..variables.constant import ConstantVar
from ..variables.dicts import DictVar, ListVar, SequenceVar, TupleVar, dict_pairs
from ..variables.functions import BOUND, CallableVar, CellVar, FunctionVar, MethodVar
from ..variables.iterators import IteratorVar
from ..variables.sequences import slice_of
from ..variables.sets import SetVar
from ..variables.tensor import TensorVar

if TYPE_CHECKING:
    from .evaluator import Frame

Handler = Callable[["Frame", Any], Any]
HANDLERS: dict[str, Handler] = {}


def opcode(function: Handler) -> Handler:
    HANDLERS[function.__name__] = function
    return function


unsupported = refusal("opcode", "the instruction {0} is not traced")


# ---- the stack
@opcode
def POP_TOP(frame: Frame, _: Any) -> None:
    frame.stack.pop()


@opcode
def SWAP(frame: Frame, n: int) -> None:
    stack = frame.stack
    stack[-1], stack[-n] = stack[-n], stack[-1]


# ---- variables
@opcode
def LOAD_CONST(frame: Frame, value: Any) -> None:
    frame.stack.append(frame.output.wrap_result(value))


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
class DeferredVar(MethodVar):
    """A method that tracing could not read: reading is put off to the call, where the graph can
    break.  Nothing of the program's runs in between that could tell."""

    native = False
    broken: Break

    def call(self, tx: Frame, args: Args, kwargs: Named) -> Variable:
        raise self.broken


@opcode
def LOAD_METHOD(frame: Frame, name: str) -> None:
    owner = frame.stack.pop()
    try:
        found = owner.getattr(frame, name)
    except Break as broken:
        if not is_read_in_silence(owner, name):
            raise
        broken.stack = broken.stack or frame.user_stack()
        found = DeferredVar(owner, name, broken)
    push_callable(frame, found)


PLAIN_METHODS = (
    *(types.FunctionType, staticmethod, classmethod, types.BuiltinFunctionType, *BOUND),
    types.ClassMethodDescriptorType,
)


def is_read_in_silence(owner: Variable, name: str) -> bool:
    """Is it a method that Python finds in a class or an object's `__dict__`, without a word of the
    program's?  Whatever else it is may raise, at this line, or do something before the arguments
    do."""
    try:
        kind = owner.python_type()
    except Break:
        return False
    if type(static(kind, "__getattribute__")) is not types.WrapperDescriptorType:
        return False
    value = owner.value if isinstance(owner, RealVar) else None
    if isinstance(static(kind, name), PLAIN_METHODS):
        return True
    if isinstance(value, type):
        return isinstance(static(value, name), PLAIN_METHODS)
    try:
        return name in object.__getattribute__(value, "__dict__")
    except ours(AttributeError):
        return False


def static(cls: type, name: str) -> Any:
    """What a class or its bases have under a name, without guards."""
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), MISSING)


def push_callable(frame: Frame, found: Variable) -> None:
    """A callable and NULL, in this version's order: behind a graph break the real CALL takes
    them."""
    frame.stack.extend((NULL, found) if sys.version_info < (3, 13) else (found, NULL))


def is_in(frame: Frame, item: Variable, container: Variable) -> bool:
    return container.contains(frame, item)


# ---- what pushes one value, and what jumps
PUSHES = {
    "COPY": lambda frame, n: frame.stack[-n],
    "PUSH_NULL": lambda frame, _: NULL,
    "LOAD_CLOSURE": lambda frame, name: frame.cells[name],
    "LOAD_GLOBAL": lambda frame, name: frame.globals.load(frame, name),
    "UNARY_OP": lambda frame, symbol: frame.unary(symbol, frame.stack.pop()),
    "IS_OP": lambda frame, invert: ConstantVar(frame.same(*frame.popn(2)) != bool(invert)),
    "BINARY_OP": lambda frame, symbol: frame.binary(symbol, *frame.popn(2)),
    "COMPARE_OP": lambda frame, symbol: frame.compare(symbol, *frame.popn(2)),
    "LOAD_ATTR": lambda frame, name: frame.stack.pop().getattr(frame, name),
    "BUILD_TUPLE": lambda frame, n: TupleVar(frame.popn(n)),
    "BUILD_LIST": lambda frame, n: ListVar(frame.popn(n)),
    "BUILD_SLICE": lambda frame, n: slice_of(frame.popn(n)),
    "CONTAINS_OP": lambda frame, invert: ConstantVar(is_in(frame, *frame.popn(2)) != bool(invert)),
    "BUILD_MAP": lambda frame, n: dict_of_pairs(frame, frame.popn(2 * n)),
    "BUILD_CONST_KEY_MAP": lambda frame, n: dict_of(
        frame, frame.stack.pop().iterate(frame), frame.popn(n)
    ),
    "LIST_TO_TUPLE": lambda frame, _: TupleVar(list(frame.stack.pop().iterate(frame))),
    "GET_ITER": lambda frame, _: frame.iter_of(frame.stack.pop()),
    # CPython pushes the generator, and its next instruction pops it: the body follows
    "RETURN_GENERATOR": lambda frame, _: ConstantVar(None),
}
JUMPS = {
    "POP_JUMP_IF_FALSE": lambda frame, value: not value.truth(frame),
    "POP_JUMP_IF_TRUE": lambda frame, value: checked(frame, value) or value.truth(frame),
    "POP_JUMP_IF_NONE": lambda frame, value: value.identity() is None,
    "POP_JUMP_IF_NOT_NONE": lambda frame, value: value.identity() is not None,
}


def pushes(table: dict[str, Callable[[Frame, Any], Any]]) -> None:
    """Opcodes that push one value."""
    for op, make in table.items():
        HANDLERS[op] = _push(make)


def _push(make: Callable[[Frame, Any], Any]) -> Handler:
    def handler(frame: Frame, arg: Any) -> None:
        frame.stack.append(make(frame, arg))

    return handler


def _jump_if(test: Callable[[Frame, Variable], bool]) -> Handler:
    def handler(frame: Frame, target: int) -> None:
        if test(frame, frame.stack.pop()):
            frame.pc = target

    return handler


pushes(PUSHES)
HANDLERS.update({op: _jump_if(test) for op, test in JUMPS.items()})


def checked(frame: Frame, condition: Variable) -> bool:
    """`assert torch.isfinite(x).all(), "..."`: is the condition checked in the graph?

    Where it fails the graph raises, and plain Python runs the frame and raises the program's own
    AssertionError, with its message, where it stands (`convert/conversion.py`).  In a graph that
    writes or draws, and on a GPU, where such a check would end the process, it is a graph break.
    Mirrors torch/_dynamo/symbolic_convert.py (`_detect_and_normalize_assert_statement`)."""
    if type(condition) is not TensorVar or not raises_assertion(frame):
        return False
    fake = condition.fake
    if not fake.is_cpu or fake.dim() or getattr(fake, "constant", None) is not None:
        return False
    made = frame.user_stack(), frame.output.root.group_step
    frame.output.asserted.append(made)
    frame.node(torch._assert_async, [condition])
    return True


def raises_assertion(frame: Frame) -> bool:
    """Does what follows, unless it is jumped over, begin to make an AssertionError?"""
    follows = frame.info.operations[frame.pc]
    return follows.op == "LOAD_CONST" and follows.arg is AssertionError


# ---- writes
@opcode
def STORE_DEREF(frame: Frame, name: str) -> None:
    frame.cells[name].store(frame.stack.pop())


@opcode
def STORE_GLOBAL(frame: Frame, name: str) -> None:
    frame.globals.written[name] = frame.stack.pop()


@opcode
def STORE_ATTR(frame: Frame, name: str) -> None:
    value, owner = frame.popn(2)
    owner.setattr(frame, name, value)


@opcode
def STORE_SUBSCR(frame: Frame, _: Any) -> None:
    value, container, key = frame.popn(3)
    container.setitem(frame, key, value)


# ---- containers
@opcode
def UNPACK_SEQUENCE(frame: Frame, n: int) -> None:
    value = frame.stack.pop()
    kind = value.python_type()
    if not hasattr(kind, "__iter__") and not hasattr(kind, "__getitem__"):
        frame.raise_(TypeError, f"cannot unpack non-iterable {kind.__name__} object")
    walk = value.iterate(frame)
    # one more than wanted is enough to see that there are too many; a sequence tells how many
    values = list(walk if isinstance(value, SequenceVar) else itertools.islice(walk, n + 1))
    if len(values) != n:
        frame.wrong_number(n, len(values))
    frame.stack.extend(reversed(values))


def _into(op: str, method: str, count: int = 1, needed: str = "") -> None:
    """An opcode that puts the `count` values on top of the stack into the container `n` below them,
    as a call of its `method` does.  Values without the method `needed` break the graph: CPython
    complains of them in words that the method does not use."""

    def handler(frame: Frame, n: int) -> None:
        values = frame.popn(count)
        if needed and not hasattr(values[0].python_type(), needed):
            raise Break("arguments", f"{op} of {values[0]}")
        frame.stack[-n].call_method(frame, method, values, {})

    HANDLERS[op] = handler


_into("LIST_APPEND", "append")
_into("SET_ADD", "add")
_into("MAP_ADD", "__setitem__", 2)
_into("LIST_EXTEND", "extend", needed="__iter__")
_into("SET_UPDATE", "update")
_into("DICT_UPDATE", "update", needed="keys")


def dict_of(frame: Frame, keys: Iterable[Variable], values: Iterable[Variable]) -> DictVar:
    made = DictVar({})
    for key, value in zip(keys, values):
        made.store(frame, key, value)
    return made


def dict_of_pairs(frame: Frame, keys_and_values: list[Variable]) -> DictVar:
    return dict_of(frame, keys_and_values[::2], keys_and_values[1::2])


@opcode
def BINARY_SUBSCR(frame: Frame, _: Any) -> None:
    container, key = frame.popn(2)
    frame.stack.append(container.getitem(frame, key))


# ---- calls
def callee(frame: Frame, args: list[Variable]) -> tuple[Variable, list[Variable]]:
    """(callable, arguments): the two slots hold NULL and the callable, in either order, or method
    and self."""
    first, second = frame.popn(2)
    if first is NULL:
        return second, args
    return (first, args) if second is NULL else (first, [second, *args])


@opcode
def CALL(frame: Frame, n: int) -> None:
    function, args = callee(frame, frame.popn(n))
    frame.stack.append(function.call(frame, args, {}))


@opcode
def CALL_KW(frame: Frame, n: int) -> None:
    names = frame.stack.pop().as_constant()
    values = frame.popn(n)
    kwargs = dict(zip(names, values[n - len(names) :]))
    function, args = callee(frame, values[: n - len(names)])
    frame.stack.append(function.call(frame, args, kwargs))


@opcode
def MAKE_FUNCTION(frame: Frame, _: Any) -> None:
    code = frame.stack.pop().value
    frame.stack.append(FunctionVar(None, code, frame.function.globals, code.co_qualname))


@opcode
def CALL_FUNCTION_EX(frame: Frame, flags: int) -> None:
    named = frame.stack.pop().pairs(frame) if flags & 1 else ()
    kwargs = {key.as_constant(): value for key, value in named}
    function, args = callee(frame, frame.listed(frame.stack.pop()))
    frame.stack.append(function.call(frame, args, kwargs))


def set_defaults(frame: Frame, made: FunctionVar, value: Any) -> None:
    made.defaults = tuple(value.iterate(frame))


def set_named_defaults(frame: Frame, made: FunctionVar, value: Any) -> None:
    made.kwdefaults = {key.as_constant(): item for key, item in value.pairs(frame)}


def set_annotations(frame: Frame, made: FunctionVar, value: Any) -> None:
    made.annotations = dict_of_pairs(frame, list(value.iterate(frame)))


def set_closure(frame: Frame, made: FunctionVar, value: Any) -> None:
    made.closure = tuple(value.items)


# what the value below a function becomes -> what makes it that
FUNCTION_PARTS: dict[int, Callable[[Frame, FunctionVar, Any], None]] = {
    1: set_defaults,
    2: set_named_defaults,
    4: set_annotations,
    CLOSURE: set_closure,
}


@opcode
def SET_FUNCTION_ATTRIBUTE(frame: Frame, part: int) -> None:
    value, made = frame.popn(2)
    FUNCTION_PARTS[part](frame, made, value)
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
def RETURN_VALUE(frame: Frame, _: Any) -> bool:
    frame.returned = frame.stack.pop()
    return True


@opcode
def YIELD_VALUE(frame: Frame, _: Any) -> bool:
    frame.yielded = frame.stack.pop()
    return True


@opcode
def DELETE_DEREF(frame: Any, name: str) -> None:
    LOAD_DEREF(frame, name)
    frame.stack.pop()
    frame.cells[name].store(None)


@opcode
def DELETE_GLOBAL(frame: Any, name: str) -> None:
    raise Break("global", f"del of the global {name}")


@opcode
def LOAD_SUPER_ATTR(frame: Any, arg: Any) -> None:
    name, flags = arg
    called, cls, instance = frame.popn(3)
    written_out = flags & 2  # super(cls, instance); Python adds the arguments of super() itself
    arguments = [cls, instance] if written_out or called.identity() is super else []
    found = called.call(frame, arguments, {}).getattr(frame, name)
    if flags & 1:
        push_callable(frame, found)
    else:
        frame.stack.append(found)


@opcode
def IMPORT_NAME(frame: Any, name: str) -> None:
    level, fromlist = frame.popn(2)
    inside = frame.function.globals.get("__name__", "")
    if not isinstance(inside, str):
        raise Break("import", "an import inside a module whose name is no text")
    package = frame.function.globals.get("__package__") or inside.rpartition(".")[0]
    where = {"__package__": package, "__name__": inside or None}
    names = fromlist.as_constant() or ()
    try:
        module = importlib.__import__(name, where, None, names, level.as_constant())
    except ours(ImportError) as error:
        guard_import(frame, name if error.name is None else error.name)
        frame.raise_(type(error), str(error))
    full_name = package_name(name, package, level.as_constant())
    modules = {full_name, module.__name__}  # `import a.b` gives a
    modules |= {f"{full_name}.{n}" for n in names if n not in vars(module)}  # from a import b
    for each in sorted(modules):
        guard_import(frame, each)
    frame.stack.append(frame.output.wrap_pinned(module))


def package_name(name: str, package: str, level: int) -> str:
    """`from ..name import value` in package a.b.c -> a.b.name."""
    start = package.rsplit(".", level - 1)[0] if level else ""
    return ".".join([part for part in (start, name) if part])


def guard_import(frame: Any, name: str) -> None:
    """Guard that `sys.modules` has the same module under this name, or none.

    After an import that failed no file is looked for again: a package that is installed while the
    program runs is not noticed."""
    modules = frame.output.tree.pinned(sys.modules, "modules")
    if name in sys.modules:
        frame.output.guard_fixed(modules.item(name), sys.modules[name])
    else:
        frame.output.guard_absent(modules, name)


@opcode
def IMPORT_FROM(frame: Any, name: str) -> None:
    module = frame.stack[-1]
    try:
        frame.stack.append(module.getattr(frame, name))
    except ObservedException:
        guard_import(frame, full_name := f"{module.value.__name__}.{name}")
        found = sys.modules.get(full_name)
        if found is None:
            frame.raise_(ImportError, f"cannot import name {name!r} from {module.value.__name__!r}")
        frame.stack.append(frame.output.wrap_pinned(found))


@opcode
def DICT_MERGE(frame: Any, n: int) -> None:
    other = frame.stack.pop()
    into = frame.stack[-n]
    for key, value in dict_pairs(frame, other):
        if key.hash_key(frame) in into.items:
            callee = frame.stack[-n - 2]
            text = f"got multiple values for keyword argument {key.as_constant()!r}"
            frame.raise_(TypeError, f"{getattr(callee, 'name', callee)}() {text}")
        into.store(frame, key, value)


@opcode
def UNPACK_EX(frame: Any, arg: Any) -> None:
    before, after = arg & 255, arg >> 8
    walk = frame.iter_of(frame.stack.pop())
    values = list(itertools.islice(walk.rest(frame), before))
    if len(values) == before:
        values += frame.listed(walk)
    if len(values) < before + after:
        counts = f"expected at least {before + after}, got {len(values)}"
        frame.raise_(ValueError, f"not enough values to unpack ({counts})")
    middle = ListVar(values[before : len(values) - after])
    frame.stack.extend(reversed([*values[:before], middle, *values[len(values) - after :]]))


@opcode
def STOPITERATION_ERROR(frame: Any, _: Any) -> None:
    """3.12+: an exception leaves a generator; a StopIteration would become a RuntimeError."""
    if issubclass(frame.stack[-1].python_type(), StopIteration):
        raise Break("generator", "a generator raises StopIteration")


@opcode
def SEND(frame: Any, target: int) -> None:
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


HANDLERS.update(
    {
        "END_SEND": lambda frame, _: frame.stack.pop(-2),
        "DELETE_ATTR": lambda frame, name: frame.stack.pop().delattr(frame, name),
        "DELETE_SUBSCR": lambda frame, _: frame.stack.pop(-2).delitem(frame, frame.stack.pop()),
    }
)
pushes(
    {
        "BUILD_SET": lambda frame, n: SetVar.of(frame, frame.popn(n)),
        "GET_LEN": lambda frame, _: frame.output.wrap_result(frame.stack[-1].length(frame)),
        "LOAD_NAME": lambda frame, name: frame.globals.load(frame, name),
        "GET_YIELD_FROM_ITER": lambda frame, _: frame.iter_of(frame.stack.pop()),
        # its rule breaks, at the call
        "LOAD_BUILD_CLASS": lambda frame, _: CallableVar(builtins.__build_class__),
        "MATCH_SEQUENCE": lambda frame, _: ConstantVar(
            bool(frame.stack[-1].python_type().__flags__ & 1 << 5)
        ),  # Py_TPFLAGS_SEQUENCE
    }
)
