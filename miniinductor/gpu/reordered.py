"""A pointwise group whose loops are a reduction's in another order, in one kernel with it.

In:   both.  Out: both over the reduction's loops, or why not.

    x - x.mean(1, keepdim=True) of images: the mean runs over c for each (n, pixel), what follows
    over (n, c, pixel).  In one kernel a tile of 64 pixels and all channels is read once.

speed/reordered_loops.py does so on a CPU, where other rows stay in a cache.
"""

import math

from .. import config
from ..dependencies import loop_variables, stride_of
from ..lowerings.targets import recomputes
from ..nodes import Group, Refused
from ..scheduler import MORE_WAYS, Pair
from ..speed.reordered_loops import in_order_of_reads

MOST = 1024  # elements of a row that a program reads twice from its own cache at worst
LEAST_ROWS = 1024


def on_reordered_tiles(reduction: Group, pointwise: Group) -> Pair:
    """Both over the loops of the reduction."""
    device = pointwise.nodes[0].buffer.layout.device
    numbers = all(isinstance(n, int) for n in reduction.full)
    if not config.loop_reordering or not recomputes(device) or not numbers:
        raise Refused("")
    if math.prod(reduction.inner) > MOST or math.prod(reduction.outer) < LEAST_ROWS:
        raise Refused("")
    return in_order_of_reads(reduction, pointwise, writes_as_it_reads)


def writes_as_it_reads(group: Group, index: object) -> bool:
    """Do its results lie in memory along the same loop as what it reads at `index`?"""
    along = [v for v in loop_variables("x", len(group.outer)) if stride_of(index, v) == 1]
    writes = [access for node in group.nodes for access in node.body.writes()]
    return all(stride_of(access.index, v) == 1 for access in writes for v in along)


MORE_WAYS.append(on_reordered_tiles)
