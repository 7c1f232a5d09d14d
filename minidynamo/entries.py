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

from . import frame_hook, records

# every code object that has entries: what `reset` forgets
CODES: "weakref.WeakValueDictionary[int, types.CodeType]" = weakref.WeakValueDictionary()


class CacheEntry(NamedTuple):
    """One compiled version of a frame.  The hook itself reads the first three, and the owner: see
    frame_hook.c."""

    check: types.FunctionType  # check(function, *parameters) -> may `code` run?
    code: types.CodeType
    compiler: Any  # the `FrameCompiler` whose hook may use it
    record: records.FrameRecord
    owner: int | None  # id of the module whose method it is
    watching: "list[weakref.ref[Any]]"  # drop the entry of a dead module: extras/forgotten.py


def owner_of(args: Sequence[Any]) -> int | None:
    """The id of the module whose method was called with these arguments.  (`isinstance` would read
    `__class__`, and may run the program's code.)"""
    return id(args[0]) if args and issubclass(type(args[0]), torch.nn.Module) else None


def entries_before(code: types.CodeType, compiler: Any, owner: int | None) -> list[CacheEntry]:
    """The compiler's entries of this code, the oldest first: each module has its own.  (The hook
    keeps those that were used last in front.  Others may put plain tuples into its list.)"""
    found = [
        entry
        for entry in frame_hook.get_cache(code) or []
        if type(entry) is CacheEntry
        and entry.compiler is compiler
        and (owner is None or entry.owner == owner)
    ]
    return sorted(found, key=lambda entry: entry.record.number)


def forget_entries() -> None:
    """Forget every entry of every code object."""
    for code in list(CODES.values()):
        frame_hook.set_cache(code, [])
    CODES.clear()
