"""Runs of float16 are rounded as a whole, between loops over their lanes.

    for (int64_t r0 = ...) step0[r0 - r0_run] = half0[r0 - r0_run] * 20.0f;
    mini::round_to_float16(step0, step0, 128);
    for (int64_t r0 = ...) { const float tmp2 = step0[r0 - r0_run]; ... }

In:   the lines of a loop over the lanes of a run (halves.py), among them roundings, which eager
      makes after each operation.  Out: a loop for each step, arrays between them, and the lines of
      the last step, for the loop that the caller writes.

Processors round to float16 by one instruction, which gcc makes of no function; nine others, where a
loop is not cut.  A line belongs to the first step in which all that it needs is known.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from ..codegen.code import code, named
from ..codegen.tree import Bound, Comment, Definition, Line, Pragma, Statement, Statements
from ..codegen.tree import nest
from .arrays import IN_ARRAYS, room
from .contents import names_in, uses_of

MOST_STEPS = 16  # each is a loop for the compiler
STEP = "between two roundings"


@dataclass(frozen=True)
class Made:
    """A value that a line computes."""

    line: Definition
    needs: frozenset[str]
    rounded: str | None  # the value that it is, rounded to float16
    # an element of an array that holds it in each step, or made of such by one instruction
    is_read: bool


class Steps:
    """The lines of a loop in an order that rounds in few places; empty where it is not cut."""

    def __init__(self, writer: Any, body: Statements, taken: Iterable[str], arrays: Iterable[str]):
        """taken: values that accumulators take; arrays: of what nothing changes."""
        self.made: dict[str, Made] = {}
        self.stores: list[tuple[Line, frozenset[str]]] = []
        self.terms, self.read = frozenset(taken), frozenset(arrays)
        self.last = 0
        if all(isinstance(one, Line) for one in body):
            self.read_lines(writer, [one for one in body if isinstance(one, Line)])
        if self.last > MOST_STEPS:
            self.last = 0

    @property
    def are_many(self) -> bool:
        return self.last > 0

    def read_lines(self, writer: Any, lines: list[Line]) -> None:
        elements: set[str] = set()  # values that are one
        for line in lines:
            if isinstance(line, Comment):
                continue
            names = frozenset(names_in([line]))
            needs = names & self.made.keys()
            if not isinstance(line, Definition):
                self.stores.append((line, needs))
                continue
            if line.varies:
                return
            wide = writer.raw.get((line.name, torch.float16))
            wide = wide if wide in self.made else None
            is_cheap = uses_of([line]) <= {"%", "[]"}
            of_elements = bool(needs) and needs <= elements
            is_read = bool(names & self.read) or is_cheap and of_elements
            if names & self.read:
                elements.add(line.name)
            self.made[line.name] = Made(line, needs, wide, is_read)
        self.find_steps()

    def find_steps(self) -> None:
        """step: of each value that is needed; of a rounded one, the first that may use it."""
        wanted = set(self.terms & self.made.keys())
        wanted.update(*[needs for _, needs in self.stores])
        for name in reversed(self.made):
            if name in wanted:
                wanted |= self.made[name].needs
        self.step: dict[str, int] = {}
        for name, made in self.made.items():
            if name in wanted:
                self.step[name] = self.first_step(made.needs) + (made.rounded is not None)
        self.last = max(self.step.values(), default=0)
        # value -> the last step that reads it
        self.read_in: dict[str, int] = defaultdict(int)
        for name, step in self.step.items():
            if self.made[name].rounded is None:
                for need in self.made[name].needs:
                    self.read_in[need] = max(self.read_in[need], step)
        for _, needs in self.stores:
            for need in needs:
                self.read_in[need] = max(self.read_in[need], self.first_step(needs))
        for term in self.terms & self.step.keys():
            self.read_in[term] = self.last

    def first_step(self, needs: Iterable[str]) -> int:
        return max((self.step[name] for name in needs), default=0)

    # -- writing -----------------------------------------------------------------------------------
    def loops(
        self, lane: str, part: tuple[Bound, Bound], length: int, count: Bound
    ) -> list[Statement]:
        """All steps but the last, whose lines are `last_lines` then."""
        self.arrays: dict[str, str] = {}
        self.place = code("[{} - {}]", named(lane), named(f"{lane}_run"))
        result: list[Statement] = []
        for step in range(self.last):
            body = self.lines_of(step)
            rounded = [n for n, s in self.step.items() if s == step + 1 and self.made[n].rounded]
            for name in self.kept_after(step, rounded):
                result.append(self.declared(name, length))
                text = code("{}{} = {};", named(self.arrays[name]), self.place, named(name))
                body.append(Line(text, origin=STEP))
            calls: list[Statement] = []
            for name in rounded:
                wide = str(self.made[name].rounded)
                array = self.arrays[wide]
                if self.read_in[wide] > step:
                    result.append(self.declared(name, length))
                self.arrays.setdefault(name, array)
                call = f"mini::round_to_float16({array}, {self.arrays[name]}, {count});"
                calls.append(Line(call, origin=self.made[name].line.origin))
            result += [*nest(body, [(lane, *part)], Pragma(simd=True)), *calls]
        self.last_lines = self.lines_of(self.last)
        return result

    def declared(self, name: str, length: int) -> Line:
        made = self.made[name]
        array = self.arrays[name] = f"step{len(set(self.arrays.values()))}"
        c_type = IN_ARRAYS.get(made.line.c_type, made.line.c_type)
        return Line(f"{c_type} {array}[{room(length)}];", origin=made.line.origin)

    def kept_after(self, step: int, rounded: Iterable[str]) -> list[str]:
        """What this step makes for later ones, and what is rounded after it."""
        wide = {self.made[name].rounded for name in rounded}
        made_here = [n for n, s in self.step.items() if s == step and n not in self.arrays]
        return [
            name
            for name in made_here
            if name in wide or self.read_in[name] > step and not self.made[name].is_read
        ]

    def lines_of(self, step: int) -> list[Statement]:
        """What is read of earlier steps, the values of this one, and what it stores."""
        own = {
            name
            for name, made in self.made.items()
            if self.step.get(name) == step and made.rounded is None
        }
        stored = [(line, needs) for line, needs in self.stores if self.first_step(needs) == step]
        needed: set[str] = set().union(*[needs for _, needs in stored])
        needed.update(*[self.made[name].needs for name in own])
        if step == self.last:
            needed |= self.terms & self.step.keys()
        needed.update(*[self.made[name].needs for name in needed if self.made[name].is_read])
        lines: list[Statement] = []
        for name, made in self.made.items():
            if name in own or name in needed and made.is_read:
                lines.append(made.line)
            elif name in needed:
                kept = code("{}{}", named(self.arrays[name]), self.place)
                lines.append(Definition.of(made.line.c_type, name, kept, made.line.origin))
        return lines + [line for line, _ in stored]
