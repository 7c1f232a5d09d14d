"""How often each entry answers a call: `record.hits`, `minidynamo.counters["cache_hits"]`.

In:   the replacement code of an entry, before it is put together.
Out:  the same with one C call in front, which steps the record's counter (config.count_hits).

    >>> minidynamo.counters["cache_hits"]           # Counter({'f': 3})

Without this file nothing is counted, and each entry has 0 hits.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from .. import config
from ..conversion import Conversion
from ..records import Counters, frames
from ..replacement import Head
from ..symbolic_eval.evaluator import RootFrame
from .extending import extends, noted

trace, read_sizes, read_group = Conversion.trace, Head.read_sizes, Counters.__getitem__


class Ticks(list[Callable[[], Any]]):
    """What the replacement code of this attempt calls first."""


@extends(Conversion, "trace")
def counted_trace(conversion: Conversion) -> RootFrame:
    frame = trace(conversion)
    if config.count_hits:
        noted(frame.output, Ticks).append(conversion.record.calls.__next__)
    return frame


@extends(Head, "read_sizes")
def ticking_head(head: Head, symbols: list[Any], inputs: Sequence[Any]) -> list[str]:
    for tick in noted(head.output, Ticks):
        head.call_object(tick)
        head.emit("POP_TOP")
    return read_sizes(head, symbols, inputs)


@extends(Counters, "__getitem__")
def counted(counters: Counters, group: str) -> Counter[str]:
    if group == "cache_hits":  # read off the records: the hot path only steps a counter
        hits: Counter[str] = Counter()
        for record in frames:
            hits[record.function] += record.hits
        counters[group] = +hits  # without those that have none
    return read_group(counters, group)
