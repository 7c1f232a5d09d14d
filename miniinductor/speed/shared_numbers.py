"""One number that many kernels read, such as a learning rate, is no reason to fuse them.

In:   the buffers that groups have in common (scheduler.py).  Out: of the users of a single number,
      those alone that compute a single number themselves.

Without this file an optimizer's steps are fused with each other because of it, which takes long.
"""

from collections.abc import Iterator, Sequence

from ..hooks import extends
from ..nodes import Group, ScheduledNode
from ..scheduler import Scheduler


@extends(Scheduler)
class NumbersApart(Scheduler):
    def users_of_buffers(self, nodes: Sequence[ScheduledNode]) -> Iterator[tuple[str, list[Group]]]:
        made = {name for node in nodes for name in node.names}
        for name, users in super().users_of_buffers(nodes):
            layout = self.buffers[name].layout  # None: of several results
            if layout is not None and layout.numel == 1 and name not in made:
                users = [user for user in users if not user.full]
            yield name, users
