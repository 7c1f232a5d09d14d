"""The memory plan (buffer reuse: where each buffer lies, and when it is freed), the workspaces, and
the runnable `Program` of a compiled graph.

In:   the steps of a call.  Out: a `MemoryPlan`, from which wrapper.py prints a function; of that, a
      `Program`, whose `start()` gives the callable.

    >>> plan = plan_memory(schedule, steps, main_device(graph), record)
    >>> plan.in_arena, plan.freed         # softmax: its three intermediates stay in registers
    ({}, [[]])
    >>> program = build_program(graph, record)
    >>> call = program.start()
    >>> [out] = call(x)

A graph output is freshly allocated in each call.  Intermediates live in one *workspace*: an arena
in which buffers whose lives do not overlap share bytes.  It is kept between calls, because a fresh
page costs more than a pass over it; a call takes one from a list and puts it back, so that threads
and recursive calls never share one.  Memory that an extern kernel's result may alias is never taken
from the arena, nor are buffers whose size is a symbol, nor large ones in training on a GPU
(`Device.arena_limit`).

What a kernel reads for the last time, element by element as it makes its result, the result may be
written over.  In the backward half of a training step, whose caller hands its inputs over, these
are freed after their last use, too.  `record.memory_plan`, `memory_lives` and `memory_steps` say
where everything lay.

Mirrors torch/_inductor/codegen/memory_planning.py and output_code.py (`CompiledFxGraph`).
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from .. import config, toolchain
from ..codegen.kernels import KernelStep, Step
from ..devices import entry_of
from ..ir.loops import Buffer, ExternKernel, InputBuffer, MultiOutput, Scatter
from ..records import CompileRecord
from ..schedule.after_fusion import may_overwrite
from ..schedule.nodes import ExternNode, Schedule
from ..sizes.symbols import Size, expand, hint

ALIGNMENT = 64


@dataclass
class Program:
    """All that it takes to run a compiled graph."""

    source: str  # of the wrapper
    scope: dict[str, object]  # its globals: kernels, ops, dtypes, parameters, workspaces
    device: torch.device
    inputs: list[str]  # names, in order
    constants: dict[str, torch.Tensor]  # name -> parameter, buffer or constant
    mutations: list[str]  # names of inputs and constants that are written
    refused: str | None = None  # why it must not be recorded as a CUDA graph

    def start(self) -> Callable:
        """The callable."""
        scope: dict[str, Any] = {**self.scope}
        if "empty_cpu(" in self.source:
            scope["empty_cpu"] = toolchain.empty_cpu
        exec(compile(self.source, "<miniinductor wrapper>", "exec"), scope)
        call = scope["call"]
        call.owned, call.workspaces_of = scope.get("call_owned"), scope.get("workspaces_of", {})
        return call


@dataclass
class NewWorkspace:
    """A function that makes the arena and every intermediate (and view of one) in it."""

    plan: list[tuple]  # (dtype, first byte in the arena, size, stride, offset of the view)
    nbytes: int
    device: torch.device

    # tensors made in inference mode could not be written outside of it
    @torch.inference_mode(False)
    def __call__(self) -> tuple[torch.Tensor, ...]:
        arena = torch.empty(self.nbytes + ALIGNMENT, dtype=torch.uint8, device=self.device)
        start = -arena.data_ptr() % ALIGNMENT
        arena, tensors = arena[start : start + self.nbytes], []  # all lie at its multiples
        for dtype, first, size, stride, offset in self.plan:
            typed = arena[first:].view(dtype)
            tensors.append(typed.as_strided(size, stride, typed.storage_offset() + offset))
        return tuple(tensors)


class Occupied(NamedTuple):
    """Bytes of the arena that a buffer has from its first step to its last."""

    start: int
    nbytes: int
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
        self.arena_bytes = 0
        self.in_arena: dict[str, int] = {}  # buffer -> its first byte there
        self.freed: list[list[str]] = []  # for each step the names that end after it
        self.taken_over: dict[str, int] = {}  # buffer -> the step whose result is written over it
        self.lives: list[tuple[str, int, int, int]] = []  # (buffer, bytes, first, last step)

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
        """The buffer whose memory the buffer `name` uses, through any number of take-overs."""
        while name in self.memory_of:
            name = self.memory_of[name]
        return name

    # -- lives -------------------------------------------------------------------------------------
    def find_lives(self) -> None:
        """Find the last use of each buffer, and the buffers that must not lie in the arena."""
        self.pinned = {self.root(name) for name in self.schedule.escaping}
        for position, step in enumerate(self.steps):
            for name in step.touched():
                self.last_use[self.root(name)] = position
            if isinstance(step, ExternNode) and may_alias(step.buffer):
                self.pinned |= {self.root(n) for n in step.read_names}

    def freed_after(self, step: Step, position: int) -> list[str]:
        """The names of what this step is the last to touch: `del` returns its memory early."""
        names: list[str] = []
        for root in dict.fromkeys(map(self.root, step.touched())):
            if self.last_use.get(root) == position and self.is_local(root):
                names += [root, *[n for n in self.memory_of if self.root(n) == root]]
        return names

    def is_local(self, name: str) -> bool:
        """Is the buffer a tensor of this call alone, outside of the arena, so that it may be
        freed?"""
        if self.frees_inputs and isinstance(self.buffers.get(name), InputBuffer):
            written = self.memory_of.values()
            return name not in self.pinned and name not in written
        given = (self.graph.inputs, self.graph.constants)
        return not any(
            name in held for held in (*given, self.in_arena, self.pinned, self.memory_of)
        )

    # -- places ------------------------------------------------------------------------------------
    def place(self, name: str, step: Step, position: int) -> str:
        """Choose where `name` lies, from its step to its last use; the choice in words, for
        records."""
        nbytes = storage_bytes(self.buffers[name])
        if not isinstance(nbytes, int) or not self.may_share(self.buffers[name], nbytes):
            return "new"
        dies, old = self.last_use.get(name, position), self.read_last(step, name, nbytes, position)
        if old is not None:
            self.taken_over[old.name] = position
            placed = old._replace(born=position, dies=dies, name=name)
            words = f"in place of {old.name}"
        else:
            size = -(-nbytes // ALIGNMENT) * ALIGNMENT
            start, before = place_in_arena(self.arena, size, position, dies)
            placed = Occupied(start, size, position, dies, name)
            words = f"reuse of {before}" if before else "new"
        self.in_arena[name] = placed.start
        self.arena.append(placed)
        self.arena_bytes = max(self.arena_bytes, placed.start + placed.nbytes)
        return words

    def may_share(self, buffer: Buffer, nbytes: int) -> bool:
        """May the buffer lie in the arena?"""
        # an eager kernel without an out= overload makes its result itself
        is_fresh = isinstance(buffer, MultiOutput) or (
            isinstance(buffer, ExternKernel) and buffer.out_op is None
        )
        if is_fresh or buffer.layout.device != self.device or buffer.name in self.pinned:
            return False
        # in training, large ones go back to the allocator: they would lie beside what is kept
        most = math.inf if self.record.joint_graph is None else entry_of(self.device).arena_limit
        return config.buffer_reuse and 0 < nbytes < most

    def read_last(self, step: Step, name: str, nbytes: int, position: int) -> Occupied | None:
        """A buffer in the arena that the step reads, element by element and for the last time, as
        it makes `name`, which is as large; or None."""
        if not config.in_place or not isinstance(step, KernelStep) or step.kernel.reads_again:
            return None
        taken = {self.in_arena.get(other) for other in step.made()}
        for old in self.arena:
            if (
                old.name in step.kernel.read
                and self.last_use.get(old.name) == position
                and old.start not in taken
                and storage_bytes(self.buffers[old.name]) == nbytes
                and may_overwrite(step.group, name, old.name, False)
            ):
                return old
        return None

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
        changes = [0] * (len(self.steps) + 1)  # of the live bytes, at each step
        record = self.record
        record.memory_lives = []
        for name, nbytes, first, last in self.lives:
            last = min(last, self.taken_over.get(name, last + 1) - 1)
            record.memory_lives.append((name, self.in_arena.get(name), nbytes, first, last))
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

    A result that nobody needs is left out: its kernel checks the positions, and writes nothing."""
    return {
        node.buffer.name: node.buffer.data.target
        for step in steps
        if isinstance(step, KernelStep)
        for node in step.group.nodes
        if isinstance(getattr(node.buffer, "data", None), Scatter)
        and node.buffer.name in step.made()
    }


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
