"""Opcodes that few programs have: imports, `del`, `yield from`, `*rest`, `**named`.

In, out: as in `symbolic_eval.opcodes`, whose table these handlers join.
"""

import builtins
import importlib
import itertools
import sys
from typing import Any

from ..exceptions import Break, ObservedException
from ..foreign import ours
from ..symbolic_eval.opcodes import LOAD_DEREF, effects, opcode, push_callable, pushes
from ..variables.containers import ListVar
from ..variables.more.container_methods import dict_pairs
from ..variables.functions import CallableVar


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
    package = frame.function.globals.get("__package__") or inside.rpartition(".")[0]
    where = {"__package__": package, "__name__": inside or None}
    names = fromlist.as_constant() or ()
    try:
        module = importlib.__import__(name, where, None, names, level.as_constant())
    except ours(ImportError) as error:
        frame.raise_(type(error), str(error))
    frame.stack.append(frame.output.wrap_pinned(module))


@opcode
def IMPORT_FROM(frame: Any, name: str) -> None:
    module = frame.stack[-1]
    try:
        frame.stack.append(module.getattr(frame, name))
    except ObservedException:
        found = sys.modules.get(f"{module.value.__name__}.{name}")
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


@opcode
def CALL_INTRINSIC_1(frame: Any, which: Any) -> None:
    raise Break("opcode", f"the intrinsic {which} is not traced")


effects(
    {
        "END_SEND": lambda frame, _: frame.stack.pop(-2),
        "DELETE_ATTR": lambda frame, name: frame.stack.pop().delattr(frame, name),
        "DELETE_SUBSCR": lambda frame, _: frame.stack.pop(-2).delitem(frame, frame.stack.pop()),
    }
)
pushes(
    {
        "GET_YIELD_FROM_ITER": lambda frame, _: frame.iter_of(frame.stack.pop()),
        # its rule breaks, at the call
        "LOAD_BUILD_CLASS": lambda frame, _: CallableVar(builtins.__build_class__),
    }
)
