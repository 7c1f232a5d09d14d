"""Results that are written over memory that is there already, instead of into new memory and then
copied.

In:   the scheduled nodes.  Out: {buffer: the graph input it overwrites}; and, asked by the wrapper,
      whether a result may
take the memory of a buffer that dies in the same kernel.

    >>> overwritten_inputs(scheduler, nodes)        # p.sub_(g * 0.1): one kernel reads p and g, and writes p
    {'buf0': 'arg0'}

Both need that every element of the old value is read, for the last time, in the iteration that
writes the new one. Mirrors `can_inplace` and mutation renaming in torch/_inductor/scheduler.py and
memory_planning.py.  Left out: eager kernels and scatters that write into an input (their result is
copied).
"""

from typing import TYPE_CHECKING, Any

from . import config
from .ir import BufferView, Layout

if TYPE_CHECKING:
    from .scheduler import Scheduler


def overwritten_inputs(scheduler: "Scheduler", nodes: list[Any]) -> dict[str, str]:
    """{buffer: input}.  Other nodes that read the input's old value stay before the kernel:
    `scheduler.before` says so.

    `nodes` in execution order.  An input that is not overwritten is written by a copy at the end;
    the record says why."""
    result = {}
    maker = {name: node for node in nodes for name in node.names}
    taken = [v.name for v in scheduler.graph.outputs if isinstance(v, BufferView)]
    taken += [view.name for _, view in scheduler.graph.mutations]
    for target, view in scheduler.graph.mutations:
        node = maker.get(view.name)
        readers = [n for n in nodes if n is not node and target in n.read_names]
        why = reason_to_copy(scheduler, node, target, view)
        if not why and taken.count(view.name) > 1:
            why = "the new value is returned, too, as a tensor of its own"
        if not why and any(nodes.index(n) > nodes.index(node) for n in readers):
            why = "its old value is read later"
        if why:
            scheduler.record.notes.append(f"{target} is written by a copy at the end: {why}")
        else:
            result[view.name] = target
            scheduler.before.setdefault(view.name, set()).update(n.names[0] for n in readers)
    return result


def reason_to_copy(scheduler: "Scheduler", node: Any, target: str, view: BufferView) -> str | None:
    """Why the new value cannot be written over the input `target`; None if it can."""
    if not config.in_place:
        return "config.in_place is off"
    layout = scheduler.buffers[target].layout
    if node is None or not hasattr(node, "writes"):
        return "its new value is no kernel's result"
    made = scheduler.buffers[view.name].layout
    if made.device.type != "cpu" or config.cpu_backend != "cpp":
        member = next(n for n in node.nodes if n.name == view.name)
        if member.body.inner:
            return "Triton: a kernel that goes through a row more than once computes elements again"
    is_whole = _place(view) == _place(made) and view.offset == made.offset
    if not is_whole or made.dtype != layout.dtype or _place(made) != _place(layout):
        return "its memory is laid out differently"
    if not may_overwrite(node, view.name, target, True):
        return "its old value is read at other places or times than it is written"
    return None


def _place(layout: BufferView | Layout) -> tuple[Any, Any]:
    return tuple(layout.size), tuple(layout.stride)


def may_overwrite(group: Any, new: str, old: str, reads_first: bool) -> bool:
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
