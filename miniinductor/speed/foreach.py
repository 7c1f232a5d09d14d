"""Many kernels of the same body become one: what an optimizer does to each parameter.

In:   scheduled nodes.  Out: the same, in which `Foreach` groups stand for several groups that
      compute the same of
different buffers, of different sizes.

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
from dataclasses import dataclass, replace
from typing import TypeAlias

import sympy

from .. import config
from ..codegen.common import Kernel
from ..dependencies import Instruction, Ref, int_or_none, loop_variable, merge_loops
from ..devices import language_of
from ..hooks import JOINERS
from ..nodes import Group, Node, Schedule, ScheduledNode, buffer_bytes
from ..listings import Marked, lines_of
from ..records import CompileRecord

SMALL = 1 << 16  # bytes: a result that may wait for its user


Part: TypeAlias = tuple[
    Group, list[str]
]  # a group over one loop, its buffers as the body names them


class Foreach(Group):
    """Groups with the same body."""

    def __init__(self, parts: Sequence[Part]):
        first = parts[0][0]
        super().__init__([n for group, _ in parts for n in group.nodes], first.outer, first.inner)
        self.parts = parts


@lines_of.register
def foreach_lines(kernels: Foreach) -> list[str]:
    (first, _), *others = kernels.parts
    head = f"{len(kernels.parts)} times the same kernel; the first:"
    lines = [
        Marked.of(head, f"group:foreach {kernels.names[0]}", kernels.names, op="group"),
        *lines_of(first),
    ]
    for group, _ in others:
        text = f"  and {', '.join(group.names)} over {list(group.outer)}"
        lines.append(Marked.of(text, f"group:{'+'.join(group.names)}", group.names, op="group"))
    return lines


def of_all_parts(kernel: Kernel, parts: Sequence[Part]) -> Kernel:
    """The first part's kernel as that of all: theirs stand where the first's stand there."""
    first = parts[0][1]

    def every(names: Sequence[str]) -> list[str]:
        return [theirs[first.index(name)] for _, theirs in parts for name in names]

    def of_part(mark: str, theirs: Sequence[str]) -> str:
        """ "buf0.3" of the first part is "buf7.3" of another one."""
        buffer, dot, number = mark.partition(".")
        return theirs[first.index(buffer)] + dot + number if buffer in first else mark

    def of_all(marks: Sequence[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(of_part(mark, theirs) for _, theirs in parts for mark in marks))

    about = [(name, of_all(marks), *more) for name, marks, *more in kernel.about]
    summary = "foreach_" + kernel.summary
    stored, read = every(kernel.stored), every(kernel.read)
    return replace(kernel, summary=summary, stored=stored, read=read, about=about)


@dataclass
class OneLoop:
    """A group over one loop, in a form in which two can be compared."""

    group: Group
    operations: tuple  # what its bodies do, with numbers for buffers
    names: list[str]  # of the buffers, by their numbers


@dataclass
class Member:
    """A node that may be joined with those like it."""

    node: Group
    loop: OneLoop

    @property
    def part(self) -> Part:
        return self.loop.group, self.loop.names


def join_groups(schedule: Schedule, record: CompileRecord) -> list[ScheduledNode]:
    """The nodes of a schedule, those that are alike as one, where their language can write it."""
    if not config.foreach:
        return schedule.nodes
    overwritten = schedule.overwritten
    replaced: dict[ScheduledNode, Foreach] = {}
    for members in sets_of_alike(schedule):
        language = language_of(members[0].node.device)
        if Foreach not in language.writers:
            continue
        pointers = len({overwritten.get(name, name) for name in members[0].loop.names})
        step = language.most_pointers // pointers
        for start in range(0, len(members), step):
            some = members[start : start + step]
            if len(some) > 1:
                joined = Foreach([member.part for member in some])
                replaced.update({member.node: joined for member in some})
                record.notes.append(note_of(some))
    return list(dict.fromkeys(replaced.get(node, node) for node in schedule.nodes))


JOINERS.append(join_groups)


def note_of(members: Sequence[Member]) -> str:
    names = ["+".join(member.loop.group.names) for member in members]
    more = ", ..." if len(names) > 4 else ""
    return (
        f"one kernel for {len(names)} groups that do the same with other buffers: "
        f"{', '.join(names[:4])}{more}"
    )


def sets_of_alike(schedule: Schedule) -> list[list[Member]]:
    """Independent groups that do the same, in the order of their nodes."""
    nodes = schedule.nodes
    used = schedule.escaping.union(*[n.read_names for n in nodes])
    level: dict[ScheduledNode, int] = {}
    sets: dict[tuple, list[Member]] = {}
    for node, before in schedule.makers(nodes).items():
        level[node] = 1 + max(map(level.get, before), default=-1)
        loop = one_loop(node) if isinstance(node, Group) else None
        if loop is None:
            continue
        kept = [name for name in loop.group.names if name in used]
        if all(may_wait(name, schedule) for name in kept):
            key = (level[node], *signature(loop, kept, schedule))
            sets.setdefault(key, []).append(Member(node, loop))
    return list(sets.values())


def may_wait(name: str, schedule: Schedule) -> bool:
    """May this result be there long before its user asks for it?"""
    return name in schedule.escaping or buffer_bytes(schedule.buffers[name]) <= SMALL


def signature(loop: OneLoop, kept: Sequence[str], schedule: Schedule) -> tuple:
    """What alike groups have in common: operations, dtypes and devices of their buffers, which
    results are kept, and which of them lie where something else lay."""
    overwritten = schedule.overwritten
    layouts = [schedule.buffers[name].layout for name in loop.names]
    types = tuple((layout.dtype, layout.device) for layout in layouts)
    places = tuple(
        loop.names.index(overwritten[name])
        if overwritten.get(name) in loop.names
        else name in overwritten
        for name in kept
    )
    return loop.operations, types, tuple(map(loop.names.index, kept)), places


def one_loop(group: Group) -> OneLoop | None:
    """The group over one loop, where it is element by element."""
    if group.is_reduction or group.inner or group.has_scan or group.targets:
        return None
    bodies = merge_loops([n.body for n in group.nodes])
    if len(bodies[0].outer) > 1 or not int_or_none(math.prod(bodies[0].outer)):
        return None
    names: list[str] = []
    operations: list[tuple] = []
    for body in bodies:
        if not all(map(is_one_element, body.indices)):
            return None
        for instruction in body.walk():
            if instruction.op in ("indirect_indexing", "masked"):
                return None
            operations.append(with_numbers(instruction, names))
    outer = bodies[0].outer or (1,)
    nodes = [Node(n.buffer, b.substitute(outer, (), {})) for n, b in zip(group.nodes, bodies)]
    return OneLoop(Group(nodes, outer, ()), tuple(operations), names)


def is_one_element(index: sympy.Expr) -> bool:
    """Element x0, or always the same one?"""
    return index == loop_variable("x", 0) or index.is_Integer


def with_numbers(instruction: Instruction, names: list[str]) -> tuple:
    """The instruction with the buffer's number in `names`, which grows, for its name."""
    args = list(instruction.args)
    if instruction.op in ("load", "store"):
        if args[0] not in names:
            names.append(args[0])
        args[0] = names.index(args[0])
    written = [arg if isinstance(arg, Ref) else repr(arg) for arg in args]
    return instruction.op, *written, instruction.result
