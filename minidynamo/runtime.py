"""What replacement code calls: small helpers that rebuild values and replay mutations.

In:   values from the stack of a replacement code.   Out: the objects as the traced program left
      them.

    >>> next(iterator_at([3, 4, 5], 1, 1))
    4

Those that only coverage needs lie in its files.
"""

import collections
from typing import Any


def iterator_at(sequence: Any, index: int | None, step: int) -> Any:
    """iter(sequence), or reversed(sequence) for step -1, with item `index` to come next; it goes on
    to look at the live sequence.  index None: `more/iterators.py` positions it later."""
    made: Any = iter(sequence) if step > 0 else reversed(sequence)
    if index is not None and hasattr(made, "__setstate__"):
        made.__setstate__(index)
    elif index is not None:  # a deque's
        for _ in range(index if step > 0 else len(sequence) - 1 - index):
            next(made, None)
    return made


def replace_dict(target: Any, contents: dict) -> None:
    """Give a dict these contents, without a method that its class may have overridden."""
    kind = collections.OrderedDict if isinstance(target, collections.OrderedDict) else dict
    kind.clear(target)
    for key, value in contents.items():
        kind.__setitem__(target, key, value)
