"""The cache entries of code objects, which the frame hook looks through before it runs a frame, and
the guards that a whole entry needs: the thread's state, and inputs that must stay apart.

In:   the `OutputGraph` of a frame that was traced.
Out:  its `GuardFunction`; the entries of a code object and a compiler.

    >>> for entry in frame_hook.get_cache(fn.__code__):
    ...     print(entry.record.guards)
    >>> [str(guard) for guard in state_guards()][0]
    'GRAD_MODE    grad_mode() == state_grad_mode'

Mirrors torch/_dynamo/types.py, csrc/dynamo/cache_entry.cpp, and `GlobalStateGuard` and the aliasing
guards of torch/_dynamo/guards.py.
"""

import inspect
import types
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from .. import records
from ..bytecode.assembler import parameter_count
from ..frame import frame_hook
from ..graph.output_graph import OutputGraph
from ..guards.checks import DETAILS, STATE
from ..guards.guards import Guard, GuardFunction
from ..guards.sources import Source
from ..variables.base import guard_classes
from ..variables.functions import CellVar
from ..variables.nn_modules import has_state
from ..variables.tensor import TensorVar

# every code object that has entries: what `reset` forgets
CODES: "weakref.WeakValueDictionary[int, types.CodeType]" = weakref.WeakValueDictionary()
WORTH = 20  # an entry that answered so many calls before its module died was worth it
# (key of a compiler, id of a code object) -> how many calls the entries answered that died without
# being worth it, in a row
DEAD: dict[tuple[Any, int], list[int]] = {}


class CacheEntry(NamedTuple):
    """One compiled version of a frame.  The hook itself reads the first three: see frame_hook.c."""

    check: types.FunctionType  # check(function, *parameters) -> may `code` run?
    code: types.CodeType
    compiler: Any  # the `FrameCompiler` whose hook may use it
    record: records.FrameRecord
    owner: tuple[int, ...] | None  # ids of the modules that it was made for
    watching: "list[weakref.ref[Any]]"  # of modules: the entry goes with them


def owner_of(args: Sequence[Any]) -> tuple[int, ...] | None:
    """The ids of the modules with a state among these arguments: `self`, or what a loop over
    modules has reached where its body broke.
    (`isinstance` would read `__class__`, and may run the program's code.)"""
    ids = [
        id(value) for value in args if issubclass(type(value), torch.nn.Module) and has_state(value)
    ]
    return tuple(ids) or None


def entries_before(code: types.CodeType, compiler: Any, owner: Any) -> list[CacheEntry]:
    """The compiler's entries of this code, the oldest first: modules have their own.  (The hook
    keeps those that were used last in front.  Others may put plain tuples into its list.)"""
    found = [
        entry
        for entry in frame_hook.get_cache(code) or []
        if type(entry) is CacheEntry and entry.compiler is compiler and entry.owner in (owner, None)
    ]
    return sorted(found, key=lambda entry: entry.record.number)


def watch(code: types.CodeType, entry: CacheEntry, modules: Sequence[Any]) -> None:
    """Drop the entry once one of these modules dies, with the parameters that it holds; or with
    `reset`.

    (The record's `code` is weak: a code object holds its entries, and the garbage collector does
    not look into code objects.)"""
    reference, check = weakref.ref(code), weakref.ref(entry.check)

    def died(_: object) -> None:
        if drop_entry is not None:  # at the end of the process nothing is left of this file
            drop_entry(reference(), check())

    CODES[id(code)] = code
    entry.watching.extend(weakref.ref(module, died) for module in modules)


def drop_entry(code: types.CodeType | None, check: Any) -> None:
    """A module that an entry was made for has died.

    Its record goes, too: it would keep the parameters alive, perhaps through a code object, into
    which the garbage collector does not look."""
    entries: Any = (code is not None and frame_hook.get_cache(code)) or []
    for entry in [entry for entry in entries if entry[0] is check]:
        entries.remove(entry)
        note_death(code, entry)
        records.forget(entry.record)


def note_death(code: Any, entry: CacheEntry) -> None:
    """Several of them die unused, in a row, where a program makes a module in each call."""
    key = entry.compiler.key, id(code)
    if entry.record.hits >= WORTH:
        DEAD.pop(key, None)
        return
    if key not in DEAD:
        weakref.finalize(code, DEAD.pop, key, None)
    DEAD.setdefault(key, []).append(entry.record.hits)


def run_plain(code: types.CodeType) -> None:
    """Frames of this code are no longer converted; `reset` gives it another chance."""
    frame_hook.set_cache(code, None)
    CODES[id(code)] = code


def forget_entries() -> None:
    """Forget every entry of every code object."""
    DEAD.clear()
    for code in list(CODES.values()):
        frame_hook.set_cache(code, [])
    CODES.clear()


# ---- the guards of a whole entry


def state_guards() -> list[Guard]:
    """The thread's state is what it is now; details only where they matter now."""
    guards = []
    for name, read in (*STATE, *(row for matters, row in DETAILS if matters())):
        called = name.lower()
        check = f"{called}() == state_{called}"
        guards.append(Guard(name, None, check, {"state_" + called: read()}))
    return guards


def entry_guards(output: OutputGraph, code: types.CodeType) -> GuardFunction:
    """Everything that the entry assumes, as one function."""
    state = state_guards()
    # inputs that are different tensors now must be different later: writes may reach both
    guard_apart(output, [v.source for v in output.inputs if type(v) is TensorVar])
    guard_keys_apart(output)
    guard_cells_apart(output)
    guard_written_apart(output, code)
    guard_classes(output)
    output.policy.check_marks(output.shape_env.pinned())  # the backend may have needed a number
    output.guard_absences()
    output.pair_guards += output.shape_env.guards()
    parameters = list(code.co_varnames[: parameter_count(code)])
    return GuardFunction(output.tree, parameters, state, output.pair_guards)


def guard_keys_apart(output: OutputGraph) -> None:
    """Objects that were keys by their identity are different ones later, too."""
    asked = [*output.asked.values()]
    if not all(source.kind == "pinned" or "ID" in source.guards for source in asked):
        guard_apart(output, asked)


def guard_cells_apart(output: OutputGraph) -> None:
    """A variable of a closure that is written is no other function's."""
    cells = [variable for variable, _ in output.memo.values() if type(variable) is CellVar]
    if any(cell.mutated for cell in cells):
        guard_apart(output, [cell.source for cell in cells])


def guard_apart(output: OutputGraph, sources: list[Source]) -> None:
    """At all these sources lie different objects."""
    if len(sources) > 1:
        # three of them: `len({id(x), id(y), id(z)}) == 3`; braces of the set itself are doubled
        ids = ", ".join(f"id({{{n}}})" for n in range(len(sources)))
        output.guard_pair("len({{" + ids + "}}) == " + str(len(sources)), *sources)


def guard_written_apart(output: OutputGraph, code: types.CodeType) -> None:
    """A write must not reach something that was taken for another object.

    def f(a, b): a.append(1); return len(b)     # a, b: two lists now, and never the same one"""
    fresh: Source | None = None  # the dictionary of **keywords is made in each call
    if code.co_flags & inspect.CO_VARKEYWORDS:
        fresh = output.tree.locals.get(code.co_varnames[parameter_count(code) - 1])
    # (an object's `__dict__` belongs to it alone)
    found = [(id(variable), variable.source) for variable in output.sourced]
    sources = {
        key: s.base if s is not None and s.kind in ("dict", "raw_dict") else s for key, s in found
    }
    # (of a module the `__dict__` alone is there, and its id may be guarded)
    kinds = {sources[id(variable)]: variable.python_type() for variable in output.sourced}
    known = [source for source in kinds if source and "MODULE" not in source.guards]
    for variable in output.sourced:
        source = sources[id(variable)]
        if not variable.mutated or source is fresh or source not in known:
            continue
        known.remove(source)  # each pair once
        for other in known:
            if other.kind != "pinned" and kinds[other] is kinds[source]:
                output.guard_pair("{0} is not {1}", source, other)
