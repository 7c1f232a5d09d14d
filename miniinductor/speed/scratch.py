"""Values that wait between two loops of a kernel: few of them on the stack, many of them in the
memory of a result.

    float scratch0[1024];                   # of one row: it stays in the cache

    float small_scratch0[2048];
    float* scratch0 = s0 <= 2048 ? small_scratch0 : mini::scratch<float, 0>(s0);

    out0[r0] = exp(in0[r0] - max);          # a guest: the result is written over it
    out0[r0] = out0[r0] / sum;

In:   a C++ kernel, some of whose elements one loop makes and a later one reads (codegen/plan.py:
      `crossing`).  Out: `Crossings`, which say where these lie meanwhile.  Without this file each
      buffer of them has memory of its own.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import sympy

from ..codegen.code import Code, code, named
from ..codegen.common import Value
from ..codegen.cpp import CppKernelWriter
from ..codegen.cpp_expressions import compute_type
from ..codegen.plan import KernelPlan
from ..more.scatter import Scatter
from ..nodes import Node
from ..runtime.build import PRELUDES
from ..sizes.expressions import flatten
from ..sizes.symbols import Size
from .arrays import IN_ARRAYS, SCRATCH

Writer: TypeAlias = Any  # a CppKernelWriter, with the crossings that `decide` adds
SCRATCH_BYTES = 1 << 17  # stack for values between stages
SMALL_SCRATCH = 2048  # elements of each: more lie in memory that each thread keeps, and that grows
PRELUDES.append(Path(__file__).with_name("scratch.h"))


@dataclass
class Crossings:
    """Where elements lie between the inner loop that makes them and a later one that reads them."""

    scratch: dict[str, str] = field(default_factory=dict)  # buffer -> its array on the stack
    stored: set[str] = field(default_factory=set)  # too large for that: they lie in memory
    # stored buffer -> a result of the kernel, whose memory it uses until the result is written
    guests: dict[str, str] = field(default_factory=dict)


def plan_crossings(
    plan: KernelPlan, keep: Collection[str], nbytes: int, room: int | None
) -> Crossings:
    """keep: buffers that are stored anyway; nbytes: size of one scratch array; room: of all
    together, None: none may be on the stack."""
    crossings = Crossings()
    used = 0
    for node in plan.crossing():
        if node.name in keep:
            continue
        if room is not None and used + nbytes <= room:
            used += nbytes
            crossings.scratch[node.name] = f"scratch{len(crossings.scratch)}"
            continue
        crossings.stored.add(node.name)
    return crossings


def may_use_stack(writer: Writer) -> bool:
    """May values that cross stages wait there?"""
    return all(s.keeps_stack for s in writer.strategies)


# --- on the stack ---------------------------------------------------------------------------------
def plain_kernel_body(self: Writer) -> list:
    for name, array in self.crossings.scratch.items():
        c_type = compute_type(self.buffers[name].layout.dtype)
        declare_array(self, array, c_type, math.prod(self.plan.inner))
    return core_kernel_body(self)


def declare_array(writer: Writer, array: str, c_type: str, count: Size) -> None:
    if isinstance(count, int):
        text = f"{IN_ARRAYS.get(c_type, c_type)} {array}[{count}];"
        writer.outside.add(text, SCRATCH)
        return
    number, size = array.removeprefix("scratch"), writer.size(count)
    writer.outside.add(f"{c_type} small_{array}[{SMALL_SCRATCH}];", SCRATCH)
    writer.outside.add(
        f"{c_type}* {array} = {size} <= {SMALL_SCRATCH} ? small_{array} : "
        f"mini::scratch<{c_type}, {number}>({size});",
        SCRATCH,
    )


def scratch_place(writer: Writer, name: str) -> Code:
    place = writer.index(flatten(writer.plan.r, writer.plan.inner))
    return code("{}[{}]", named(writer.crossings.scratch[name]), place)


def load(self: Writer, name: str, index: sympy.Expr) -> Value:
    if name in self.values or name not in self.crossings.scratch:
        return plain_load(self, name, index)
    return self.temporary(scratch_place(self, name), self.buffers[name].layout.dtype, True)


def store(
    self: Writer, name: str, index: sympy.Expr, value: Value, mode: str | None = None
) -> None:
    plain_store(self, name, index, value, mode)
    if name in self.crossings.scratch and value.text not in self.pending_names():
        self.scope.add(code("{} = {};", scratch_place(self, name), value))


# --- in the memory of a result --------------------------------------------------------------------
def decide(self: Writer) -> None:
    kept = frozenset(self.keep)
    self.crossings = Crossings()
    plain_decide(self)
    self.crossings = plan_crossings(
        self.plan,
        kept,
        nbytes=self.plan.inner_count * 8,
        room=SCRATCH_BYTES if may_use_stack(self) else None,
    )
    self.keep = {*kept, *self.crossings.stored}
    guests = self.crossings.guests
    for node in self.plan.nodes:
        users = self.plan.later_loops(node) if node.name in self.crossings.stored else []
        taken = {*self.overwritten, *guests.values()}
        if len(users) == 1 and users[0].name in kept and users[0].name not in taken:
            if may_be_guest(self, node, users[0]):
                guests[node.name] = users[0].name


def may_be_guest(writer: CppKernelWriter, node: Node, user: Node) -> bool:
    """Is each element of `node` read just to store one of the same size, by `user`, in the same
    place?  There the memory of the user's result serves both."""
    plan, buffers = writer.plan, writer.buffers
    has_scatter = any(isinstance(n.buffer.data, Scatter) for n in plan.nodes)
    if user.is_reduction or has_scatter:
        return False
    if buffers[user.name].layout.dtype != buffers[node.name].layout.dtype:
        return False
    body = plan.bodies[user.name]
    places = {access.index for access in body.writes()}
    places |= {access.index for access in body.reads() if access.name == node.name}
    return places == {plan.bodies[node.name].writes()[0].index}


def pointer(self: Writer, name: str, written: bool) -> Code:
    return plain_pointer(self, self.crossings.guests.get(name, name), written)


def note_read(self: Writer, name: str) -> None:
    if name not in self.crossings.guests:
        plain_note_read(self, name)


def note_stored(self: Writer, name: str) -> None:
    if name not in self.crossings.guests:
        plain_note_stored(self, name)


core_kernel_body = CppKernelWriter.plain_kernel_body
plain_load, plain_store = CppKernelWriter.load, CppKernelWriter.store
plain_decide, plain_pointer = CppKernelWriter.decide, CppKernelWriter.pointer
plain_note_read, plain_note_stored = CppKernelWriter.note_read, CppKernelWriter.note_stored
for _method in (plain_kernel_body, load, store, decide, pointer, note_read, note_stored):
    setattr(CppKernelWriter, _method.__name__, _method)
