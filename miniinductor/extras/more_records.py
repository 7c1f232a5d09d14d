"""What only the record wants: where buffers lie, what is saved, which pairs are not tried.

What the record says of memory: where each buffer lies, how long, and what that sums
up to.

In:   the memory plan, while it is made (memory.py).  Out: `record.memory_plan`, `memory_lives`,
      `memory_steps`, `peak_live_bytes`, which `explain` draws.

    >>> plan = RecordedPlan(schedule, steps, main_device(graph), record)
    >>> plan.choose()
    >>> record.memory_plan
    [('buf3', 'new', 128)]

What the record says of the values that a forward half keeps for its backward half.

In:   the two halves of a joint graph (autograd/partition.py).  Out: `record.saved`, which explain
      draws.

    primal0    float32[2, 3]  input             # of relu(x @ w): it is in memory anyway
    le_scalar  bool[2, 4]     smallest cut

Pairs of nodes that the scheduler does not look at are told, too.

In:   the groups of a schedule.  Out: in `record.fusions` one record per node and buffer for all the
      pairs that lie too far apart.

    >>> REACH               # a node is tried with so many next users of the same buffer
    16

Fields whose values are made when they are read, and how records print.
"""

import itertools
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from ..autograd.joint import Joint
from ..autograd.partition import Parts, base, element_bytes
from ..compile import Compilation, CompiledGraph
from ..hooks import extends
from ..ir import ExternKernel, MultiOutput
from ..kernels import KernelStep, Step
from ..memory import MemoryPlan, may_alias, storage_bytes
from ..nodes import ScheduledNode, buffer_bytes
from ..records import CompileRecord, FusionDecision, KernelRecord, Later, SavedActivation
from ..scheduler import REACH, Scheduler
from ..sizes.symbols import hint


@extends(MemoryPlan)
class RecordedPlan(MemoryPlan):
    def choose(self) -> None:
        self.lives: list[tuple[str, int, int, int]] = []  # (buffer, bytes, first, last step)
        super().choose()
        self.record_lives()

    def place(self, name: str, step: Step, position: int) -> str:
        place = super().place(name, step, position)
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
        return place

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


# --- values that are kept for backward ------------------------------------------------------------
@extends(Compilation)
class RecordsSaved(Compilation):
    def parts_of(self, joint: Joint, primals: int) -> Parts:
        parts = super().parts_of(joint, primals)
        placeholders = list(joint.graph.graph.find_nodes(op="placeholder"))
        overwritten = {placeholders[write.primal].target for write in joint.writes}
        self.record.saved = [activation(n, parts.reasons[n], overwritten) for n in parts.saved]
        return parts


def activation(node: fx.Node, reason: str, overwritten: set[str]) -> SavedActivation:
    """What the record says of a saved value."""
    value, source = node.meta["val"], base(node)
    return SavedActivation(
        node.name,
        "getitem" if node.target is operator.getitem else str(node.target),
        f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}",
        element_bytes(value),
        source.op == "placeholder" and source.target not in overwritten,
        reason or "smallest cut",
        node.meta.get("source_line", ""),
    )


# --- pairs that are not tried ---------------------------------------------------------------------
@extends(Scheduler)
class TellingScheduler(Scheduler):
    def fuse(self, nodes: list[ScheduledNode]) -> list[ScheduledNode]:
        nodes = super().fuse(nodes)
        self.record.fusions.extend(self.too_far(nodes))
        return nodes

    def too_far(self, nodes: Sequence[ScheduledNode]) -> list[FusionDecision]:
        """One record per node and buffer for all the pairs that `candidates` leaves out."""
        return [
            FusionDecision(
                first="+".join(first.names),
                second=f"{len(users) - i - 1 - REACH} later users of {name}",
                fused=False,
                category="distant",
                reason=f"{REACH} other users of {name} lie between them: not tried",
                bytes_saved=buffer_bytes(self.buffers[name]),
            )
            for name, users in self.users_of_buffers(nodes)
            for i, first in enumerate(users[: -1 - REACH])
        ]


# --- records themselves ---------------------------------------------------------------------------
class Lazy:
    """A field that may be given a `Later`: most texts are never read, and a graph that came from
    disk is traced again for them."""

    def __init__(self, name: str, default: Any) -> None:
        self.key, self.default = "_" + name, default

    def __get__(self, record: Any, owner: type | None = None) -> Any:
        value = self.default if record is None else record.__dict__.get(self.key, self.default)
        if isinstance(value, Later):
            value = record.__dict__[self.key] = value.make()
        return value

    def __set__(self, record: Any, value: Any) -> None:
        record.__dict__[self.key] = value


for (
    _name
) in """aten_graph functional_graph joint_graph loop_ir fused_ir lowered_graph steps""".split():
    setattr(CompileRecord, _name, Lazy(_name, getattr(CompileRecord, _name)))


def kernel_text(kernel: KernelRecord) -> str:
    moved = f"reads {kernel.bytes_read:,} and writes {kernel.bytes_written:,} bytes"
    return f"<{kernel.language} kernel {kernel.name}: computes {', '.join(kernel.nodes)}, {moved}>"


def record_text(record: CompileRecord) -> str:
    kernels = f"{len(record.kernels)} kernels, {len(record.fallbacks)} eager kernels"
    return f"<CompileRecord: {kernels}, {len(record.notes)} notes>"


def graph_text(compiled: CompiledGraph) -> str:
    record = compiled.record
    kernels, eager = len(record.kernels), len(record.fallbacks)
    return f"<compiled graph: {kernels} kernels, {eager} eager kernels>"


for _class, _text in (
    (KernelRecord, kernel_text),
    (CompileRecord, record_text),
    (CompiledGraph, graph_text),
):
    setattr(_class, "__repr__", _text)
