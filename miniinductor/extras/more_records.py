"""What only the record wants: where buffers lie, which pairs are not tried.

What the record says of memory: where each buffer lies, how long, and what that sums
up to.

In:   the memory plan, while it is made (memory.py).  Out: `record.memory_plan`, `memory_lives`,
      `memory_steps`, `peak_live_bytes`, which `explain` draws.

    >>> plan = RecordedPlan(schedule, steps, main_device(graph), record)
    >>> plan.choose()
    >>> record.memory_plan
    [('buf3', 'new', 128)]

Pairs of nodes that the scheduler does not look at are told, too.

In:   the groups of a schedule.  Out: in `record.fusions` one record per node and buffer for all the
      pairs that lie too far apart.

    >>> REACH               # a node is tried with so many next users of the same buffer
    16
"""

import itertools
from collections.abc import Sequence

import torch

from ..hooks import extends
from ..ir import ExternKernel, MultiOutput
from ..kernels import KernelStep, Step
from ..memory import MemoryPlan, may_alias, storage_bytes
from ..nodes import ScheduledNode, buffer_bytes
from ..records import FusionDecision
from ..scheduler import REACH, Scheduler
from ..sizes.symbols import hint


@extends(MemoryPlan)
class RecordedPlan(MemoryPlan):
    def choose(self) -> None:
        self.lives: list[tuple[str, int, int, int]] = []  # (buffer, bytes, first, last step)
        super().choose()
        self.record_lives()

    def place(self, name: str, step: Step, position: int) -> str:
        place = super().place(name, step, position)
        buffer = self.buffers[name]
        is_extern = isinstance(buffer, (ExternKernel, MultiOutput))
        nbytes = hint(storage_bytes(buffer), 0)
        if not is_extern or name in self.in_arena:
            self.record.memory_plan.append((name, place, nbytes))
        if nbytes and not (is_extern and may_alias(buffer)):
            dies = self.last_use.get(self.root(name), position)
            if name in self.pinned:
                dies = len(self.steps) - 1
            self.lives.append((name, nbytes, position, dies))
        return place

    def record_lives(self) -> None:
        """Write the lives down, and the most bytes that live at one step; bytes that one buffer
        takes over from another belong to the new one from that step on."""
        below = list(itertools.accumulate([hint(size, 0) for size in self.slots], initial=0))
        at = {name: below[slot] + offset for name, (slot, offset) in self.in_arena.items()}
        changes = [0] * (len(self.steps) + 1)  # of the live bytes, at each step
        record = self.record
        record.memory_lives = []
        for name, nbytes, first, last in self.lives:
            last = min(last, self.taken_over.get(name, last + 1) - 1)
            record.memory_lives.append((name, at.get(name), nbytes, first, last))
            changes[first] += nbytes
            changes[last + 1] -= nbytes
        record.peak_live_bytes = max(itertools.accumulate(changes))
        record.memory_steps = [step_name(step) for step in self.steps]


def step_name(step: Step) -> str:
    """What a step is called in the record."""
    if isinstance(step, KernelStep):
        return step.name
    op = getattr(step.buffer, "op", None)
    return str(op).split(".")[-2] if isinstance(op, torch._ops.OpOverload) else step.buffer.name


# --- pairs that are not tried ---------------------------------------------------------------------
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
