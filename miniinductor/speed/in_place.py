"""Results that are written over memory that is there already, instead of into new memory and then
copied.

In:   the scheduled nodes.  Out: {buffer: the graph input it overwrites}; and, for the
      planner of memory.py, the buffer that dies in the kernel that makes a result, whose memory
      the result takes.

    >>> overwritten_inputs(nodes, schedule, record)    # p.sub_(g * 0.1): one kernel
    {'buf0': 'arg0'}

Both need that every element of the old value is read, for the last time, in the iteration that
writes the new one. Mirrors `can_inplace` and mutation renaming in torch/_inductor/scheduler.py and
memory_planning.py.  Scatters have a file of their own, input_scatters.py.  Left out: eager kernels
that write into an input (their result is copied).
"""

import torch

from .. import config
from ..devices import about
from ..hooks import extends
from ..ir import (
    Buffer,
    BufferView,
    ExternKernel,
    Graph,
    InputBuffer,
    MultiOutput,
    Pointwise,
    TensorBox,
    View,
)
from ..kernels import KernelStep, Step
from ..lowering.graph import GraphLowering
from ..memory import MemoryPlan, may_alias, storage_bytes
from ..nodes import Group, Schedule, ScheduledNode
from ..records import CompileRecord
from ..scheduler import Scheduler
from ..sizes.symbols import Size
from . import counted_writes  # noqa: F401  (autograd must be told of what is overwritten)
from .input_scatters import scattered_inputs


def overwritten_inputs(
    nodes: list[ScheduledNode], schedule: Schedule, record: CompileRecord
) -> dict[str, str]:
    """{buffer: input}.  Other nodes that read the input's old value stay before the kernel:
    `schedule.before` says so.

    `nodes` in execution order.  An input that is not overwritten is written by a copy at the end;
    the record says why."""
    result = scattered_inputs(nodes, schedule) if config.in_place else {}
    maker = {name: node for node in nodes for name in node.names}
    returned = returned_twice(schedule.graph)
    for target, view in schedule.graph.mutations:
        if view.name in result:
            continue
        node = maker.get(view.name)
        readers = [n for n in nodes if n is not node and target in n.read_names]
        why = reason_to_copy(schedule, node, target, view)
        if not why and view.name in returned:
            why = "the new value is returned, too, as a tensor of its own"
        if not why and any(nodes.index(n) > nodes.index(node) for n in readers):
            why = "its old value is read later"
        if why:
            record.notes.append(f"{target} is written by a copy at the end: {why}")
        else:
            result[view.name] = target
            schedule.before.setdefault(view.name, set()).update(n.names[0] for n in readers)
    return result


def returned_twice(graph: Graph) -> set[str]:
    """New values of inputs that are an output as well, or the new value of two inputs."""
    outputs = {v.name for v in graph.outputs if isinstance(v, BufferView)}
    written = [view.name for _, view in graph.mutations]
    return {name for name in written if name in outputs or written.count(name) > 1}


def reason_to_copy(
    schedule: Schedule, node: ScheduledNode | None, target: str, view: BufferView
) -> str:
    """Why the input `target` cannot be overwritten by its new value, which `node` makes; or ""."""
    if not config.in_place:
        return "config.in_place is off"
    if not isinstance(node, Group):
        return "its new value is no kernel's result"
    layout, made = schedule.buffers[target].layout, schedule.buffers[view.name].layout
    body = next(n for n in node.nodes if n.name == view.name).body
    if body.inner and not runs_once(made.device):
        return "Triton: a kernel that goes through a row more than once computes elements again"
    whole = (tuple(view.size), tuple(view.stride), view.offset) == (
        tuple(made.size),
        tuple(made.stride),
        made.offset,
    )
    if not whole or (made.dtype, tuple(made.size), tuple(made.stride)) != (
        layout.dtype,
        tuple(layout.size),
        tuple(layout.stride),
    ):
        return "its memory is laid out differently"
    if not may_overwrite(node, view.name, target, True):
        return "its old value is read at other places or times than it is written"
    return ""


def runs_once(device: torch.device) -> bool:
    """Does a kernel of this device read each element of a row once?  C++ does."""
    return device.type == "cpu" and config.cpu_backend == "cpp"


def may_overwrite(group: Group, new: str, old: str, reads_first: bool) -> bool:
    """May `new`, made by the group, lie where `old` lies, as far as the group itself goes?

    reads_first: the kernel reads `old` right before it writes `new`, so that other bodies of one
    loop may read it, too."""
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


@extends(Scheduler)
class InPlaceScheduler(Scheduler):
    def overwritten(self, nodes: list[ScheduledNode]) -> dict[str, str]:
        return overwritten_inputs(nodes, self.schedule, self.record)


# --- buffers of the call --------------------------------------------------------------------------
@extends(GraphLowering)
class LaidAsInputs(GraphLowering):
    def new_value(self, box: TensorBox, target: Buffer | None) -> BufferView:
        """One that is not stored yet is stored as the input is."""
        if target is not None and isinstance(box.base.data, Pointwise) and has_own_places(target):
            box = box.copy() if isinstance(box.data, View) else box
            box.realize(tuple(target.layout.stride))
        return box.as_buffer_view()


def has_own_places(buffer: Buffer) -> bool:
    """Has each element of the buffer a place of its own, whatever lies between them?"""
    reach = 0
    pairs = list(zip(buffer.layout.stride, buffer.layout.size))
    if not all(type(number) is int for pair in pairs for number in pair):
        return False
    for step, n in sorted(pairs):
        if step <= reach and n > 1:
            return False
        reach += (n - 1) * step
    return True


@extends(MemoryPlan)
class InPlacePlan(MemoryPlan):
    """Results that lie where something lay that is read for the last time as they are made."""

    # output -> the library kernel's result that it takes the memory of: gelu(a @ b) over a @ b
    handed: dict[str, str] = {}

    def find_lives(self) -> None:
        super().find_lives()
        self.handed = {}
        for position, step in enumerate(self.steps if about(self.device).hands_over else ()):
            for name in step.made():
                old = self.read_last(step, name, position) if name in self.pinned else None
                if old is not None and isinstance(self.buffers[old], ExternKernel):
                    self.handed[name] = old

    def may_share(self, buffer: Buffer, nbytes: Size) -> bool:
        return buffer.name not in self.handed.values() and super().may_share(buffer, nbytes)

    def place(self, name: str, step: Step, position: int) -> str:
        dying = self.dying(step, name, position)
        if dying is None:
            return super().place(name, step, position)
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
