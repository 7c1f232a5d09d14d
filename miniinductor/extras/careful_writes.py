"""Ops that write, where the recorded graph alone would not show what eager does: memory that
overlaps, draws in the order of memory, tensors whose shape changes, results that do not fit.

In:   an op with its arguments, on its way into the tracer's graph.
Out:  what the op gives, recorded in another way; or NotImplemented, and the tracer goes on; or
      CannotTrace is raised.

    x.add_(x.t())           # CannotTrace: eager raises, or reads what it has just written
    x.t().uniform_()        # drawn as x.uniform_(): eager draws in the order of memory
    y.unsqueeze_(0)         # from here on y stands for a view of what it was
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from ..autograd.functionalize import functional_form
from ..autograd.tracer import Tracer, data_of, is_composite, order_in_memory, written_and_read
from ..autograd.written_views import is_as_before
from ..exceptions import CannotTrace
from ..autograd.rules import Op, call_rule, op_rule
from ..sizes.symbols import hint

aten = torch.ops.aten
Numbers = Sequence[int]
Geometry = tuple[Numbers, Numbers, int]  # sizes, strides, offset
RESIZING = {
    aten.resize_.default,
    aten.resize_as_.default,
    aten.set_.source_Tensor,
    aten.set_.default,
    aten.set_.source_Storage,
    aten.set_.source_Storage_storage_offset,
}


# --- what is not traced ---------------------------------------------------------------------------
@op_rule(lambda op: op._schema.is_mutable, order=20)
def check_write(tracer: Tracer, op: Op, args: tuple, kwargs: dict) -> Any:
    """Raise CannotTrace for writes to memory that eager would refuse, or whose history autograd
    would make otherwise.

    Sizes that are symbols are taken for what they were in this call: what is refused runs eagerly,
    which is right for all sizes."""
    written, read = written_and_read(op, args, kwargs)
    if any(has_elements_in_one_place(t) for t in written):
        raise CannotTrace(f"{op} writes several elements to one place in memory")
    by_memory: dict[int, list[torch.Tensor]] = {}
    for t in written:
        by_memory.setdefault(t.untyped_storage()._cdata, []).append(t)
        check_derivation(tracer, tracer.to_fake(t))
    for other in read:
        for t in by_memory.get(other.untyped_storage()._cdata, ()):
            if overlap_in_part(t, other) or not (reads_in_place(op) or is_empty(t)):
                raise CannotTrace(f"{op} writes to what it also reads")
    if tracer.reached_around:
        check_reach(tracer, [tracer.to_fake(t) for t in [*written, *read]])
    return NotImplemented


def check_derivation(tracer: Tracer, tensor: torch.Tensor) -> None:
    """Raise CannotTrace if eager might refuse to write `tensor` (fake ones do not always know that
    they were made in inference mode), and where a constant's version must not be raised."""
    root, steps = tracer.derivation(tensor)
    if any(op is data_of for op, *_ in steps) and tracer.node_of(root).op == "get_attr":
        raise CannotTrace("a write through .data of a constant of the graph")
    if torch.is_inference_mode_enabled():
        return
    modes = [mode for *_, mode in steps]
    if tensor.is_inference() or "inference" in modes:
        raise CannotTrace("a write to what was made in inference mode, outside of it")


@op_rule(lambda op: op is aten.as_strided.default, order=40)
def note_reach(tracer: Tracer, op: Op, args: tuple, kwargs: dict) -> Any:
    """Record source.as_strided(...), and whether it reads what `source`, a part, does not have.

    When the whole is written later, autograd makes the history of the result anew: of an eager
    tensor by one as_strided() of the whole, of ours by the views in turn, and the gradient of what
    lies around the part is lost.  Raises CannotTrace where it reaches beyond the memory: eager
    refuses that, and a fake tensor gives itself what it lacks."""
    source = tracer.to_fake(args[0])
    if is_as_before(source, *args[1:], **kwargs):
        return NotImplemented
    held = source.untyped_storage().nbytes()  # before the fake call
    out = tracer.record(op, args, kwargs)
    root = tracer.derivation(source)[0]
    first, last = span_of(source)
    start, end = span_of(out)
    if not is_empty(out) and end >= hint(held, 0) // out.itemsize:
        raise CannotTrace("as_strided() beyond the end of the memory, which eager refuses")
    if root is not source and (start < first or end > last):
        tracer.reached_around.add(id(root))
    return out


def check_reach(tracer: Tracer, met: list[torch.Tensor]) -> None:
    """Raise CannotTrace if this write makes autograd give a wrong history to an earlier
    as_strided()."""
    if not (torch.is_grad_enabled() and any(t.requires_grad for t in met)):
        return
    if any(id(tracer.derivation(t)[0]) in tracer.reached_around for t in met):
        raise CannotTrace("a write after as_strided() of a part that reaches around the part")


# --- what is recorded in another way --------------------------------------------------------------
@op_rule(
    lambda op: op._schema.is_mutable and torch.Tag.nondeterministic_seeded in op.tags, order=30
)
def draw_in_order_of_memory(tracer: Tracer, op: Op, args: tuple, kwargs: dict) -> Any:
    """Eager draws in the order of memory; the functional form in that of the indices."""
    written = written_and_read(op, args, kwargs)[0][0]
    order = order_in_memory(written)
    if order == sorted(order):
        return NotImplemented
    if written is not args[0]:
        raise CannotTrace(f"{op} draws into memory of another order")
    with tracer:
        op(written.permute(order), *args[1:], **kwargs)
    return written


@op_rule(lambda op: torch.Tag.inplace_view in op.tags and not is_composite(op), order=40)
def record_inplace_view(tracer: Tracer, op: Op, args: tuple, kwargs: dict) -> Any:
    """`x.unsqueeze_(0)` changes no data: from here on the tensor object x stands for a view of what
    it was."""
    tensor, node = args[0], tracer.node_of(args[0])
    if node.op != "call_function" or op in RESIZING:
        raise CannotTrace(f"{op} changes the shape of an input, or of memory itself")
    functional = functional_form(op)[0]
    with tracer.fake_mode:
        node.meta["val"] = old = aten.alias(tensor)  # the old node keeps the old shape
        op(*args, **kwargs)
    view = tracer.graph.call_function(functional, (node, *args[1:]), kwargs)
    view.meta.update(tracer.meta)
    tracer.bind(old, node)
    tracer.share_as(old, tensor)
    tracer.share(tensor, old, functional, args[1:], kwargs)
    tracer.bind(tensor, view)
    return tensor


@op_rule(lambda op: any(a.is_out for a in op._schema.arguments) and not is_composite(op), order=40)
def record_out(tracer: Tracer, op: Op, args: tuple, kwargs: dict) -> Any:
    """An op that is given the tensors for its results must not resize them."""
    written = [(t, tuple(t.shape)) for t in written_and_read(op, args, kwargs)[0]]
    out = tracer.record(op, args, kwargs)
    if any(tuple(t.shape) != shape for t, shape in written):
        raise CannotTrace(f"{op} resizes its out= tensor")
    return out


@call_rule("fill_diagonal_", torch.Tensor.fill_diagonal_)
def fill_diagonal(interpreter: Any, target: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Of a matrix, through a view: torch's C++ code asks for strides in numbers."""
    matrix, *rest = args
    if matrix.dim() == 2 and len([*rest, *kwargs]) == 1:
        matrix.diagonal().fill_(*rest, *kwargs.values())
        return matrix
    plain = interpreter.plain_method if isinstance(target, str) else interpreter.plain_call
    return plain(target, args, kwargs)


@functools.cache
def reads_in_place(op: Op) -> bool:
    """Does eager read each element just before it writes it, in the same memory?"""
    name = op._schema.name.removeprefix("aten::").rstrip("_")
    packet = getattr(aten, name, None)
    overloads = [getattr(packet, overload) for overload in packet.overloads()] if packet else []
    is_pointwise = any(torch.Tag.pointwise in overload.tags for overload in overloads)
    return is_pointwise or name in ("copy", "floor_divide") or name.startswith("_foreach_")


# --- memory in the call that is traced ------------------------------------------------------------
def as_in_this_call(t: torch.Tensor) -> Geometry:
    """(sizes, strides, offset) of a strided tensor."""
    numbers = [hint(n, 2) for n in (*t.shape, *t.stride(), t.storage_offset())]
    return numbers[: t.dim()], numbers[t.dim() : -1], numbers[-1]


def span_of(t: torch.Tensor) -> tuple[int, int]:
    """(the first, the last place in its memory) of a tensor."""
    shape, strides, offset = as_in_this_call(t)
    return offset, offset + sum((n - 1) * step for n, step in zip(shape, strides))


def is_empty(t: torch.Tensor) -> bool:
    return 0 in as_in_this_call(t)[0]


def has_elements_in_one_place(t: torch.Tensor) -> bool:
    """Is it expanded?"""
    if t.layout is not torch.strided:
        return False
    shape, strides, _ = as_in_this_call(t)
    return 0 not in shape and any(n > 1 and step == 0 for n, step in zip(shape, strides))


def overlap_in_part(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Do two tensors in one memory share some of it, but not all alike?  Of tensors without holes
    eager refuses that.  Of others it does not say so, and reads what it has just written."""
    if a.layout is not torch.strided or b.layout is not torch.strided or a is b:
        return False
    about, other = as_in_this_call(a), as_in_this_call(b)
    if about == other or 0 in (*about[0], *other[0]):
        return False
    if is_without_holes(*about[:2]) and is_without_holes(*other[:2]):
        start, end = about[2], about[2] + math.prod(about[0])
        other_start, other_end = other[2], other[2] + math.prod(other[0])
        if (start, end) == (other_start, other_end):
            return about[1] != other[1]
        return start < other_end and other_start < end
    (first, last), (other_first, other_last) = span_of(a), span_of(b)
    if last < other_first or other_last < first:
        return False
    return share_elements(about, other, min(first, other_first), max(last, other_last))


def share_elements(a: Geometry, b: Geometry, first: int, last: int) -> bool:
    """Is there a place in memory, from the first to the last, where both have an element?"""
    with _disable_current_modes():
        places = torch.zeros(last - first + 1, dtype=torch.bool)
        one, other = (
            places.as_strided(tuple(shape), tuple(strides), offset - first)
            for shape, strides, offset in (a, b)
        )
        one.fill_(True)
        return bool(other.any())


def is_without_holes(shape: Numbers, strides: Numbers) -> bool:
    """Do its elements fill the memory from the first to the last, each in a place of its own?"""
    expected = 1
    for step, n in sorted(zip(strides, shape)):
        if n == 1:
            continue
        if step != expected:
            return False
        expected *= n
    return 0 not in shape
