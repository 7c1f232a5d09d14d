"""Opcodes that few programs have: imports, `del`, `yield from`, `*rest`, `**named`, `case [a, b]`.

In, out: as in `symbolic_eval.opcodes`, whose table these handlers join.
"""

import builtins
import importlib
import itertools
import sys
from typing import Any

from ..exceptions import Break, ObservedException
from ..foreign import ours
from ..symbolic_eval.opcodes import HANDLERS, LOAD_DEREF, opcode, push_callable, pushes
from ..variables.constant import ConstantVar
from ..variables.containers import ListVar, dict_pairs
from ..variables.functions import CallableVar
from ..variables.more.sets import SetVar


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
