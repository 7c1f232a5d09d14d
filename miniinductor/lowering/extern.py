"""Eager kernels inside a compiled graph: because the library is better, or because we have no rule.

In:   an ATen call.  Out: an `ExternKernel` (and `MultiOutput`s) whose tensor arguments are stored
      buffers.

Matrix products, convolutions, attention and sorting stay library calls: `EXTERN`.  An op without a
lowering runs as its eager kernel, too; that is recorded as a fallback, with its reason.
Mirrors torch/_inductor/kernel/*.py and `fallback_handler`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.utils._pytree as pytree

from ..autograd.functionalize import COUNTS_PLACES
from ..errors import CannotLower
from ..ir.loops import BufferView, ExternKernel, Layout, MultiOutput, TensorBox
from ..records import CompileRecord, Fallback
from .registry import LOWERINGS, Call, aten

PRODUCTS = [getattr(aten, name).default for name in ("mm", "bmm", "addmm", "baddbmm", "mv")]
# op -> its out= overload, or None
EXTERN: dict[Any, Any] = {op: op.overloadpacket.out for op in PRODUCTS}
ATTENTION = "flash_attention_for_cpu flash_attention efficient_attention cudnn_attention".split()
EXTERN |= dict.fromkeys(
    [
        aten.bernoulli.default,  # draws the numbers that eager draws
        aten.bernoulli.p,
        aten.binary_cross_entropy.default,  # it looks at each probability, and raises
        aten.dot.default,
        aten.convolution.default,
        aten.convolution_backward.default,
        aten.grid_sampler_2d.default,  # twice to ten times as fast as its formula in fused kernels
        aten.max_pool2d_with_indices_backward.default,
        aten.sort.default,
        aten.sort.stable,
        aten.topk.default,
    ]
)
for _kind in ATTENTION:
    for _half in ("", "_backward"):
        EXTERN[getattr(aten, f"_scaled_dot_product_{_kind}{_half}").default] = None
if torch._C._has_mkldnn:
    EXTERN[torch.ops.mkldnn._linear_pointwise.default] = None
# ops that write at positions
SCATTERS = "index_put scatter scatter_add scatter_reduce index_add index_copy".split()


def is_cheap(op: Any) -> bool:
    """Is `op` part of fused kernels, so that computing it again in a backward half costs little?"""
    return op in LOWERINGS and op not in EXTERN and op.overloadpacket.__name__ not in SCATTERS


def eager_kernel(
    call: Call,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    record: CompileRecord,
    reason: str | None = None,
) -> Any:
    """The call as an eager kernel; `reason` makes it a fallback.  Returns a box, or the tuple of
    boxes the op returns."""
    op, where = call.node.target, call.node.meta.get("source_line", "")
    kind = "fallback" if reason else "extern"
    reason = reason or "library kernel"
    record.fallbacks.append(Fallback(str(op), kind, reason, where, call.node.name))
    args, kwargs = pytree.tree_map_only(TensorBox, lambda box: _argument(call, box), (args, kwargs))
    graph, value = call.lowerer.lowered, call.value
    called = dict(op=op, args=tuple(args), kwargs=kwargs)
    if isinstance(value, Layout):
        out_op = EXTERN.get(op)
        return TensorBox(graph.add(ExternKernel, value, call.origins, out_op=out_op, **called))
    kernel = graph.add(ExternKernel, None, call.origins, **called)

    def part(path: tuple, item: Any) -> Any:
        """A box for one of its results."""
        if not isinstance(item, Layout):
            return item
        index = tuple(key.idx for key in path)
        fields = dict(source=kernel.name, index=index)
        return TensorBox(graph.add(MultiOutput, item, call.origins, **fields))

    return pytree.tree_map_with_path(part, value)


def _argument(call: Call, box: TensorBox) -> BufferView:
    """A stored view of `box`, in the strides eager gives it: many kernels choose the layout of
    their result by that of their arguments.

    A kernel with an out= overload is given its result's memory, so its arguments may lie anyhow.
    """
    call.lowerer.settle_base(box)
    if call.node.target in EXTERN and EXTERN[call.node.target] is not None:
        return box.as_buffer_view()
    if call.node.target in COUNTS_PLACES:
        # such as as_strided: it counts from the start of the storage, which ours shares with others
        raise CannotLower(f"{call.node.target} of a tensor that is not contiguous")
    if box.eager is None or not box.eager.is_dense:
        return box.as_buffer_view()
    stride = box.eager.stride
    return replace(box.as_buffer_view(stride), stride=stride)
