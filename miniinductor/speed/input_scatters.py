"""Scatters that write into an input itself, instead of into a copy that is copied back.

    cache.index_copy_(2, positions, keys)       # a few rows of a large tensor

In:   the scheduled nodes of a graph whose new value of an input is made by scatters, one after the
      other, the first into a copy of that input.
Out:  the first scatter writes into the input, the copy is gone, and all of them are said to lie
      there: {buffer of the last: input}.

Refused where anything reads what the input held after the first write, or as it is written, or
where the copy or a result in between is needed for itself.  Mirrors the mutation of inputs by
`index_put_` and `scatter_` in torch/_inductor/lowering.py (`mutate_to`).
"""

from dataclasses import replace

from ..ir import BufferView
from ..ir import Scatter
from ..nodes import Group, Node, Schedule, ScheduledNode


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
