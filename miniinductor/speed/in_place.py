"""Results that are written over memory that is there already, instead of into new memory and then
copied.

In:   the scheduled nodes.  Out: {buffer: the graph input it overwrites}; and, asked by the wrapper,
      whether a result may take the memory of a buffer that dies in the same kernel.

    >>> overwritten_inputs(nodes, order, record)    # p.sub_(g * 0.1): one kernel
    {'buf0': 'arg0'}

Both need that every element of the old value is read, for the last time, in the iteration that
writes the new one. Mirrors `can_inplace` and mutation renaming in torch/_inductor/scheduler.py and
memory_planning.py.  Left out: eager kernels and scatters that write into an input (their result is
copied).
"""

from collections.abc import Sequence

import torch

from .. import config
from ..hooks import IN_PLACE
from ..ir import BufferView, Graph, Layout
from ..nodes import Group, NodeGraph, ScheduledNode
from ..records import CompileRecord
from ..sizes.expressions import Size


def overwritten_inputs(
    nodes: Sequence[ScheduledNode], order: NodeGraph, record: CompileRecord
) -> dict[str, str]:
    """{buffer: input}.  Other nodes that read the input's old value stay before the kernel:
    `order.before` says so.

    `nodes` in execution order.  An input that is not overwritten is written by a copy at the end;
    the record says why."""
    result: dict[str, str] = {}
    maker = {name: node for node in nodes for name in node.names}
    returned = returned_twice(order.graph)
    for target, view in order.graph.mutations:
        node = maker.get(view.name)
        readers = [n for n in nodes if n is not node and target in n.read_names]
        why = reason_to_copy(order, node, target, view)
        if not why and view.name in returned:
            why = "the new value is returned, too, as a tensor of its own"
        if not why and any(nodes.index(n) > nodes.index(node) for n in readers):
            why = "its old value is read later"
        if why:
            record.notes.append(f"{target} is written by a copy at the end: {why}")
        else:
            result[view.name] = target
            order.before.setdefault(view.name, set()).update(n.names[0] for n in readers)
    return result


def returned_twice(graph: Graph) -> set[str]:
    """New values of inputs that are an output as well, or the new value of two inputs."""
    outputs = {v.name for v in graph.outputs if isinstance(v, BufferView)}
    written = [view.name for _, view in graph.mutations]
    return {name for name in written if name in outputs or written.count(name) > 1}


def reason_to_copy(
    order: NodeGraph, node: ScheduledNode | None, target: str, view: BufferView
) -> str:
    """Why the input `target` cannot be overwritten by its new value, which `node` makes; or ""."""
    if not config.in_place:
        return "config.in_place is off"
    if not isinstance(node, Group):
        return "its new value is no kernel's result"
    layout, made = order.buffers[target].layout, order.buffers[view.name].layout
    body = next(n for n in node.nodes if n.name == view.name).body
    if body.inner and not runs_once(made.device):
        return "Triton: a kernel that goes through a row more than once computes elements again"
    is_whole = (*places_of(view), view.offset) == (*places_of(made), made.offset)
    if not is_whole or (made.dtype, places_of(made)) != (layout.dtype, places_of(layout)):
        return "its memory is laid out differently"
    if not may_overwrite(node, view.name, target, True):
        return "its old value is read at other places or times than it is written"
    return ""


def places_of(lies: Layout | BufferView) -> tuple[tuple[Size, ...], tuple[Size, ...]]:
    return tuple(lies.size), tuple(lies.stride)


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


IN_PLACE.overwritten_inputs = overwritten_inputs
IN_PLACE.may_overwrite = may_overwrite
