"""Chapter 10: loops that share their rows become one kernel.

Two loops may be fused if they go through the same rows, and if the second reads of what the first
has made nothing but its own row.  Then one kernel does both, row after row, while the row is still
in the cache; and what nobody else reads need not be written to memory at all.

Among all pairs that may be fused the one that saves the most bytes goes first (a *greedy*
algorithm), as long as nothing that runs between the two depends on the first.
"""

from __future__ import annotations

from dataclasses import dataclass

from .graph import bytes_of
from .loops import Buffer, Extern, Loop, Step, loads
from .sizes import text_of


@dataclass(eq=False)
class Kernel:
    """Loops over the same rows, in their order."""

    loops: list[Loop]

    @property
    def rows(self) -> tuple[int, ...]:
        return self.loops[0].rows

    @property
    def writes(self) -> list[Buffer]:
        return [loop.buffer for loop in self.loops]

    @property
    def reads(self) -> list[Buffer]:
        found = (load.buffer for loop in self.loops for load in loads(loop.value))
        return list(dict.fromkeys(found))


Unit = Kernel | Extern


def writes(unit: Unit) -> list[Buffer]:
    return unit.writes if isinstance(unit, Kernel) else [unit.buffer]


def shared_bytes(first: Kernel, second: Kernel) -> int:
    """What the pair touches twice when it is not fused."""
    touched = {*first.writes, *first.reads}
    return sum(bytes_of(buffer) for buffer in {*second.reads} & touched)


def may_be_fused(first: Kernel, second: Kernel) -> bool:
    """Same rows, and the second reads only its own row of what the first writes."""
    if [text_of(n) for n in first.rows] != [text_of(n) for n in second.rows]:
        return False
    made = {loop.buffer: loop for loop in first.loops}
    for loop in second.loops:
        for load in loads(loop.value):
            maker = made.get(load.buffer)
            if maker and load.index[: len(maker.rows)] != maker.result.index[: len(maker.rows)]:
                return False
    return True


class Plan:
    """Units, and which of them must run before which."""

    def __init__(self, steps: list[Step]) -> None:
        self.units: list[Unit] = [
            step if isinstance(step, Extern) else Kernel([step]) for step in steps
        ]

    def before(self, unit: Unit) -> list[Unit]:
        """The units whose results it reads."""
        reads = set(unit.reads)
        return [other for other in self.units if other is not unit and reads & {*writes(other)}]

    def leads_around(self, first: Unit, second: Unit) -> bool:
        """Does the second depend on the first through a third?"""
        seen: set[Unit] = set()
        waiting = [unit for unit in self.before(second) if unit is not first]
        while waiting:
            unit = waiting.pop()
            if unit is first:
                return True
            if unit not in seen:
                seen.add(unit)
                waiting += self.before(unit)
        return False

    def candidates(self) -> list[tuple[int, Kernel, Kernel]]:
        """(shared bytes, first, second) of each pair of kernels that shares some, the most
        first."""
        kernels = [unit for unit in self.units if isinstance(unit, Kernel)]
        found = [
            (shared_bytes(first, second), first, second)
            for place, first in enumerate(kernels)
            for second in kernels[place + 1 :]
        ]
        return sorted((pair for pair in found if pair[0]), key=lambda pair: -pair[0])

    def fuse_best(self) -> bool:
        """Fuse the first of the candidates for which it is allowed; False if there is none."""
        for _, first, second in self.candidates():
            if may_be_fused(first, second) and not self.leads_around(first, second):
                self.replace(first, second)
                return True
        return False

    def replace(self, first: Kernel, second: Kernel) -> None:
        """One kernel for both, the loops of the first in front.  It runs when all that the two
        need is there (`in_order`)."""
        rest = [unit for unit in self.units if unit not in (first, second)]
        self.units = [*rest, Kernel([*first.loops, *second.loops])]
        self.units = self.in_order()

    def in_order(self) -> list[Unit]:
        """Each unit behind those it needs."""
        result: list[Unit] = []

        def visit(unit: Unit) -> None:
            if unit not in result:
                for other in self.before(unit):
                    visit(other)
                result.append(unit)

        for unit in self.units:
            visit(unit)
        return result


def fuse(steps: list[Step]) -> list[Unit]:
    """Kernels and torch kernels, in an order in which they may run: fuse until nothing can be."""
    plan = Plan(steps)
    while plan.fuse_best():
        pass
    return plan.units
