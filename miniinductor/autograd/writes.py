"""Ops that write, where the recorded graph alone would not show what eager does: memory that
overlaps, draws in the order of memory, tensors whose shape changes, results that do not fit.

In:   an op with its arguments, on its way into the tracer's graph.
Out:  what the op gives, recorded in another way; or NotImplemented, and the tracer goes on; or
      CannotTrace: the op runs eagerly.

    x.add_(x.t())           # eager raises, or reads what it has just written
    x.t().uniform_()        # drawn as x.uniform_(): eager draws in the order of memory
    y.unsqueeze_(0)         # from here on y stands for a view of what it was
"""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..errors import CannotTrace
from ..sizes.symbols import hint
from .eager_answers import tensors_in
from .functionalize import Op, functional_form, is_as_before, is_composite

if TYPE_CHECKING:
    from .tracer import Tracer

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


def data_of(tensor: torch.Tensor) -> torch.Tensor:
    """The step of a view that `.data` is: no part of autograd's history, writes are not counted."""
    return tensor.data


def written_and_read(op: Op, args: tuple, kwargs: dict) -> tuple[list, list]:
    """The tensors that the call writes; those that it only reads."""
    written: list[torch.Tensor] = []
    read: list[torch.Tensor] = []
    for place, argument in enumerate(op._schema.arguments):
        value = args[place] if place < len(args) else kwargs.get(argument.name)
        is_written = argument.alias_info is not None and argument.alias_info.is_write
        (written if is_written else read).extend(tensors_in(value))
    return written, read


def order_in_memory(tensor: torch.Tensor) -> list[int]:
    """The dimensions, the one with the largest stride first."""
    return sorted(range(tensor.dim()), key=lambda d: hint(tensor.stride(d), 0), reverse=True)


def written_with_care(tracer: "Tracer", op: Op, args: tuple, kwargs: dict) -> Any:
    """What an op that writes, or as_strided, gives; NotImplemented: it is recorded as any other."""
    if not op._schema.is_mutable:
        return reached(tracer, op, args, kwargs)
    check_write(tracer, op, args, kwargs)
    if torch.Tag.nondeterministic_seeded in op.tags:
        # eager draws in the order of memory; the functional form in that of the indices
        written = written_and_read(op, args, kwargs)[0][0]
        order = order_in_memory(written)
        if order != sorted(order):
            if written is not args[0]:
                raise CannotTrace(f"{op} draws into memory of another order")
            with tracer:
                op(written.permute(order), *args[1:], **kwargs)
            return written
    if is_composite(op):
        return NotImplemented
    if torch.Tag.inplace_view in op.tags:
        return record_inplace_view(tracer, op, args, kwargs)
    if any(argument.is_out for argument in op._schema.arguments):
        return record_out(tracer, op, args, kwargs)
    return NotImplemented


def check_write(tracer: "Tracer", op: Op, args: tuple, kwargs: dict) -> None:
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
            if may_overlap_in_part(t, other) or not (reads_in_place(op) or is_empty(t)):
                raise CannotTrace(f"{op} writes to what it also reads")


def check_derivation(tracer: "Tracer", tensor: torch.Tensor) -> None:
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


def reached(tracer: "Tracer", op: Op, args: tuple, kwargs: dict) -> Any:
    """Raise CannotTrace if source.as_strided(...) reads what `source`, a part, does not have.

    When the whole is written later, autograd makes the history of the result anew: of an eager
    tensor by one as_strided() of the whole, of ours by the views in turn, and the gradient of what
    lies around the part is lost.  What reaches beyond the memory is refused, too: eager refuses
    that, and a fake tensor gives itself what it lacks."""
    source = tracer.to_fake(args[0])
    if is_as_before(source, *args[1:], **kwargs):
        return NotImplemented
    held = source.untyped_storage().nbytes()  # before the fake call
    out = tracer.record(op, args, kwargs)
    first, last = span_of(source)
    start, end = span_of(out)
    is_whole = tracer.derivation(source)[0] is source
    if not is_empty(out) and end >= hint(held, 0) // out.itemsize:
        raise CannotTrace("as_strided() beyond the end of the memory, which eager refuses")
    if not is_whole and (start < first or end > last):
        raise CannotTrace("as_strided() of a part that reaches around the part")
    return out


def record_inplace_view(tracer: "Tracer", op: Op, args: tuple, kwargs: dict) -> Any:
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


def record_out(tracer: "Tracer", op: Op, args: tuple, kwargs: dict) -> Any:
    """An op that is given the tensors for its results must not resize them."""
    written = [(t, tuple(t.shape)) for t in written_and_read(op, args, kwargs)[0]]
    out = tracer.record(op, args, kwargs)
    if any(tuple(t.shape) != shape for t, shape in written):
        raise CannotTrace(f"{op} resizes its out= tensor")
    return out


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


def may_overlap_in_part(a: torch.Tensor, b: torch.Tensor) -> bool:
    """May two tensors in one memory share some of it, but not all alike?  Of tensors without holes
    eager refuses that.  Of others it does not say so, and reads what it has just written."""
    if a.layout is not torch.strided or b.layout is not torch.strided or a is b:
        return False
    about, other = as_in_this_call(a), as_in_this_call(b)
    if about == other or 0 in (*about[0], *other[0]):
        return False
    (first, last), (other_first, other_last) = span_of(a), span_of(b)
    return first <= other_last and other_first <= last
