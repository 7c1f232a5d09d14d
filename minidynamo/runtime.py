"""What replacement code calls: small helpers that rebuild iterators and replay mutations.

In:   values from the stack of a replacement code.   Out: the objects as the traced program left
      them.

    >>> next(advanced([3, 4, 5], 1))
    4
"""

import collections
from collections.abc import Callable, Iterator
from typing import Any


def iterator_at(sequence: Any, index: int | None, step: int) -> Any:
    """iter(sequence), or reversed(sequence) for step -1, with `index` to come next (None: see
    `position`), still looking at the live sequence."""
    made: Any = iter(sequence) if step > 0 else reversed(sequence)
    if index is not None and hasattr(made, "__setstate__"):
        made.__setstate__(index)
    elif index is not None:  # a deque's
        for _ in range(index if step > 0 else len(sequence) - 1 - index):
            next(made, None)
    return made


def advanced(values: Any, taken: int) -> Iterator[Any]:
    """iter(values), `taken` steps on."""
    made = iter(values)
    for _ in range(taken):
        next(made)
    return made


# name of a class of iterators -> function that makes one over these values; coverage adds some
LIKE: dict[str, Callable[[Any], Any]] = {}


def iterator_like(kind: str, values: Any) -> Any:
    """An iterator over `values` whose class is called `kind`."""
    return LIKE.get(kind, iter)(values)


def position(iterator: Any, index: int) -> None:
    """`index` comes next, now that the list has been written: it would be cut to the list's old
    length before."""
    iterator.__setstate__(index)


def replace_dict(target: Any, contents: dict) -> None:
    kind = collections.OrderedDict if isinstance(target, collections.OrderedDict) else dict
    kind.clear(target)
    for key, value in contents.items():
        kind.__setitem__(target, key, value)
