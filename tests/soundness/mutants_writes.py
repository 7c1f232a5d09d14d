"""What keeps writes in order and in their places, removed one at a time.  `writes` notices.

Kinds: edges between nodes (read after write, write after read, write after write, one memory under
two names), conditions of writing in place, of shared memory, of fusion, of functionalization, and
masks.

What no test of numbers can see, and why there is no mutant for it:
  * a mask that only saves work (`fits` of a whole block, checked again by each element's mask);
  * `Scheduler.reaches`: without it the graph of nodes has a circle, and the topological order
    raises instead of giving a wrong number;
  * the readers of a scatter's target come first (`Schedule.must_follow`): lowering gives each
    scatter a target that nobody else reads, a copy or the result of a library kernel with one
    user;
  * the readers of an overwritten input come first (`overwritten_inputs` fills
    `Schedule.before`): it refuses where they stand later in the order already, so only what
    joins alike kernels afterwards could move one. No program was found where that happens;
  * a write after a write of one buffer: functional graphs write each buffer once; what remains
    of that order is a scatter's own chain of names, which its reads already keep;
  * `after_fusion.may_overwrite` of a scan: a group with a scan holds one buffer, whose reads of an
    input at another place are refused by the comparison of places first.
"""

import operator
from typing import Any
from unittest import mock

import torch

from miniinductor.autograd import functionalize, writes
from miniinductor.codegen.cpp import expressions as cpp_expressions
from miniinductor.codegen.triton import kernel_writer as triton
from miniinductor.ir.handlers import Recorder
from miniinductor.passes import graph_passes
from miniinductor.runtime import memory
from miniinductor.schedule import after_fusion
from miniinductor.schedule.nodes import Schedule
from miniinductor.schedule.scheduler import Scheduler

from .mutants import mutant

CPU = "writes --count 200 --modes inductor"
AOT = "writes --count 400 --modes aot_eager"
TRITON = "writes --count 40 --modes triton"


# --- edges ----------------------------------------------------------------------------------------
@mutant("read after write: what a node reads", CPU)
def reads() -> None:
    original = Schedule.must_follow
    Schedule.must_follow = lambda self, node, nodes: (
        original(self, node, nodes) - set(list(node.read_names)[:1])
    )


@mutant("one memory under two names: inputs that share it", CPU, AOT)
def shared_inputs() -> None:
    writes.guard_shared_memory = lambda run, gm, record: run


@mutant("one memory under two names: results that must not share it", CPU, AOT)
def shared_results() -> None:
    graph_passes.reaches_output_by_views = lambda node: False


# --- fusion ---------------------------------------------------------------------------------------
@mutant("fusion: reads at other places than are written", CPU)
def places_of_reads() -> None:
    Scheduler.check_accesses = lambda self, first, second: None


@mutant("foreach: groups that differ in their operations", CPU)
def alike() -> None:
    original = after_fusion.over_one_loop

    def over_one_loop(group: Any) -> Any:
        found = original(group)
        return found and found._replace(operations=("same", len(found.names)))

    after_fusion.over_one_loop = over_one_loop


@mutant("foreach: groups that need each other", CPU)
def levels() -> None:
    original = after_fusion.sets_of_alike

    def sets_of_alike(schedule: Schedule) -> list:
        with mock.patch.object(schedule, "makers", lambda nodes: {node: () for node in nodes}):
            return original(schedule)

    after_fusion.sets_of_alike = sets_of_alike


# --- in place -------------------------------------------------------------------------------------
def _overwrites_anything(when_first: bool) -> None:
    """when_first: inputs, of which the kernel reads old values first; else buffers that die."""
    original = after_fusion.may_overwrite

    def may_overwrite(*args: Any) -> bool:
        return args[-1] is when_first or original(*args)

    after_fusion.may_overwrite = memory.may_overwrite = may_overwrite


@mutant("in place: an input that is read at other places", CPU)
def read_elsewhere() -> None:
    _overwrites_anything(when_first=True)


@mutant("in place: a dying buffer that is read at other places", CPU)
def dying_elsewhere() -> None:
    _overwrites_anything(when_first=False)


@mutant("in place: a result that is laid out differently", CPU)
def laid_out() -> None:
    original = after_fusion.reason_to_copy

    def reason_to_copy(*args: Any) -> str | None:
        reason = original(*args)
        return None if reason == "its memory is laid out differently" else reason

    after_fusion.reason_to_copy = reason_to_copy


# --- memory ---------------------------------------------------------------------------------------
@mutant("arena: two buffers that live at the same time", CPU)
def lives() -> None:
    original = memory.place_in_arena
    memory.place_in_arena = lambda arena, size, born, dies: original([], size, born, dies)


@mutant("arena: a buffer that is read by the kernel that makes another", CPU)
def last_reader() -> None:
    def place_in_arena(arena: Any, size: int, born: int, dies: int) -> tuple:
        return original([other._replace(dies=other.dies - 1) for other in arena], size, born, dies)

    original = memory.place_in_arena
    memory.place_in_arena = place_in_arena


# --- functionalization ----------------------------------------------------------------------------
@mutant("functionalization: views of what was written are made again", CPU, AOT)
def replay() -> None:
    functionalize.Functionalizer.read = lambda self, node: self.value[node]


@mutant("functionalization: a write through one output of split or unbind", CPU, AOT)
def pieces() -> None:
    original = functionalize.INVERSES[operator.getitem]

    def scatter_piece(made: Any, like: Any, piece: Any, value: Any) -> Any:
        call, _ = piece.args
        before = piece.args
        piece.args = (call, 0)
        try:
            return original(made, like, piece, value)
        finally:
            piece.args = before

    functionalize.INVERSES[operator.getitem] = scatter_piece


@mutant("functionalization: where as_strided begins", AOT)
def begin_of_memory() -> None:
    functionalize.check_memory = lambda node, args: None


@mutant("graph passes: a copy that begins where its source does not", AOT)
def begin_of_copies() -> None:
    graph_passes.same = lambda a, b: True


# --- masks ----------------------------------------------------------------------------------------
def _always(comparison: str) -> None:
    original = getattr(Recorder, comparison)

    def compare(self: Any, a: Any, b: Any) -> Any:
        known = self.expressions(a, b) is not None
        return self.constant(True, torch.bool) if known else original(self, a, b)

    setattr(Recorder, comparison, compare)


@mutant("mask: the end of a slice", CPU)
def end_of_slice() -> None:
    _always("lt")


@mutant("mask: the begin of a slice", CPU)
def begin_of_slice() -> None:
    _always("ge")


@mutant("mask: the step of a slice", CPU)
def step_of_slice() -> None:
    _always("eq")


@mutant("mask: what a masked block gives outside", CPU)
def outside_of_mask() -> None:
    original = cpp_expressions.CppExpressions.masked
    cpp_expressions.CppExpressions.masked = lambda self, mask, body, other: original(
        self, mask, body, 77
    )


def whole(end: str, step: int) -> str:
    """The end of a loop without what fills no step; unchanged where only a run knows it."""
    return str(int(end) // step * step) if end.isdigit() else end


@mutant("mask: Triton's blocks", TRITON)
def triton_masks() -> None:
    triton.TritonKernelWriter.mask_text = lambda self, axes: (
        self.mask.text if self.mask is not None else ""
    )


@mutant("mask: Triton's masked blocks", TRITON)
def triton_masked() -> None:
    triton.TritonKernelWriter.mask_text = lambda self, axes: " & ".join(
        axis.mask for axis in self.plan.axes if axis.mask and axis.name in axes
    )
