"""Results of rows that go from kernel to kernel lie in the order of the loops that made them.

    mean of an image (n, c, h, w) over c, subtracted, where w is the larger step in memory:

    before:  in0[112*x1 + x2 + ...]   buf0[x1 + 112*x2 + ...]     stored, and read, across the lanes
    after:   in0[112*x1 + x2 + ...]   buf0[112*x1 + x2 + ...]     and x1 and x2 become one loop

In:   a schedule of CPU kernels.  Out: the same, in which such buffers are numbered in another
      order, by their writer and by all readers.

Nobody else sees them: they are no results, and no eager kernel reads them.  Each reader must read
along its lanes as well as before.  values_of_rows.py does the same within one kernel.
PyTorch: gives buffers a layout when they are fused ("flexible layouts").
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import sympy

from .. import config
from ..dependencies import Instruction, LoopBody, int_or_none, stride_of
from ..kernels import CPP
from ..nodes import Group, Node, Schedule, ScheduledNode
from ..records import CompileRecord
from ..sizes.expressions import flatten


@dataclass(frozen=True)
class Digit:
    """A loop of the writer, as one digit of the place of an element: its size, and what one step of
    it means in the old numbering and in the new one."""

    size: int
    old: int
    new: int


Places = dict[str, list[Digit]]  # buffer -> digits, that of the smallest old step first


def lay_out_rows(schedule: Schedule, record: CompileRecord) -> list[ScheduledNode]:
    """The nodes of the schedule, with other places in buffers that only they see."""
    if not config.loop_reordering:
        return schedule.nodes
    groups = [n for n in schedule.nodes if isinstance(n, Group) and n.device.type == "cpu"]
    taken = {*schedule.escaping, *schedule.overwritten, *schedule.overwritten.values()}
    for node in schedule.nodes:
        if node not in groups:
            taken |= {*node.names, *node.read_names}
    for group in groups:
        taken |= group.targets
    places: Places = {}
    for group in groups:
        for node in group.nodes if group.is_reduction and not group.has_scan else ():
            digits = None if node.name in taken else digits_of(group, node)
            if digits and all(gains_nothing_less(g, node.name, digits) for g in groups):
                places[node.name] = digits
    if not places:
        return schedule.nodes
    return [moved(n, places) if n in groups else n for n in schedule.nodes]


def digits_of(group: Group, node: Node) -> list[Digit] | None:
    """How the places of a node's elements are made of its loops, if it has one for each iteration,
    and memory lies in another order than these."""
    body, writes = node.body, node.body.writes()
    if body.inner and not node.is_reduction or body.outer != group.outer or len(writes) != 1:
        return None
    [write] = writes
    sizes = [n for n in body.outer if isinstance(n, int)]
    if write.mode or len(sizes) < len(body.outer):
        return None
    wanted = sympy.expand(flatten(body.x, body.outer))
    if write.index == wanted or write.index.free_symbols != wanted.free_symbols:
        return None
    digits = []
    for variable, size in zip(body.x, sizes):
        old = int_or_none(stride_of(write.index, variable))
        new = int_or_none(stride_of(wanted, variable))
        if old is None or new is None:
            return None
        if size > 1:
            digits.append(Digit(size, old, new))
    digits.sort(key=lambda digit: digit.old)
    expected = 1  # each place is taken once
    for digit in digits:
        if digit.old != expected:
            return None
        expected *= digit.size
    has_rest = sympy.expand(write.index).as_coeff_Add()[0] != 0
    return None if has_rest or node.buffer.layout.numel != math.prod(sizes) else merged(digits)


def merged(digits: Sequence[Digit]) -> list[Digit]:
    """The same with digits as one that follow each other in both numberings.

    >>> merged([Digit(4, 1, 5), Digit(3, 4, 20), Digit(5, 12, 1)])
    [Digit(size=12, old=1, new=5), Digit(size=5, old=12, new=1)]
    """
    found: list[Digit] = []
    for digit in digits:
        last = found[-1] if found else None
        if last and (last.old * last.size, last.new * last.size) == (digit.old, digit.new):
            found[-1] = replace(last, size=last.size * digit.size)
        else:
            found.append(digit)
    return found


def gains_nothing_less(group: Group, name: str, digits: Sequence[Digit]) -> bool:
    """Can each access of this group be told in the new numbering, with no larger steps along its
    lanes?"""
    touched = name in group.names or name in group.read_names
    for node in group.nodes if touched else ():
        body = node.body
        for access in (*body.reads(), *body.writes()):
            if access.name != name:
                continue
            place = renumbered(access.index, body, digits)
            if place is None:
                return False
            lane = (body.r or body.x)[-1]
            old, new = (int_or_none(stride_of(i, lane)) for i in (access.index, place))
            if new not in (0, 1) and old in (0, 1):
                return False
    return True


def renumbered(index: sympy.Expr, body: LoopBody, digits: Sequence[Digit]) -> sympy.Expr | None:
    """The new place of an element; None where the loops do not tell its digits apart.

    All loops that step in one digit must together stay within it: nothing is carried to the next.
    """
    ranges, place = body.ranges(), sympy.Integer(0)
    highest = dict.fromkeys(digits, 0)  # of each digit, what these loops count up to
    constant, terms = sympy.expand(index).as_coeff_Add()
    if constant != 0:
        return None
    for term in sympy.Add.make_args(terms):
        step, variable = term.as_coeff_Mul()
        count = ranges.get(variable)
        if term == 0 or count == 1:
            continue
        if not isinstance(count, int) or not step.is_Integer or step < 1:
            return None
        digit = max((d for d in digits if d.old <= step), key=lambda d: d.old)
        often, rest = divmod(int(step), digit.old)
        highest[digit] += often * (count - 1)
        if rest or highest[digit] >= digit.size:
            return None
        place += digit.new * often * variable
    return place


def moved(group: Group, places: Places) -> Group:
    """The group with these buffers in the new numbering."""
    if places.keys().isdisjoint({*group.names, *group.read_names}):
        return group
    nodes = []
    for node in group.nodes:

        def place(name: str, index: sympy.Expr, body: LoopBody = node.body) -> sympy.Expr:
            found = renumbered(index, body, places[name]) if name in places else None
            return index if found is None else found

        instructions = [changed(i, place) for i in node.body.instructions]
        nodes.append(Node(node.buffer, replace(node.body, instructions=instructions)))
    return Group(nodes, group.outer, group.inner)


def changed(i: Instruction, place: Callable[[str, sympy.Expr], sympy.Expr]) -> Instruction:
    block = tuple(changed(inside, place) for inside in i.block)
    if i.op in ("load", "store"):
        name, index = i.args[:2]
        return replace(i, args=(name, place(name, index), *i.args[2:]), block=block)
    return replace(i, block=block) if block else i


CPP.joiners.append(lay_out_rows)
