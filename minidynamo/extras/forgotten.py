"""What has died is forgotten: entries of functions that are made anew, texts of graphs.

In:   entries when they are made, and the GraphModules that torch.fx makes.
Out:  code that a program makes anew of the same line, time and again: all but the last ones lose
      their entries;
      a GraphModule: its text, which torch.fx keeps for tracebacks, is forgotten at its end.

    for _ in range(1000):
        exec(source, namespace := {})           # each time another code object
        minidynamo.compile(namespace["f"])(x)

An entry knows its program's globals, these the function, the function its code, and the code its
entries: a circle through a code object, into which the garbage collector does not look.  So without
this file each of them lives for ever: 50 KiB, and what the backend has made.  A function that is
called again after its entries have gone is compiled again.

# PyTorch: functions that are made anew keep all their entries.
"""

import collections
import linecache
import types
import weakref

import torch

from .. import frame_hook, hooks, records
from ..conversion import Conversion
from ..entries import CacheEntry

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
