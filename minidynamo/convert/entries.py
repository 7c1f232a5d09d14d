"""The cache entries of code objects: what the frame hook looks through before it runs a frame.

In:   an entry per compiled version of a frame.   Out: those of a code object and a compiler.

    >>> for entry in frame_hook.get_cache(fn.__code__):
    ...     print(entry.record.guards)

Mirrors torch/_dynamo/types.py and csrc/dynamo/cache_entry.cpp.
"""

import types
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from .. import records
from ..frame import frame_hook
from ..variables.nn_modules import has_state

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
    owner: int | None  # id of the module whose method it is
    watching: "list[weakref.ref[Any]]"  # of modules: the entry goes with them


def owner_of(args: Sequence[Any]) -> int | None:
    """The id of the module with a state whose method was called with these arguments.
    (`isinstance` would read `__class__`, and may run the program's code.)"""
    is_module = args and issubclass(type(args[0]), torch.nn.Module)
    return id(args[0]) if is_module and has_state(args[0]) else None


def entries_before(code: types.CodeType, compiler: Any, owner: int | None) -> list[CacheEntry]:
    """The compiler's entries of this code, the oldest first: a module has its own.  (The hook keeps
    those that were used last in front.  Others may put plain tuples into its list.)"""
    found = [
        entry
        for entry in frame_hook.get_cache(code) or []
        if type(entry) is CacheEntry and entry.compiler is compiler and entry.owner == owner
    ]
    return sorted(found, key=lambda entry: entry.record.number)


def watch(code: types.CodeType, entry: CacheEntry, modules: Sequence[Any]) -> None:
    """Drop the entry once one of these modules dies, with the parameters that it holds.

    (The record's `code` is weak: a code object holds its entries, and the garbage collector does
    not look into code objects.)"""
    reference, check = weakref.ref(code), weakref.ref(entry.check)

    def died(_: object) -> None:
        if drop_entry is not None:  # at the end of the process nothing is left of this file
            drop_entry(reference(), check())

    entry.watching.extend(weakref.ref(module, died) for module in modules)


def drop_entry(code: types.CodeType | None, check: Any) -> None:
    """A module that an entry was made for has died.

    Its record goes, too: it would keep the parameters alive, perhaps through a code object, into
    which the garbage collector does not look."""
    entries: Any = (code is not None and frame_hook.get_cache(code)) or []
    for entry in [entry for entry in entries if entry[0] is check]:
        entries.remove(entry)
        note_death(code, entry)
        if entry.record in records.frames:
            records.frames.remove(entry.record)


def note_death(code: Any, entry: CacheEntry) -> None:
    """Several of them die unused, in a row, where a program makes a module in each call."""
    key = entry.compiler.key, id(code)
    if entry.record.hits >= WORTH:
        DEAD.pop(key, None)
        return
    if key not in DEAD:
        weakref.finalize(code, DEAD.pop, key, None)
    DEAD.setdefault(key, []).append(entry.record.hits)


def forget_entries() -> None:
    """Forget every entry of every code object."""
    DEAD.clear()
    for code in list(CODES.values()):
        frame_hook.set_cache(code, [])
    CODES.clear()
