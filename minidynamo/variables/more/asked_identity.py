"""Objects from outside that are keys by their identity: `x in {y}`, `names[id(x)]`.

In:   each of them, when it is looked up.
Out:  guards: the same ones are one object in later calls, too, and the others are not.

    >>> builder.note_key(x), builder.note_key(y)        # guard: len({id(x), id(y)}) == 2

Inputs of a graph are guarded to be apart anyway; a tensor that is only looked up is no input.
"""

from ... import hooks
from ...reconstruct import Codegen
from ..base import Source


def guard_asked_apart(cg: Codegen) -> None:
    sources = [*cg.output.asked.values()]
    if len(sources) < 2 or all(map(is_fixed, sources)):
        return
    ids = ", ".join(f"id({{{n}}})" for n in range(len(sources)))
    cg.output.guard_pair("len({{" + ids + "}}) == " + str(len(sources)), *sources)


def is_fixed(source: Source) -> bool:
    """Is it the same object in every call of this entry?"""
    return source.kind == "pinned" or "ID" in source.guards


hooks.AFTER_WRITES.append(guard_asked_apart)
