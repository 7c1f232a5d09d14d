"""A short loop as several, each of whole vectors: gcc would take what fills no vector one by one.

In:   a loop over 27 lanes.  Out: loops over lanes 0-16, 16-24, 24-27.
"""

import re

from .. import config
from ..codegen.cpp_reductions import Sums
from ..codegen.strategy import Found, Strategy, strategy
from ..codegen.tree import Statements, printed

SHORT = 512  # a loop up to which what fills no vector counts


@strategy(order=90)
class WholeVectors(Strategy):
    def applies(self) -> bool:
        return config.vectorize

    def innermost(self, body: Statements, accumulators: Sums, start: str, end: str) -> Found:
        if start != "0" or not end.isdigit() or int(end) > SHORT:
            return None
        if not accumulators and not any(re.search(r"mini::|/ ", line) for line in printed(body)):
            return None  # a few moves of memory
        parts = [(str(a), str(b)) for a, b in whole_vectors(int(end))]
        return self.writer.plain_loops(body, accumulators, parts)


def whole_vectors(size: int) -> list[tuple[int, int]]:
    """[(start, end)] of the parts of a loop over `size` lanes."""
    parts, at = [], 0
    for lanes in (16, 8, 4, 1):
        stop = size // lanes * lanes
        if stop > at:
            parts.append((at, stop))
        at = stop
    return parts
