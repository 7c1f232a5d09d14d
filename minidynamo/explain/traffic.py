"""How many bytes a kernel touches: distinct elements, each counted once.

In:   a `KernelRecord`, and the `CompileRecord` that it belongs to.  Out: a `Traffic`.

    >>> e = minidynamo.explain(lambda table, ids: table[ids] * 2)
    >>> compiled = e(torch.ones(50, 8), torch.arange(3)).main.compiled
    >>> traffic_of(compiled.kernels[0], compiled)      # three places, three rows
    Traffic(read=120, written=96, is_bound=True)

What an index expression says is exact: a broadcast row is one row, two windows that overlap share
elements.  What depends on data is at most this: of rows that are looked up as many as there are
places, and never more than the table; of a load under a condition every element of its loops.
`is_bound` says that such a number is among them.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch

from miniinductor.ir.dependencies import Instruction, LoopBody, Ref, linear_form
from miniinductor.records import CompileRecord, KernelRecord
from miniinductor.runtime.interpreter import evaluate
from miniinductor.schedule import nodes as schedule_nodes
from miniinductor.sizes.symbols import hint, hints_of, size_hints

Hints = Mapping[sympy.Symbol, sympy.Integer]
MOST = 1 << 20  # iterations of a loop nest whose elements are counted one by one


@dataclass(frozen=True)
class Traffic:
    """Bytes; is_bound: they are at most these."""

    read: int
    written: int
    is_bound: bool


@dataclass(frozen=True)
class Touch:
    """One load or store.  loops: how far those run on which its place depends; is_direct: the index
    says the place; is_masked: some iterations may not touch it."""

    index: sympy.Expr
    loops: tuple[tuple[sympy.Symbol, int], ...]
    is_direct: bool
    is_masked: bool

    @property
    def most(self) -> int:
        return math.prod(size for _, size in self.loops)

    def is_one_to_one(self) -> bool:
        """Is each iteration an element of its own?  So it is where each stride is longer than all
        that the smaller ones reach."""
        strides, tangled = linear_form(self.index)
        if tangled or not all(getattr(step, "is_Integer", False) for step in strides.values()):
            return False
        reach = 0
        for step, size in sorted((abs(int(strides[loop])), size) for loop, size in self.loops):
            if step <= reach:
                return False
            reach += step * (size - 1)
        return True

    def places(self) -> torch.Tensor:
        """The elements, one by one."""
        values: dict[sympy.Symbol, Any] = {}
        for number, (loop, size) in enumerate(self.loops):
            along = [-1 if k == number else 1 for k in range(len(self.loops))]
            values[loop] = torch.arange(size).view(along)
        return torch.as_tensor(evaluate(self.index, values)).reshape(-1)


def traffic_of(kernel: KernelRecord, compiled: CompileRecord) -> Traffic:
    """Of the run for which the graph was compiled, where sizes are symbols."""
    schedule, graph = compiled.schedule, getattr(compiled.functional_graph, "graph", None)
    group = next(node for node in schedule.nodes if [*node.names] == kernel.nodes)
    bodies = [node.body for node in group.nodes if isinstance(node, schedule_nodes.Node)]
    reads_all = len(bodies) < len(group.nodes)  # a matrix product reads its operands
    hints = hints_of(graph) if graph is not None else {}
    moved, is_bound = {"load": 0, "store": 0}, False
    touches: dict[tuple[str, str], list[Touch]] = {}
    with size_hints(hints):
        for body in bodies:
            for place, touch in touches_of(body, hints):
                touches.setdefault(place, []).append(touch)
        for op, names in (("load", kernel.kernel.read), ("store", kernel.kernel.stored)):
            for buffer in map(schedule.buffers.__getitem__, names):
                size = buffer.layout.dtype.itemsize
                whole = schedule_nodes.buffer_bytes(buffer) // size
                found = touches.get((op, buffer.name), [])
                count, is_sure = distinct(found, whole)
                if reads_all and (op == "load" or not found):
                    count, is_sure = whole, not found
                moved[op] += count * size
                is_bound |= not is_sure
    return Traffic(moved["load"], moved["store"], is_bound)


def traffic_of_body(body: LoopBody, schedule: schedule_nodes.Schedule, hints: Hints) -> Traffic:
    """Of one buffer alone, as if it had a kernel of its own; within `size_hints(hints)`."""
    touches: dict[tuple[str, str], list[Touch]] = {}
    for place, touch in touches_of(body, hints):
        touches.setdefault(place, []).append(touch)
    moved, is_bound = {"load": 0, "store": 0}, False
    for (op, name), found in touches.items():
        buffer = schedule.buffers[name]
        size = buffer.layout.dtype.itemsize
        count, is_sure = distinct(found, schedule_nodes.buffer_bytes(buffer) // size)
        moved[op] += count * size
        is_bound |= not is_sure
    return Traffic(moved["load"], moved["store"], is_bound)


def distinct(touches: Sequence[Touch], whole: int) -> tuple[int, bool]:
    """How many elements these touch together, and whether it is that many exactly."""
    direct = list(dict.fromkeys(touch for touch in touches if touch.is_direct))
    sure = [touch for touch in direct if not touch.is_masked]
    alone = max((touch.most for touch in sure if touch.is_one_to_one()), default=0)
    if alone >= whole:
        return whole, True
    # ("indirect0" of one body is not that of another)
    rest = sum(touch.most for touch in touches if not touch.is_direct)
    is_sure = len(direct) == len(sure) and not rest
    if is_sure and len(sure) == 1 and alone:
        return alone, True
    counted = places_of(direct)
    if counted is None:
        counted, is_sure = sum(touch.most for touch in direct), False
    return min(whole, counted + rest), is_sure


def places_of(touches: Sequence[Touch]) -> int | None:
    """How many elements these touch, counted one by one; None where they are too many for that."""
    if sum(touch.most for touch in touches) > MOST:
        return None
    found = [touch.places() for touch in touches if touch.most]
    # (a condition keeps loads from places that are not)
    return int((torch.cat(found).unique() >= 0).sum()) if found else 0


def touches_of(body: LoopBody, hints: Hints) -> Iterator[tuple[tuple[str, str], Touch]]:
    """The loads and stores of a body: (("load" or "store", name of the buffer), touch)."""
    ranges = {loop: hint(size, MOST) for loop, size in body.ranges().items()}
    is_known = all(hint(size) is not None for size in body.ranges().values())
    every = [*instructions_of(body.instructions)]
    depends = dependencies(one for one, _ in every)
    for instruction, is_masked in every:
        op = instruction.op
        if op not in ("load", "store") or (op == "load" and 0 in ranges.values()):
            continue  # (where a loop has no iteration nothing is loaded)
        index = instruction.args[1].xreplace(hints)
        met = index.free_symbols
        follows = set().union(*(depends.get(one, {one}) for one in met))
        loops = tuple((loop, size) for loop, size in ranges.items() if loop in follows)
        direct = is_known and met <= ranges.keys()
        yield (op, instruction.args[0]), Touch(index, loops, direct, is_masked)


def instructions_of(
    block: Iterable[Instruction], is_masked: bool = False
) -> Iterator[tuple[Instruction, bool]]:
    """Every instruction; and is it one that runs under a condition?"""
    for instruction in block:
        yield from instructions_of(instruction.block, True)
        yield instruction, is_masked


def dependencies(instructions: Iterable[Instruction]) -> dict[Any, set[sympy.Symbol]]:
    """Which loops the result of each instruction depends on."""
    found: dict[Any, set[sympy.Symbol]] = {}
    for instruction in instructions:
        symbols = {s for expr in instruction.expressions() for s in expr.free_symbols}
        used = symbols | {arg for arg in instruction.args if isinstance(arg, Ref)}
        found[instruction.result] = set().union(*(found.get(one, {one}) for one in used))
    return found
