"""What happens to kernels after fusion: some write into inputs, and many alike become one.

In:   the scheduled nodes.
Out:  {buffer: the graph input it overwrites}, so that nothing is copied; the nodes, in which
      `Foreach` groups stand for several groups that compute the same of different buffers, as an
      optimizer has them.

    >>> overwritten_inputs(nodes, schedule, record)    # p.sub_(0.1), of three tensors
    {'buf0': 'arg0', 'buf1': 'arg1', 'buf2': 'arg2'}
    >>> [type(node).__name__ for node in schedule.nodes]
    ['Group', 'Group', 'Group']
    >>> [type(node).__name__ for node in join_groups(schedule, record)]
    ['Foreach']

An input is overwritten where every element of its old value is read, for the last time, in the
iteration that writes the new one.  An input that is only copied for a scatter is overwritten by the
scatter, and the copy goes (`cache.index_copy_(2, positions, keys)`).  memory.py asks the same
(`may_overwrite`) before a result takes the memory of a buffer that its kernel reads last.

Groups are alike when their bodies are the same operations and every access is at element x0 or at a
fixed one, so that one loop over a number of elements serves all of them.  Only independent groups
are joined: those with equally long chains of nodes before them.  A group with a large result stays
a kernel of its own, since that would have to wait in memory for its user.

Mirrors `can_inplace`, mutation renaming, and combo kernels and foreach nodes in
torch/_inductor/scheduler.py (and codegen/triton_combo_kernel.py).  Left out: eager kernels that
write into an input (their result is copied), and scatters on a CPU; joining different bodies.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import sympy
import torch

from .. import config
from ..devices import language_of
from ..ir.dependencies import Instruction, Ref, int_or_none, loop_variable, merge_loops
from ..ir.loops import BufferView, Graph
from ..records import CompileRecord
from .nodes import Group, Node, Schedule, ScheduledNode, buffer_bytes


def overwritten_inputs(
    nodes: list[ScheduledNode], schedule: Schedule, record: CompileRecord
) -> dict[str, str]:
    """{buffer: the input that it overwrites}.  `schedule.before` then says that other readers of
    the input's old value come before the kernel.

    nodes: in execution order; a copy that goes leaves the list.  An input that is not overwritten
    is written by a copy at the end, and the record says why."""
    result: dict[str, str] = {}
    maker = {name: node for node in nodes for name in node.names}
    returned = returned_twice(schedule.graph)
    for target, view in schedule.graph.mutations:
        node: Any = maker.get(view.name)
        made: Any = getattr(schedule.buffers[view.name], "data", None)
        copy = copy_below(node, maker.get(getattr(made, "target", "")), target)
        readers = [n for n in nodes if n not in (node, copy) and target in n.read_names]
        why = reason_to_copy(schedule, node, target, view, copy)
        if not why and view.name in returned:
            why = "the new value is returned, too, as a tensor of its own"
        if not why and node and any(nodes.index(n) > nodes.index(node) for n in readers):
            why = "its old value is read later"
        if why:
            record.notes.append(f"{target} is written by a copy at the end: {why}")
        else:
            result[view.name] = target
            schedule.before.setdefault(view.name, set()).update(n.names[0] for n in readers)
            if copy:
                nodes.remove(copy)
                made.target = target
                changed = Group(node.nodes, node.outer, node.inner)
                nodes[nodes.index(node)] = changed
                maker.update(dict.fromkeys(changed.names, changed))
    return result


def copy_below(node: Any, base: Any, target: str) -> Any:
    """`base`, which makes the buffer that a scatter in `node` writes to, if all it does is to copy
    the input `target`; else None.

    (Not in C++: a scatter there has written some elements before it raises an IndexError.)"""
    if base is None or target in node.read_names or runs_once(base.device):
        return None
    is_one = len(base.nodes) == 1 and len(base.nodes[0].body.instructions) == 2
    copied = [(target, write.index) for write in base.writes.values()]
    return base if is_one and [(a.name, a.index) for a in base.reads] == copied else None


def returned_twice(graph: Graph) -> set[str]:
    """New values of inputs that are an output as well, or the new value of two inputs."""
    outputs = {v.name for v in graph.outputs if isinstance(v, BufferView)}
    written = [view.name for _, view in graph.mutations]
    return {name for name in written if name in outputs or written.count(name) > 1}


def reason_to_copy(
    schedule: Schedule, node: ScheduledNode | None, target: str, view: BufferView, copy: object
) -> str:
    """Why the input `target` cannot be overwritten by its new value, which `node` makes; or "".

    copy: the kernel that copies the input for `node`, a scatter; or None."""
    if not config.in_place:
        return "config.in_place is off"
    if not isinstance(node, Group):
        return "its new value is no kernel's result"
    layout, made = schedule.buffers[target].layout, schedule.buffers[view.name].layout
    body = next(n for n in node.nodes if n.name == view.name).body
    if body.inner and not runs_once(made.device):
        return "Triton: a kernel that goes through a row more than once computes elements again"
    places = {(tuple(t.size), tuple(t.stride)) for t in (view, made, layout)}
    if len(places) > 1 or view.offset != made.offset or made.dtype != layout.dtype:
        return "its memory is laid out differently"
    if not copy and not may_overwrite(node, view.name, target, True):
        return "its old value is read at other places or times than it is written"
    return ""


def runs_once(device: torch.device) -> bool:
    """Does a kernel of this device read each element of a row once?  C++ does."""
    return device.type == "cpu" and config.cpu_backend == "cpp"


def may_overwrite(group: Group, new: str, old: str, reads_first: bool) -> bool:
    """May `new`, which the group makes, lie where `old` lies, as far as the group itself goes?

    reads_first: the kernel reads the element of `old` before it writes that of `new`, so that other
    bodies of the loop may use what was read, too."""
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


SMALL = 1 << 16  # bytes of a result that may wait in memory for its user
SIZE = sympy.Symbol("size", integer=True, nonnegative=True)  # of the part that a Foreach computes


class Part(NamedTuple):
    """A group over one loop, in a form in which two can be compared."""

    node: Group  # as the schedule has it
    group: Group  # over one loop
    operations: tuple  # what its bodies do, with numbers for buffers
    names: list[str]  # of the buffers, by their numbers


class Foreach(Group):
    """Groups with the same body."""

    def __init__(self, parts: Sequence[Part]):
        first = parts[0].group
        super().__init__([n for part in parts for n in part.group.nodes], first.outer, first.inner)
        self.parts = parts


def join_groups(schedule: Schedule, record: CompileRecord) -> list[ScheduledNode]:
    """The nodes of a schedule, in which a `Foreach` stands for groups that are alike, where their
    language has a writer for it."""
    if not config.foreach:
        return schedule.nodes
    replaced: dict[ScheduledNode, Foreach] = {}
    for parts in sets_of_alike(schedule):
        language = language_of(parts[0].node.device)
        if Foreach not in language.writers():
            continue
        pointers = {schedule.overwritten.get(name, name) for name in parts[0].names}
        step = language.most_pointers // len(pointers)
        for start in range(0, len(parts), step):
            some = parts[start : start + step]
            if len(some) > 1:
                replaced.update(dict.fromkeys([part.node for part in some], Foreach(some)))
                names = ["+".join(part.group.names) for part in some]
                record.notes.append(
                    f"one kernel for {len(names)} groups that do the same with other buffers: "
                    f"{', '.join(names[:4])}{', ...' if len(names) > 4 else ''}"
                )
    return list(dict.fromkeys(replaced.get(node, node) for node in schedule.nodes))


def sets_of_alike(schedule: Schedule) -> list[list[Part]]:
    """Independent groups that do the same, in the order of their nodes."""
    used = schedule.in_memory()
    level: dict[ScheduledNode, int] = {}
    sets: dict[tuple, list[Part]] = {}
    for node, before in schedule.makers(schedule.nodes).items():
        level[node] = 1 + max([level[one] for one in before], default=-1)
        part = over_one_loop(node)
        if part is not None:
            kept = [name for name in part.group.names if name in used]
            if all(
                name in schedule.escaping or buffer_bytes(schedule.buffers[name]) <= SMALL
                for name in kept
            ):
                key = (level[node], *signature(part, kept, schedule))
                sets.setdefault(key, []).append(part)
    return list(sets.values())


def signature(part: Part, kept: Sequence[str], schedule: Schedule) -> tuple:
    """What alike groups have in common: operations, dtypes and devices of their buffers, which
    results are kept, and which of them lie where something else lay."""
    names, overwritten = part.names, schedule.overwritten
    layouts = [schedule.buffers[name].layout for name in names]
    types = tuple((layout.dtype, layout.device) for layout in layouts)
    places = tuple(
        names.index(overwritten[name]) if overwritten.get(name) in names else name in overwritten
        for name in kept
    )
    return part.operations, types, tuple(map(names.index, kept)), places


def over_one_loop(group: ScheduledNode) -> Part | None:
    """The group over one loop, if it is a pointwise kernel without a scatter that reads and writes
    element x0, or a fixed one; else None."""
    if not isinstance(group, Group) or group.is_reduction or group.inner:
        return None
    if group.has_scan or group.targets:
        return None
    bodies = merge_loops([n.body for n in group.nodes])
    if len(bodies[0].outer) > 1 or not int_or_none(math.prod(bodies[0].outer)):
        return None
    names: list[str] = []
    operations: list[tuple] = []
    for body in bodies:
        if not all(i == loop_variable("x", 0) or i.is_Integer for i in body.indices):
            return None
        for instruction in body.walk():
            if instruction.op in ("indirect_indexing", "masked"):
                return None
            operations.append(with_numbers(instruction, names))
    outer = bodies[0].outer or (1,)
    nodes = [Node(n.buffer, b.substitute(outer, (), {})) for n, b in zip(group.nodes, bodies)]
    return Part(group, Group(nodes, outer, ()), tuple(operations), names)


def with_numbers(instruction: Instruction, names: list[str]) -> tuple:
    """The instruction with the buffer's number in `names`, which grows, for its name."""
    args = list(instruction.args)
    if instruction.op in ("load", "store"):
        if args[0] not in names:
            names.append(args[0])
        args[0] = names.index(args[0])
    written = [arg if isinstance(arg, Ref) else repr(arg) for arg in args]
    return instruction.op, *written, instruction.result
