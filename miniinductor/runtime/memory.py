"""Where each buffer lies, and when it goes: the memory plan of a compiled graph.

In:   the steps of a call.  Out: a `MemoryPlan`, from which the wrapper is printed.

    >>> plan = plan_memory(schedule, steps, main_device(graph), record)
    >>> plan.in_arena, plan.freed         # softmax: its three intermediates stay in registers
    ({}, [[]])

A graph output is freshly allocated in each call.  Intermediates live in one *workspace*: an arena
in which buffers whose lives do not overlap share bytes.  Where sizes are symbols it has *slots*,
one for buffers that are equally large for all sizes.  A workspace is kept between calls, because a
fresh page costs more than a pass over it; a call takes one from a list and puts it back, so that
threads and recursive calls never share one.  Memory that an extern kernel's result may alias is
never taken from the arena, nor are large buffers in training on a GPU (`Device.alone`).

What a kernel reads for the last time, element by element as it makes its result, the result may be
written over.  In the backward half of a training step, whose caller hands its inputs over, these
are freed after their last use, too.  `record.memory_plan`, `memory_lives` and `memory_steps` say
where everything lay.  Mirrors torch/_inductor/codegen/memory_planning.py.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import sympy
import torch

from .. import config
from ..codegen.kernels import KernelStep, Step
from ..devices import about
from ..ir.loops import Buffer, ExternKernel, InputBuffer, MultiOutput
from ..records import CompileRecord
from ..schedule.after_fusion import may_overwrite
from ..schedule.nodes import ExternNode, Schedule
from ..sizes.prover import is_nonnegative
from ..sizes.symbols import Size, expand, hint
from .program import ALIGNMENT


class Occupied(NamedTuple):
    """Bytes of the arena that a buffer has from its first step to its last."""

    start: int  # offset; where sizes are symbols, the number of a slot
    nbytes: Size
    born: int
    dies: int
    name: str


def plan_memory(
    schedule: Schedule, steps: Sequence[Step], device: torch.device, record: CompileRecord
) -> "MemoryPlan":
    """Choose for each buffer: arena bytes, or a fresh tensor; and when it dies."""
    plan = MemoryPlan(schedule, steps, device, record)
    plan.choose()
    return plan


class MemoryPlan:
    """Where buffers lie, and when they end; the wrapper asks it."""

    def __init__(
        self, schedule: Schedule, steps: Sequence[Step], device: torch.device, record: CompileRecord
    ):
        self.schedule, self.steps = schedule, steps
        self.graph, self.buffers = schedule.graph, schedule.buffers
        self.device, self.record = device, record
        # buffer -> the one whose memory it takes: an input that is written, a scatter's target
        self.memory_of = {**schedule.overwritten, **scatter_targets(steps)}
        # does the caller hand its inputs over, so that each can be freed after its last use?
        self.frees_inputs = getattr(record.functional_graph, "meta", {}).get("owned", False)
        self.last_use: dict[str, int] = {}  # root -> the last step that touches its memory
        self.pinned: set[str] = set()  # roots whose memory outlives the call, or may
        self.arena: list[Occupied] = []
        self.slots: list[Size] = [0]  # bytes of each; one, the arena itself, for sizes in numbers
        self.in_arena: dict[str, tuple[int, int]] = {}  # buffer -> (slot, offset in it)
        self.freed: list[list[str]] = []  # for each step the names that end after it
        self.taken_over: dict[str, int] = {}  # buffer -> the step whose result is written over it
        # output -> the library kernel's result that it takes the memory of: gelu(a @ b) over a @ b
        self.handed: dict[str, str] = {}
        self.lives: list[tuple[str, int, int, int]] = []  # (buffer, bytes, first, last step)
        made = [storage_bytes(self.buffers[name]) for step in steps for name in step.made()]
        self.symbolic = any(isinstance(nbytes, sympy.Expr) for nbytes in made)

    def choose(self) -> None:
        self.find_lives()
        for position, step in enumerate(self.steps):
            for name in step.made():
                if name not in self.memory_of:
                    place = self.place(name, step, position)
                    self.record_place(name, place, position)
        self.freed = [self.freed_after(step, n) for n, step in enumerate(self.steps)]
        self.record_lives()

    def root(self, name: str) -> str:
        """The buffer whose memory it is in the end."""
        while name in self.memory_of:
            name = self.memory_of[name]
        return name

    # -- lives -------------------------------------------------------------------------------------
    def find_lives(self) -> None:
        """The last use of everything, and what must not be taken from the arena."""
        self.pinned = {self.root(name) for name in self.schedule.escaping}
        for position, step in enumerate(self.steps):
            for name in step.touched():
                self.last_use[self.root(name)] = position
            if isinstance(step, ExternNode) and may_alias(step.buffer):
                self.pinned |= {self.root(n) for n in step.read_names}
        for position, step in enumerate(self.steps if about(self.device).hands_over else ()):
            for name in step.made():
                old = self.read_last(step, name, position) if name in self.pinned else None
                if old is not None and isinstance(self.buffers[old], ExternKernel):
                    self.handed[name] = old

    def freed_after(self, step: Step, position: int) -> list[str]:
        """The names of what this step is the last to touch: `del` returns its memory early."""
        touched = dict.fromkeys(self.root(name) for name in step.touched())
        ended = [
            root for root in touched if self.last_use.get(root) == position and self.is_local(root)
        ]
        names = []
        for root in ended:
            names += [root, *[n for n in self.memory_of if self.root(n) == root]]
        return names

    def is_local(self, name: str) -> bool:
        """Is it a tensor of this call's own that nothing needs any more?"""
        if self.frees_inputs and isinstance(self.buffers.get(name), InputBuffer):
            written = self.memory_of.values()
            return not any(name in held for held in (self.pinned, self.schedule.escaping, written))
        given = (self.graph.inputs, self.graph.constants)
        return not any(
            name in held for held in (*given, self.in_arena, self.pinned, self.memory_of)
        )

    # -- places ------------------------------------------------------------------------------------
    def place(self, name: str, step: Step, position: int) -> str:
        """Choose where `name` lies, from its step to its last use; the choice in words, for
        records."""
        dying = self.dying(step, name, position)
        if dying is not None:
            return self.take_over(dying, name, position)
        buffer = self.buffers[name]
        nbytes = storage_bytes(buffer)
        if not config.buffer_reuse or name in self.pinned or not self.may_share(buffer, nbytes):
            return "new"
        return self.share(name, nbytes, position, self.last_use.get(name, position))

    def share(self, name: str, nbytes: Size, born: int, dies: int) -> str:
        """Bytes of the arena that are free while `name` lives; where one size is an expression, a
        slot."""
        if self.symbolic:
            number, before = place_in_slot(self.slots, self.arena, nbytes, born, dies)
            self.in_arena[name] = (number, 0)
            self.arena.append(Occupied(number, 1, born, dies, name))
            return f"reuse of {before}" if before else "new"
        size = -(-nbytes // ALIGNMENT) * ALIGNMENT
        start, before = place_in_arena(self.arena, size, born, dies)
        self.slots[0] = max(self.slots[0], start + size)
        self.in_arena[name] = (0, start)
        self.arena.append(Occupied(start, size, born, dies, name))
        return f"reuse of {before}" if before else "new"

    def may_share(self, buffer: Buffer, nbytes: Size) -> bool:
        """May it lie in the arena?"""
        # an eager kernel without an out= overload makes its result itself
        is_fresh = isinstance(buffer, MultiOutput) or (
            isinstance(buffer, ExternKernel) and buffer.out_op is None
        )
        if is_fresh or buffer.layout.device != self.device or buffer.name in self.handed.values():
            return False
        # in training, large ones go back to the allocator: they would lie beside what is kept
        most = math.inf if self.record.joint_graph is None else about(self.device).alone
        return 0 < hint(nbytes, 1) < most

    # -- results that lie where something lay that is read for the last time as they are made ------
    def take_over(self, dying: str, name: str, position: int) -> str:
        self.taken_over[dying] = position
        if dying in self.in_arena:
            self.in_arena[name] = self.in_arena[dying]
            old = next(one for one in self.arena if one.name == dying)
            dies = self.last_use.get(name, position)
            self.arena.append(old._replace(born=position, dies=dies, name=name))
        else:
            self.memory_of[name] = dying
            self.last_use[self.root(name)] = self.last_use.pop(name, position)
            if name in self.pinned:
                self.pinned.add(dying)
        return f"in place of {dying}"

    def dying(self, step: Step, name: str, position: int) -> str | None:
        """The buffer whose memory `name` takes, or None."""
        if name in self.pinned:
            return self.handed.get(name)
        return self.read_last(step, name, position)

    def read_last(self, step: Step, name: str, position: int) -> str | None:
        """A buffer made in this call that the step reads, element by element and for the last time,
        as it makes `name`; or None."""
        if not config.in_place or not config.buffer_reuse or name in self.memory_of:
            return None
        if not isinstance(step, KernelStep) or step.kernel.reruns:
            return None
        taken = {self.in_arena.get(n, self.root(n)) for n in step.made()}
        for old in step.kernel.read:
            if (
                self.last_use.get(self.root(old)) == position
                and self.fits(name, old, taken)
                and may_overwrite(step.group, name, old, False)
            ):
                return old
        return None

    def fits(self, new: str, old: str, taken: set) -> bool:
        """Is the memory of `old` of the right size, this call's own, and not `taken`?"""
        buffer, wanted = self.buffers[old], self.buffers[new]
        if old in self.in_arena:
            is_free = self.in_arena[old] not in taken
            return is_free and storage_bytes(buffer) == storage_bytes(wanted)
        root = self.buffers[self.root(old)]
        return (
            root.name not in taken
            and self.is_local(root.name)
            and buffer.layout == wanted.layout
            and not isinstance(root, (InputBuffer, MultiOutput))
            and not (isinstance(root, ExternKernel) and may_alias(root))
        )

    # -- what the record says ----------------------------------------------------------------------
    def record_place(self, name: str, place: str, position: int) -> None:
        buffer = self.buffers[name]
        is_extern = isinstance(buffer, (ExternKernel, MultiOutput))
        nbytes = hint(storage_bytes(buffer), 0)
        if not is_extern or name in self.in_arena:
            self.record.memory_plan.append((name, place, nbytes))
        if nbytes and not (is_extern and may_alias(buffer)):
            dies = self.last_use.get(self.root(name), position)
            if name in self.pinned:
                dies = len(self.steps) - 1
            self.lives.append((name, nbytes, position, dies))

    def record_lives(self) -> None:
        """Write the lives down, and the most bytes that live at one step; bytes that one buffer
        takes over from another belong to the new one from that step on."""
        below = list(itertools.accumulate([hint(size, 0) for size in self.slots], initial=0))
        at = {name: below[slot] + offset for name, (slot, offset) in self.in_arena.items()}
        changes = [0] * (len(self.steps) + 1)  # of the live bytes, at each step
        record = self.record
        record.memory_lives = []
        for name, nbytes, first, last in self.lives:
            last = min(last, self.taken_over.get(name, last + 1) - 1)
            record.memory_lives.append((name, at.get(name), nbytes, first, last))
            changes[first] += nbytes
            changes[last + 1] -= nbytes
        record.peak_live_bytes = max(itertools.accumulate(changes))
        record.memory_steps = [step_name(step) for step in self.steps]


def step_name(step: Step) -> str:
    """What a step is called in the record."""
    if isinstance(step, KernelStep):
        return step.name
    op = getattr(step.buffer, "op", None)
    return str(op).split(".")[-2] if isinstance(op, torch._ops.OpOverload) else step.buffer.name


def scatter_targets(steps: Sequence[Step]) -> dict[str, str]:
    """{a scatter's result: the buffer into which it writes}

    Without results that nobody needs: their kernels check the positions, and write nothing."""
    targets = {}
    for step in steps:
        if isinstance(step, KernelStep):
            for node in step.group.nodes:
                target = getattr(getattr(node.buffer, "data", None), "target", None)
                if target is not None and node.buffer.name in step.made():
                    targets[node.buffer.name] = target
    return targets


def may_alias(buffer: Any) -> bool:
    """Can the extern kernel's result share memory with its arguments?"""
    if isinstance(buffer, MultiOutput) or buffer.out_op is not None:
        return False  # of a MultiOutput, the kernel was asked; out= writes into memory of ours
    schema = getattr(buffer.op, "_schema", None)
    return schema is None or any(r.alias_info is not None for r in schema.returns)


def storage_bytes(buffer: Buffer) -> Size:
    """Bytes from the first to the last element, perhaps an expression; 0 where there is no
    layout."""
    layout = buffer.layout
    return 0 if layout is None else expand(layout.reach * layout.dtype.itemsize)


def place_in_arena(
    arena: Sequence[Occupied], size: int, born: int, dies: int
) -> tuple[int, str | None]:
    """Lowest offset where `size` bytes are free during [born, dies]; and the name of a dead buffer
    that lay there."""
    offset = 0
    # (by `start`, their first field)
    for other in sorted(other for other in arena if other.born <= dies and born <= other.dies):
        if other.start - offset >= size:
            break
        offset = max(offset, other.start + other.nbytes)
    end = offset + size
    before = [
        other.name
        for other in arena
        if other.dies < born and other.start < end and offset < other.start + other.nbytes
    ]
    return offset, before[-1] if before else None


def place_in_slot(
    slots: list[Size], arena: Sequence[Occupied], nbytes: Size, born: int, dies: int
) -> tuple[int, str | None]:
    """(number of a slot that is free during [born, dies] and as large for all sizes, or of a new
    one; the name of a dead buffer that lay there)"""
    for k, have in enumerate(slots):
        users = [other for other in arena if other.start == k]
        is_free = all(other.dies < born or dies < other.born for other in users)
        if is_free and is_nonnegative(sympy.sympify(have - nbytes)):
            return k, max(users, key=lambda other: other.born).name
    slots.append(nbytes)
    return len(slots) - 1, None
