"""Ops that write, where the recorded graph alone would not show what eager does: memory that
overlaps, draws in the order of memory, results that do not fit; and as_strided, which counts places
from the start of a tensor's memory.

In:   an op with its arguments, on its way into the tracer's graph.
Out:  what the op gives, recorded in another way; or NotImplemented, and the tracer goes on; or
      CannotTrace: the op runs eagerly.

    x.add_(x.t())           # eager raises, or reads what it has just written
    x.t().uniform_()        # drawn as x.uniform_(): eager draws in the order of memory
    y.unsqueeze_(0)         # refused: the tensor y is another one from here on

Two inputs of a graph that writes may overlap in memory.  Each call looks, and where two tensors may
share a byte, the captured graph runs eagerly:

    def f(x, y):
        x.add_(1)               # f(a, a[:2]): y is written, too
        return y * 2

    >>> flat = torch.zeros(100)  # parameters in one piece
    >>> are_apart([flat[:50], flat[50:]])
    True

# PyTorch: compiles a call whose inputs overlap for itself, over the memory that they share.
"""

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from ..errors import CannotTrace
from ..records import CompileRecord
from ..sizes.symbols import extent, has_own_places, hint
from .eager_graphs import runnable
from .fake_mode import Op, as_it_is, count, is_random, name_of, tensors_in, written_arguments
from .functionalize import is_as_before, is_composite

if TYPE_CHECKING:
    from .tracer import Tracer

aten = torch.ops.aten
RESIZING = ("resize_", "resize_as_", "set_")


def written_and_read(op: Op, args: tuple, kwargs: dict) -> tuple[list, list]:
    """The tensors that the call writes; those that it only reads."""
    written: list[torch.Tensor] = []
    read: list[torch.Tensor] = []
    for place, argument in enumerate(op._schema.arguments):
        value = args[place] if place < len(args) else kwargs.get(argument.name)
        (written if place in written_arguments(op) else read).extend(tensors_in(value))
    return written, read


def order_in_memory(tensor: torch.Tensor) -> list[int]:
    """The dimensions, the one with the largest stride first."""
    return sorted(range(tensor.dim()), key=lambda d: hint(tensor.stride(d), 0), reverse=True)


def special_write(tracer: "Tracer", op: Op, args: tuple, kwargs: dict) -> Any:
    """What an op that writes, or as_strided, gives; NotImplemented: it is recorded as any other."""
    if not op._schema.is_mutable:
        return reached(tracer, op, args, kwargs)
    if op is aten.as_strided_.default and is_as_before(*args, **kwargs):
        return args[0]  # pooling of channels-last images: other strides of dimensions of size 1
    written, read = written_and_read(op, args, kwargs)
    check_write(tracer, op, written, read)
    if is_random(op):
        # eager draws in the order of memory; the functional form in that of the indices
        order = order_in_memory(written[0])
        if order != sorted(order):
            with tracer:
                op(written[0].permute(order), *args[1:], **kwargs)
            return written[0]
    if any(argument.is_out for argument in op._schema.arguments) and not is_composite(op):
        shapes = [tuple(t.shape) for t in written]
        out = tracer.record(op, args, kwargs)
        if [tuple(t.shape) for t in written] != shapes:
            raise CannotTrace(f"{op} resizes its out= tensor")
        return out
    return NotImplemented


def check_write(tracer: "Tracer", op: Op, written: list, read: list) -> None:
    """Raise CannotTrace for writes to memory that eager would refuse, or whose history autograd
    would make otherwise.

    Sizes that are symbols are taken for what they were in this call: what is refused runs eagerly,
    which is right for all sizes."""
    if torch.Tag.inplace_view in op.tags or name_of(op) in RESIZING:
        raise CannotTrace(f"{op} changes the shape of a tensor")
    for tensor in written:
        fake = tracer.to_fake(tensor)
        root, views = tracer.derivation(fake)
        for sample in map(as_it_is, filter(count, (tensor, root))):
            if not has_own_places(sample.sizes, sample.strides):
                raise CannotTrace(f"{op} writes where several elements lie in one place")
        if any(meet(op, tensor, other) for other in read):
            raise CannotTrace(f"{op} writes to what it also reads")
        is_of_inference = any(mode == "inference" for *_, mode in views)
        if (fake.is_inference() or is_of_inference) and not torch.is_inference_mode_enabled():
            # (fake tensors do not always know that they were made in inference mode)
            raise CannotTrace("a write to what was made in inference mode, outside of it")


def meet(op: Op, written: torch.Tensor, read: torch.Tensor) -> bool:
    """Would the op read what it has just written?"""
    is_shared = written.untyped_storage()._cdata == read.untyped_storage()._cdata
    if not (is_shared and count(written) and count(read)):
        return False
    (first, last), (other_first, other_last) = span_of(written), span_of(read)
    if last < other_first or other_last < first:
        return False
    if as_it_is(written) != as_it_is(read):
        return True
    if apart := abs(first - other_first):  # pieces of rows, such as the gates of a GRU
        return not has_own_places((2, *written.shape), (apart, *written.stride()))
    return not reads_in_place(op)


@functools.cache
def reads_in_place(op: Op) -> bool:
    """Does eager read each element just before it writes it, in the same memory?"""
    name = name_of(op).rstrip("_")
    packet = getattr(aten, name, None)
    overloads = [getattr(packet, overload) for overload in packet.overloads()] if packet else []
    is_pointwise = any(torch.Tag.pointwise in overload.tags for overload in overloads)
    return is_pointwise or name in ("copy", "floor_divide") or name.startswith("_foreach_")


def span_of(tensor: torch.Tensor) -> tuple[int, int]:
    """(the first, the last place in its memory) of a tensor that has elements, in this call."""
    sample, first = as_it_is(tensor), hint(tensor.storage_offset(), 0)
    return first, extent(sample.sizes, sample.strides, first) - 1


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
    (first, last), (start, end) = span_of(source), span_of(out)
    is_whole = tracer.derivation(source)[0] is source
    if count(out) and end >= hint(held, 0) // out.itemsize:
        raise CannotTrace("as_strided() beyond the end of the memory, which eager refuses")
    if not is_whole and (start < first or end > last):
        raise CannotTrace("as_strided() of a part that reaches around the part")
    return out


# --- inputs that overlap --------------------------------------------------------------------------
def guard_shared_memory(run: Callable, gm: fx.GraphModule, record: CompileRecord) -> Callable:
    """`run`, the function of a graph that writes to its inputs, which is right only if no two of
    its tensors overlap in memory: each call looks, and runs the FX graph eagerly if two may."""
    record.notes.append(
        "writes to tensors: each call first checks that no two of the graph's tensors share memory"
    )
    held = [*gm.parameters(), *gm.buffers()]  # each tensor once

    def checked(*inputs: object) -> object:
        tensors = [*[t for t in inputs if isinstance(t, torch.Tensor)], *held]
        if len({t.untyped_storage()._cdata for t in tensors}) == len(tensors):
            return run(*inputs)
        return run(*inputs) if are_apart(tensors) else runnable(gm)(*inputs)

    return checked


def are_apart(tensors: Sequence[torch.Tensor]) -> bool:
    """Does each tensor lie behind the end of the one before it, and does autograd not mind?

    Where gradients are recorded for one of them the answer is no: a write to a view gives the whole
    memory, and so all other views of it, another history."""
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return False
    spans = sorted(bytes_of(tensor) for tensor in tensors if tensor.numel())
    return all(a[0] != b[0] or a[2] <= b[1] for a, b in zip(spans, spans[1:]))


def bytes_of(tensor: torch.Tensor) -> tuple[Any, Any, Any]:
    """(its memory, its first byte there, the byte behind its last)."""
    (first, last), width = span_of(tensor), tensor.element_size()
    return tensor.untyped_storage()._cdata, first * width, (last + 1) * width
