"""Which values a GPU stores: its kernels wait for memory and not for arithmetic.

In:   a value with several users, while a graph is lowered (lowering/graph.py).  Out: the reads of
      one element beyond which it is stored, instead of being computed again in each user.

Not in a backward half, where the kernels that share a value run over different loops.

What is computed of a reduction's result, once for each row, is stored where rows are read, if that
costs much and what reads it has far more elements; so is a transposed copy that is reduced and read
again.

    rstd = rsqrt(variance / n + eps), [1, 96, 1, 1];  (x - mean) * rstd, [64, 96, 37, 41]

Not stored it would be computed for each of nine million elements.  It costs no kernel: the one
that reduces goes on with it.  PyTorch: computes it again for each element.

GPU memory is for what both halves of a training step keep: there, each large intermediate is the
allocator's, and returned after its last use; small ones are parts of one workspace.
"""

import math
from typing import Any, cast

import sympy
import torch
from torch import fx

from ..autograd.functionalize import is_view
from ..dependencies import int_or_none, loop_variables, stride_of, trace
from ..hooks import extends
from ..ir import Buffer, ComputedBuffer, Pointwise, Reduction, TensorBox
from ..lowering.graph import GraphLowering, _Cost, cost, dense_strides, is_forward, should_realize
from ..lowerings.targets import recomputes
from ..memory import MemoryPlan
from ..nodes import Group, Refused
from ..ops import set_handler
from ..scheduler import Scheduler
from ..sizes.symbols import Size, hint
from .layouts import is_pointwise
from .split_reductions import LEAST_ELEMENTS, wanted_chunks

FEW_READS = 2
FEW_OPERATIONS = 32  # simple ones: the time in which eight bytes are stored and read


@extends(GraphLowering)
class FewReads(GraphLowering):
    def is_stored(self, box: TensorBox, uses: int, node: fx.Node) -> bool:
        if not is_forward(self) or not recomputes(box.device):
            return super().is_stored(box, uses, node)
        return should_realize(box, uses, FEW_READS) and not (
            any(map(is_reduced_in_chunks, node.users))
            and all(map(is_loop, node.users))
            and is_cheap(box)
        )


def is_loop(node: fx.Node) -> bool:
    """Is it computed by a loop that may compute what it reads, too?  (A library's kernel, and a
    result of the graph, want that in memory.)"""
    return is_pointwise(node) or getattr(node.target, "overloadpacket", None) in REDUCE


def is_cheap(box: TensorBox) -> bool:
    """Is it read faster again, and computed, than stored and read?"""
    reads, operations = cost(box)
    return reads <= FEW_READS and operations <= FEW_OPERATIONS


def is_reduced_in_chunks(node: fx.Node) -> bool:
    """Does it reduce few rows, or columns?  No kernel does so that goes on with their elements."""
    packet = getattr(node.target, "overloadpacket", None)
    if packet not in REDUCE or not isinstance(node.args[0], fx.Node):
        return False
    read, made = elements(node.args[0]), elements(node)
    if not read or not made or read < LEAST_ELEMENTS:
        return False
    dims = node.args[1] if len(node.args) > 1 and isinstance(node.args[1], (list, tuple)) else [-1]
    is_of_rows = {-1, node.args[0].meta["val"].dim() - 1} & {*cast(Any, dims)}
    return wanted_chunks(made, read // made, columns=not is_of_rows) >= 2


# --- values of rows -------------------------------------------------------------------------------
aten = torch.ops.aten
OFTEN = 16  # elements that read one value
COSTLY = ("truediv", "reciprocal", "rsqrt", "sqrt", "exp", "log", "log1p", "tanh", "sigmoid", "pow")
REDUCE = {aten.var_mean, aten.var, aten.sum, aten.mean, aten.amax, aten.amin}
LEAST = 1 << 17  # elements of a copy that is worth a kernel


class Names(_Cost):
    """The buffers that a value reads."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.is_costly = False

    def load(self, name: str, index: sympy.Expr) -> bool:
        self.names.add(name)
        return super().load(name, index)


def _note(name: str) -> Any:
    counted = getattr(_Cost, name)

    def method(self: Names, *args: Any, **kwargs: Any) -> bool:
        self.is_costly = True
        return counted(self, *args, **kwargs)

    return method


for _name in COSTLY:
    setattr(Names, _name, _note(_name))


@extends(Scheduler)
class RowsApart(Scheduler):
    """Fuses what is stored so into no reduction which reads it."""

    def check_kernel(self, first: Group, second: Group) -> None:
        super().check_kernel(first, second)
        if second.is_reduction and not first.is_reduction and self.graph.apart & set(first.names):
            raise Refused("its elements are made where the rows are reduced that they depend on")


@extends(GraphLowering)
class RowValues(GraphLowering):
    """Stores such values."""

    def finish_value(self, box: TensorBox, node: fx.Node) -> None:
        super().finish_value(box, node)
        base = box.base
        if not isinstance(base.data, Pointwise) or not recomputes(box.device):
            return
        is_copy = is_transposed_twice_read(node)
        if is_copy or reads_often(node) and self.is_of_rows(base):
            eager = base.eager
            numbers = () if eager is None else (*eager.size, *eager.stride)
            is_known = all(type(n) is int for n in numbers)
            base.realize(dense_strides(base) if is_known else None)
            if is_copy:
                # the reduction does not make it itself
                self.lowered.apart.add(cast(Buffer, base.data).name)

    def is_of_rows(self, box: TensorBox) -> bool:
        """Does it read reductions' results alone, as many as it has elements, and numbers, and
        compute with them what costs much?"""
        counter = Names()
        with set_handler(counter):
            box.make_loader()(loop_variables("i", len(box.get_size())))
        if not counter.is_costly:
            return False
        made = [self.lowered.buffers[name] for name in counter.names]
        reduced = [
            b for b in made if isinstance(b, ComputedBuffer) and isinstance(b.data, Reduction)
        ]
        count = int_or_none(sympy.prod(box.get_size()))
        same = all(int_or_none(b.layout.numel) == count for b in reduced)
        return bool(reduced) and same and all(map(runs_in_order, reduced))


def runs_in_order(buffer: ComputedBuffer) -> bool:
    """Do its loops run through its own memory in order?  A kernel that continues with it does."""
    body = trace(buffer).simplify_loops()
    [access] = body.writes()
    steps = [int_or_none(stride_of(access.index, v)) for v in loop_variables("x", len(body.outer))]
    known = [step for step in steps if step is not None]
    return len(known) == len(steps) and known == sorted(known, reverse=True)


def reads_often(node: fx.Node) -> bool:
    """Does a node read it that has many times its elements?"""
    count = elements(node)
    return count is not None and any(has_many(user, OFTEN * count) for user in node.users)


def has_many(node: fx.Node, count: int) -> bool:
    """Does it, or what reads the view that it is, have at least so many elements?"""
    if node.op != "call_function":
        return False
    if is_view(node.target):
        return any(has_many(user, count) for user in node.users)
    return (elements(node) or 0) >= count


def is_transposed_twice_read(node: fx.Node) -> bool:
    """Is it a copy in another order of memory that is reduced, and read besides?  (F.group_norm
    makes one of a channels-last image.)  Not stored, each reading would skip from line to line."""
    if node.target is not aten.clone.default or (elements(node) or 0) < LEAST:
        return False
    given, value = node.args[0].meta["val"], node.meta["val"]  # type: ignore[union-attr]
    steps = [(a, b) for a, b, n in zip(given.stride(), value.stride(), value.shape) if n != 1]
    if not all(type(a) is int for a, _ in steps) or not value.is_contiguous():
        return False
    is_other = steps[-1][0] != 1 and any(a == 1 for a, _ in steps)
    readers = [getattr(reader.target, "overloadpacket", None) for reader in readers_of(node)]
    return is_other and len(readers) > 1 and not REDUCE.isdisjoint(readers)


def readers_of(node: fx.Node) -> list[fx.Node]:
    """What reads its elements, perhaps through views and conversions."""
    found = []
    for user in node.users:
        through = user.op == "call_function" and (
            is_view(user.target) or user.target is aten._to_copy.default
        )
        found += readers_of(user) if through else [user]
    return found


def elements(node: fx.Node) -> int | None:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or any(type(n) is not int for n in value.shape):
        return None
    return math.prod(value.shape)


# --- memory of their own --------------------------------------------------------------------------
# type of a device -> bytes of an intermediate that has memory of its own
SINGLE = {"cuda": 1 << 16}


@extends(MemoryPlan)
class SingleBuffers(MemoryPlan):
    def may_share(self, buffer: Buffer, nbytes: Size) -> bool:
        single = SINGLE.get(self.device.type)
        in_training = self.record.joint_graph is not None
        if in_training and single is not None and hint(nbytes, 1) >= single:
            return False
        return super().may_share(buffer, nbytes)
