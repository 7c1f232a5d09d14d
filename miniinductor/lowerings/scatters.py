"""Order and memory of scatters, which write into the memory of a buffer."""

from collections.abc import Iterable, Sequence

import torch

from ..hooks import extends
from ..kernels import KernelStep, Step
from ..memory import MemoryPlan
from ..nodes import Schedule, ScheduledNode
from ..records import CompileRecord


# --- order and memory -----------------------------------------------------------------------------
@extends(Schedule)
class ScheduleOfScatters(Schedule):
    def must_follow(self, node: ScheduledNode, nodes: Iterable[ScheduledNode]) -> set[str]:
        names = super().must_follow(node, nodes)
        for target in getattr(node, "targets", ()):
            names.update(
                other.names[0]
                for other in nodes
                if other is not node
                and target in other.read_names
                and not (set(node.names) & other.read_names)
            )
        return names


@extends(MemoryPlan)
class MemoryOfScatters(MemoryPlan):
    def __init__(
        self, schedule: Schedule, steps: Sequence[Step], device: torch.device, record: CompileRecord
    ):
        super().__init__(schedule, steps, device, record)
        self.memory_of.update(scatter_targets(steps))


def scatter_targets(steps: Sequence[Step]) -> dict[str, str]:
    """{a scatter's result: the buffer into which it writes}

    Without results that nobody needs: their kernels check the positions, and write nothing."""
    targets = {}
    for step in steps:
        if isinstance(step, KernelStep):
            for node in step.group.nodes:
                target = getattr(getattr(node.buffer, "data", None), "target", None)
                if target is not None and node.buffer.name in step.made():
                    targets[node.buffer.name] = target
    return targets
