"""What has died is forgotten: entries of modules, functions that are made anew, texts of graphs.

In:   entries when they are made, and the GraphModules that torch.fx makes.
Out:  weak references, and what happens at the end of what they refer to:
      a module: its entries are dropped, with the parameters that they hold;
      code that a program makes anew of the same line, time and again: all but the last ones lose
      their entries;
      a GraphModule: its text, which torch.fx keeps for tracebacks, is forgotten.

    >>> del model                       # and the code's cache has one entry less

    for _ in range(1000):
        exec(source, namespace := {})           # each time another code object
        minidynamo.compile(namespace["f"])(x)

An entry knows its program's globals, these the function, the function its code, and the code its
entries: a circle through a code object, into which the garbage collector does not look.  So without
this file each of them lives for ever: 50 KiB, and what the backend has made.  A function that is
called again after its entries have gone is compiled again.

Mirrors `CheckFunctionManager.invalidate` in torch/_dynamo/guards.py.
# PyTorch: functions that are made anew keep all their entries.
"""

import collections
import linecache
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch

from .. import frame_hook, hooks, records
from ..conversion import Conversion
from ..entries import CacheEntry

# told of the code object and the record of each entry that is dropped
DEATHS: list[Callable[[types.CodeType, records.FrameRecord], None]] = []


@hooks.COMPILED.append
def watch(conversion: Conversion, entry: CacheEntry) -> None:
    """Weak references that drop the entry once one of its modules dies."""
    code, check = weakref.ref(conversion.code), weakref.ref(entry.check)

    def died(_: object) -> None:
        if drop_entry is not None:  # at the end of the process nothing is left of this file
            drop_entry(code(), check())

    modules = conversion.attempts[-1].modules
    entry.watching.extend(weakref.ref(module, died) for module in modules)


def drop_entry(code: types.CodeType | None, check: types.FunctionType | None) -> None:
    """A module that an entry was made for has died.

    Its record goes, too: it would keep the parameters alive, perhaps through a code object, into
    which the garbage collector does not look."""
    entries: Any = (code is not None and frame_hook.get_cache(code)) or []
    for entry in [entry for entry in entries if entry[0] is check]:
        entries.remove(entry)
        for note in DEATHS:
            note(code, entry.record)
        if entry.record in records.frames:
            records.frames.remove(entry.record)


# --- functions that are made anew -----------------------------------------------------------------
MOST = 32  # code objects of one line that keep their entries

Place = tuple[str, int, str]
BY_PLACE: dict[Place, "collections.deque[weakref.ref[types.CodeType]]"] = {}


def forget_old(conversion: Conversion, entry: CacheEntry) -> None:
    """A code has got an entry: the oldest of its place loses its own, if there are too many."""
    code = entry.record.code
    assert code is not None
    place = code.co_filename, code.co_firstlineno, code.co_qualname
    codes = BY_PLACE.setdefault(place, collections.deque())
    if any(other() is code for other in codes):
        return
    codes.append(weakref.ref(code))
    while len(codes) > MOST:
        old = codes.popleft()()
        if old is not None:
            frame_hook.set_cache(old, [])
            for record in [record for record in records.frames if record.code is old]:
                records.frames.remove(record)


hooks.COMPILED.append(forget_old)
hooks.RESETS.append(BY_PLACE.clear)


# --- texts of graphs ------------------------------------------------------------------------------
def forget_source(file: str) -> None:
    """torch.fx keeps the text of every GraphModule that ever was, for tracebacks."""
    linecache.cache.pop(file, None)
    torch.fx.graph_module._loader.eval_cache.pop(file, None)


@hooks.GRAPH_MODULES.append
def forget_at_its_end(_: object, made: torch.fx.GraphModule) -> None:
    weakref.finalize(made, forget_source, type(made).forward.__code__.co_filename).atexit = False
