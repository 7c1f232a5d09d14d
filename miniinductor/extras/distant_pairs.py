"""(coverage) Pairs of nodes that the scheduler does not look at are told, too.

In:   the groups of a schedule.  Out: in `record.fusions` one record per node and buffer for all the
      pairs that lie too far apart.

    >>> REACH               # a node is tried with so many next users of the same buffer
    16
"""

from collections.abc import Sequence

from ..hooks import extends
from ..nodes import ScheduledNode, buffer_bytes
from ..records import FusionDecision
from ..scheduler import REACH, Scheduler


@extends(Scheduler)
class TellingScheduler(Scheduler):
    def fuse(self, nodes: list[ScheduledNode]) -> list[ScheduledNode]:
        nodes = super().fuse(nodes)
        self.record.fusions.extend(self.too_far(nodes))
        return nodes

    def too_far(self, nodes: Sequence[ScheduledNode]) -> list[FusionDecision]:
        """One record per node and buffer for all the pairs that `candidates` leaves out."""
        return [
            FusionDecision(
                first="+".join(first.names),
                second=f"{len(users) - i - 1 - REACH} later users of {name}",
                fused=False,
                category="distant",
                reason=f"{REACH} other users of {name} lie between them: not tried",
                bytes_saved=buffer_bytes(self.buffers[name]),
            )
            for name, users in self.users_of_buffers(nodes)
            for i, first in enumerate(users[: -1 - REACH])
        ]
