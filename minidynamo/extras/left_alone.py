"""Frames that are not worth compiling are left alone, quickly, and this is told once.

In:   a call that no entry fits, and the deaths of modules that entries were made for.
Out:  whether the call runs as plain Python without another look.

* Past `config.recompile_limit` no guard is looked for: the first call there says which one failed.
* A module that is made anew in each call, used once and dropped, brings an entry that never answers
  a call.  After as many such deaths in a row as the limit allows, no more are compiled.

Mirrors torch/_dynamo/cache_size.py.
"""

import collections
import types
import weakref

from .extending import extends
from .. import config, frame_hook, hooks
from ..convert_frame import FrameCompiler
from ..entries import entries_before
from ..records import FrameRecord

from .forgotten import DEATHS
from .told import tell

# (id of a compiler, id of a code object, owner) -> the code object of which there are too many
# entries
GIVEN_UP: "weakref.WeakValueDictionary[tuple, types.CodeType]" = weakref.WeakValueDictionary()
# id of a code object -> how many modules have died in a row before a second call
UNUSED: collections.Counter[int] = collections.Counter()


@extends(FrameCompiler)
class Judging:
    def is_left_alone(self: FrameCompiler, code: types.CodeType, owner: int | None) -> bool:
        """Does this call run as plain Python?  Past the limit the first one does not: it tells."""
        if UNUSED[id(code)] >= config.recompile_limit:
            return True
        if self.fullgraph or len(entries_before(code, self, owner)) < config.recompile_limit:
            return False
        key = (id(self), id(code), owner)
        if GIVEN_UP.get(key) is code:
            return True
        GIVEN_UP[key] = code
        return False


@DEATHS.append
def note_death(code: types.CodeType, record: FrameRecord) -> None:
    """The module that an entry was made for has died."""
    if not config.count_hits:
        return
    if id(code) not in UNUSED:
        weakref.finalize(code, UNUSED.pop, id(code), None)
    UNUSED[id(code)] = 0 if record.hits else UNUSED[id(code)] + 1
    if UNUSED[id(code)] == config.recompile_limit:
        # not that of the entry: the graph of the dead module goes with it
        told = FrameRecord(weakref.ref(code), record.function, backend=record.backend)
        frame_hook.disabled(tell)(
            f"{code.co_name} ({code.co_filename}:{code.co_firstlineno}) was compiled for "
            f"{config.recompile_limit} modules that died before a second call: modules of this "
            f"kind run as plain Python from now on",
            told,
        )


hooks.RESETS.extend([UNUSED.clear, GIVEN_UP.clear])
