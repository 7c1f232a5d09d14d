"""Horizontal fusion: many kernels of the same body become one, as an optimizer has them.

In:   scheduled nodes.  Out: the same, in which `Foreach` groups stand for several groups that
      compute the same of different buffers, of different sizes.

    >>> [type(node).__name__ for node in schedule.nodes]     # the same, done to three tensors
    ['Group', 'Group', 'Group']
    >>> [type(node).__name__ for node in join_groups(schedule, record)]
    ['Foreach']

Groups are alike when their bodies are the same operations and every access is at element x0 or at a
fixed one, so that one loop over a number of elements serves all of them.  Only independent ones are
joined: those with equally long chains of nodes before them.  Results that would have to wait long
for their user stay in kernels of their own.

Mirrors combo kernels and foreach nodes in torch/_inductor (scheduler.py,
codegen/triton_combo_kernel.py).  Left out: joining different bodies.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from .. import config
from ..devices import language_of
from ..ir.dependencies import Instruction, Ref, int_or_none, loop_variable, merge_loops
from ..records import CompileRecord
from .nodes import Group, Node, Schedule, ScheduledNode, buffer_bytes

SMALL = 1 << 16  # bytes: a result that may wait for its user


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
    """The nodes of a schedule, those that are alike as one, where their language can write it."""
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
    used = schedule.escaping.union(*[n.read_names for n in schedule.nodes])
    level: dict[ScheduledNode, int] = {}
    sets: dict[tuple, list[Part]] = {}
    for node, before in schedule.makers(schedule.nodes).items():
        level[node] = 1 + max([level[one] for one in before], default=-1)
        part = over_one_loop(node) if is_plain(node) else None
        if part is not None:
            kept = [name for name in part.group.names if name in used]
            if all(may_wait(name, schedule) for name in kept):
                key = (level[node], *signature(part, kept, schedule))
                sets.setdefault(key, []).append(part)
    return list(sets.values())


def is_plain(node: Any) -> bool:
    """Is it a kernel that goes over its elements one by one?"""
    if not isinstance(node, Group):
        return False
    return not (node.is_reduction or node.inner or node.has_scan or node.targets)


def may_wait(name: str, schedule: Schedule) -> bool:
    """May this result be there long before its user asks for it?"""
    return name in schedule.escaping or buffer_bytes(schedule.buffers[name]) <= SMALL


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


def over_one_loop(group: Any) -> Part | None:
    """The group over one loop, where it is element by element."""
    bodies = merge_loops([n.body for n in group.nodes])
    if len(bodies[0].outer) > 1 or not int_or_none(math.prod(bodies[0].outer)):
        return None
    names: list[str] = []
    operations: list[tuple] = []
    for body in bodies:
        # element x0, or always the same one
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
