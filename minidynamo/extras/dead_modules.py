"""Entries that were made for modules which have died: they are dropped.

In:   an entry, when it is made.   Out: weak references to its modules, which drop it.

    >>> del model                       # and the code's cache has one entry less

Without this file such an entry stays, with the parameters of the module.
Mirrors `CheckFunctionManager.invalidate` in torch/_dynamo/guards.py.
"""

import types
import weakref
from collections.abc import Callable
from typing import Any

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
