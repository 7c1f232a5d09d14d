"""How often an entry has answered a call: its replacement code counts, a step of about 40 ns.

In:   entries that are made, with `config.count_hits`.
Out:  `FrameRecord.hits`, and the group "cache_hits" of `minidynamo.counters`.

    >>> minidynamo.counters["cache_hits"]       # Counter({'f': 3})

Mirrors the cache hits that torch/_dynamo/utils.py counts.
"""

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any, cast
from weakref import WeakKeyDictionary

from .. import config
from ..conversion import Conversion
from ..records import Counters, FrameRecord, frames
from ..variables.base import extends

# what the replacement code of a frame steps
CALLS: "WeakKeyDictionary[FrameRecord, itertools.count[int]]" = WeakKeyDictionary()
group_of = Counters.__getitem__


@extends(Conversion)
def tick(conversion: Conversion) -> Callable[[], Any] | None:
    if not config.count_hits:
        return None
    calls = CALLS[conversion.record] = itertools.count()
    return calls.__next__


@extends(FrameRecord, "hits")
@property
def hits(record: FrameRecord) -> int:
    """Calls that an entry answered: all but the one it was compiled for."""
    if record not in CALLS:
        return 0
    _, (calls,) = cast(Any, CALLS[record]).__reduce__()  # its next number, without a step
    return max(0, calls - 1)


@extends(Counters, "__getitem__")
def with_hits(counters: Counters, group: str) -> Counter[str]:
    """They are read off the records: the hot path only steps a number."""
    if group == "cache_hits":
        found: Counter[str] = Counter()
        for record in frames:
            found[record.function] += record.hits
        counters[group] = +found  # without those that have none
    return group_of(counters, group)
