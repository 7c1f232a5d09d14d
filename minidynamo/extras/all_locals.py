"""Code that asks for `locals()` may read any of its variables behind a graph break.

    def f(x):
        y = x + 1
        print("a graph break")
        return sorted(locals())         # ["x", "y"]

In:   a frame that is split.   Out: its locals, all of which live on, where its code may ask so.
"""

from .. import hooks
from ..replacement import Tail

READERS_OF_ALL = {"locals", "vars", "eval", "exec", "dir"}


@hooks.KEPT.append
def all_locals(tail: Tail) -> tuple[str, ...]:
    return tail.code.co_varnames if READERS_OF_ALL & set(tail.code.co_names) else ()
