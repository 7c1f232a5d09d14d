"""Inputs that a kernel writes straight into, instead of into new memory that is then copied.

In:   the scheduled nodes.  Out: {buffer: the graph input it overwrites}.

    >>> overwritten_inputs(nodes, schedule, record)    # p.sub_(g * 0.1): one kernel
    {'buf0': 'arg0'}

Every element of the old value must be read, for the last time, in the iteration that writes the new
one; memory.py asks the same (`may_overwrite`) of results that lie where something lay that dies.

Scatters write a few rows of a large tensor: `cache.index_copy_(2, positions, keys)`.  Where the new
value is made by scatters, one after the other, the first into a copy of the input, the first writes
into the input, the copy is gone, and all of them are said to lie there.  Refused where anything
reads what the input held after the first write, or as it is written, or where the copy or a result
in between is needed for itself.

Mirrors `can_inplace` and mutation renaming in torch/_inductor/scheduler.py, and the mutation of
inputs by `index_put_` and `scatter_` in torch/_inductor/lowering.py (`mutate_to`).  Left out: eager
kernels that write into an input (their result is copied).
"""

from dataclasses import replace

import torch

from .. import config
from ..ir.loops import BufferView, Graph, Scatter
from ..records import CompileRecord
from .nodes import Group, Node, Schedule, ScheduledNode


def overwritten_inputs(
    nodes: list[ScheduledNode], schedule: Schedule, record: CompileRecord
) -> dict[str, str]:
    """{buffer: input}.  Other nodes that read the input's old value stay before the kernel:
    `schedule.before` says so.

    `nodes` in execution order.  An input that is not overwritten is written by a copy at the end;
    the record says why."""
    result = scattered_inputs(nodes, schedule) if config.in_place else {}
    maker = {name: node for node in nodes for name in node.names}
    returned = returned_twice(schedule.graph)
    for target, view in schedule.graph.mutations:
        if view.name in result:
            continue
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


# --- scatters -------------------------------------------------------------------------------------
def scattered_inputs(nodes: list[ScheduledNode], schedule: Schedule) -> dict[str, str]:
    """{buffer: input}; `nodes`, in execution order, lose the copies."""
    found: dict[str, str] = {}
    for target, view in schedule.graph.mutations:
        maker = {name: node for node in nodes for name in node.names}
        chain = scatters_behind(view.name, maker)
        if chain and may_write(nodes, schedule, maker, chain, target, view):
            write_into(nodes, maker, chain[-1], target)
            found[view.name] = target
    return found


def scatters_behind(name: str, maker: dict[str, ScheduledNode]) -> list[Group]:
    """The scatters that make a buffer, the last one first."""
    chain: list[Group] = []
    while (group := maker.get(name)) is not None:
        if not isinstance(group, Group) or len(group.nodes) > 1 or not group.targets:
            break
        chain.append(group)
        (name,) = group.targets
    return chain


def may_write(
    nodes: list[ScheduledNode],
    schedule: Schedule,
    maker: dict[str, ScheduledNode],
    chain: list[Group],
    target: str,
    view: BufferView,
) -> bool:
    """Is it as good to write into `target`, and does nobody see the difference?"""
    (copied,) = chain[-1].targets
    given, made = schedule.buffers[target].layout, schedule.buffers[view.name].layout
    place = tuple(made.size), tuple(made.stride), made.offset
    if made != given or place != (tuple(view.size), tuple(view.stride), view.offset):
        return False
    if not is_copy(maker.get(copied), copied, target) or schedule.buffers[copied].layout != given:
        return False
    between = {copied, *[name for group in chain[1:] for name in group.names]}
    values = [value.name for _, value in schedule.graph.mutations]
    if between & {*schedule.escaping, *values} or values.count(view.name) > 1:
        return False
    if view.name in {v.name for v in schedule.graph.outputs if isinstance(v, BufferView)}:
        return False
    if any(target in {access.name for access in group.reads} for group in chain):
        return False
    first = nodes.index(chain[-1])
    readers = [n for n, node in enumerate(nodes) if {target, copied} & node.read_names]
    others = [n for n in readers if copied in nodes[n].read_names and n != first]
    return not others and all(n <= first for n in readers)


def is_copy(group: ScheduledNode | None, name: str, source: str) -> bool:
    """Is the buffer what the input holds, element by element?"""
    if not isinstance(group, Group):
        return False
    body = next(node for node in group.nodes if node.name == name).body
    reads = body.reads()
    return (
        [instruction.op for instruction in body.walk()] == ["load", "store"]
        and reads[0].name == source
        and reads[0].index == group.writes[name].index
    )


def write_into(
    nodes: list[ScheduledNode], maker: dict[str, ScheduledNode], first: Group, target: str
) -> None:
    """The first scatter takes over the input, and the kernel that copied it copies no more."""
    (copied,) = first.targets
    copying = maker[copied]
    assert isinstance(copying, Group)
    rest = [node for node in copying.nodes if node.name != copied]
    place = nodes.index(copying)
    nodes[place : place + 1] = [Group(rest, copying.outer, copying.inner)] if rest else []
    (node,) = first.nodes
    data = node.buffer.data
    assert isinstance(data, Scatter)
    buffer = replace(node.buffer, data=replace(data, target=target))
    nodes[nodes.index(first)] = Group([Node(buffer, node.body)], first.outer, first.inner)
