"""Inputs that a kernel writes straight into, instead of into new memory that is then copied.

In:   the scheduled nodes.  Out: {buffer: the graph input it overwrites}.

    >>> overwritten_inputs(nodes, schedule, record)    # p.sub_(g * 0.1): one kernel
    {'buf0': 'arg0'}

Every element of the old value must be read, for the last time, in the iteration that writes the new
one; memory.py asks the same (`may_overwrite`) of results that lie where something lay that dies.

Mirrors `can_inplace` and mutation renaming in torch/_inductor/scheduler.py.  Left out: scatters and
eager kernels that write into an input (`cache.index_copy_(2, positions, keys)`: their result is
copied).
"""

import torch

from .. import config
from ..ir.loops import BufferView, Graph
from ..records import CompileRecord
from .nodes import Group, Schedule, ScheduledNode


def overwritten_inputs(
    nodes: list[ScheduledNode], schedule: Schedule, record: CompileRecord
) -> dict[str, str]:
    """{buffer: input}.  Other nodes that read the input's old value stay before the kernel:
    `schedule.before` says so.

    `nodes` in execution order.  An input that is not overwritten is written by a copy at the end;
    the record says why."""
    result: dict[str, str] = {}
    maker = {name: node for node in nodes for name in node.names}
    returned = returned_twice(schedule.graph)
    for target, view in schedule.graph.mutations:
        node = maker.get(view.name)
        readers = [n for n in nodes if n is not node and target in n.read_names]
        why = reason_to_copy(schedule, node, target, view)
        if not why and view.name in returned:
            why = "the new value is returned, too, as a tensor of its own"
        if not why and node and any(nodes.index(n) > nodes.index(node) for n in readers):
            why = "its old value is read later"
        if why:
            record.notes.append(f"{target} is written by a copy at the end: {why}")
        else:
            result[view.name] = target
            schedule.before.setdefault(view.name, set()).update(n.names[0] for n in readers)
    return result


def returned_twice(graph: Graph) -> set[str]:
    """New values of inputs that are an output as well, or the new value of two inputs."""
    outputs = {v.name for v in graph.outputs if isinstance(v, BufferView)}
    written = [view.name for _, view in graph.mutations]
    return {name for name in written if name in outputs or written.count(name) > 1}


def reason_to_copy(
    schedule: Schedule, node: ScheduledNode | None, target: str, view: BufferView
) -> str:
    """Why the input `target` cannot be overwritten by its new value, which `node` makes; or ""."""
    if not config.in_place:
        return "config.in_place is off"
    if not isinstance(node, Group):
        return "its new value is no kernel's result"
    layout, made = schedule.buffers[target].layout, schedule.buffers[view.name].layout
    body = next(n for n in node.nodes if n.name == view.name).body
    if body.inner and not runs_once(made.device):
        return "Triton: a kernel that goes through a row more than once computes elements again"
    whole = (tuple(view.size), tuple(view.stride), view.offset) == (
        tuple(made.size),
        tuple(made.stride),
        made.offset,
    )
    if not whole or (made.dtype, tuple(made.size), tuple(made.stride)) != (
        layout.dtype,
        tuple(layout.size),
        tuple(layout.stride),
    ):
        return "its memory is laid out differently"
    if not may_overwrite(node, view.name, target, True):
        return "its old value is read at other places or times than it is written"
    return ""


def runs_once(device: torch.device) -> bool:
    """Does a kernel of this device read each element of a row once?  C++ does."""
    return device.type == "cpu" and config.cpu_backend == "cpp"


def may_overwrite(group: Group, new: str, old: str, reads_first: bool) -> bool:
    """May `new`, made by the group, lie where `old` lies, as far as the group itself goes?

    reads_first: the kernel reads `old` right before it writes `new`, so that other bodies of one
    loop may read it, too."""
    if group.has_scan or group.targets:
        return False
    element = group.writes[new].index
    readers = [
        (node, access) for node in group.nodes for access in node.body.reads() if access.name == old
    ]
    return all(
        access.index == element and (node.name == new or reads_first and not group.is_reduction)
        for node, access in readers
    )
