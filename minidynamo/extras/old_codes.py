"""(coverage) A program that makes its functions anew keeps the memory of a few of them.

In:   code objects that get entries.   Out: of those that were made of the same line, all but the
      last ones forget theirs.

    for _ in range(1000):
        exec(source, namespace := {})           # each time another code object
        minidynamo.compile(namespace["f"])(x)

An entry knows its program's globals, these the function, the function its code, and the code its
entries: a circle through a code object, into which the garbage collector does not look.  So without
this each of them lives for ever: 50 KiB, and what the backend has made.  A function that is called
again after its entries have gone is compiled again.

PyTorch: keeps all of them.
"""

import collections
import types
import weakref

from .. import frame_hook, hooks, records
from ..conversion import Conversion
from ..entries import CacheEntry

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
