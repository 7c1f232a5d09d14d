"""Objects from outside whose identity the program asked for: `x is y`, `id(x)`, `x in {y}`.

In:   each of them, when it is asked.
Out:  one guard: they are different objects in later calls, too.

    >>> note_asked(tx, x, y)        # guard: len({id(x), id(y)}) == 2

Inputs of a graph are guarded to be apart anyway; a tensor that is only compared is no input.
"""

from __future__ import annotations

from ... import hooks
from ...reconstruct import Codegen
from ..base import Frame, Source, Variable
from ..tensor import TensorVar


class Asked(dict[int, Source]):
    """Id of an object, or of its variable -> where it lies."""


def note_asked(tx: Frame, *values: Variable) -> None:
    for value in values:
        if value.source is not None:
            real = value.value if isinstance(value, TensorVar) else value.identity()
            tx.output.noted(Asked)[id(real)] = value.source


def guard_asked_apart(cg: Codegen) -> None:
    sources = [*cg.output.noted(Asked).values()]
    if sum(not is_fixed(source) for source in sources) == 0 or len(sources) < 2:
        return
    ids = ", ".join(f"id({{{n}}})" for n in range(len(sources)))
    cg.output.guard_pair("len({{" + ids + "}}) == " + str(len(sources)), *sources)


def is_fixed(source: Source) -> bool:
    """Is it the same object in every call of this entry?"""
    return source.kind == "pinned" or "ID" in source.guards


hooks.AFTER_WRITES.append(guard_asked_apart)
