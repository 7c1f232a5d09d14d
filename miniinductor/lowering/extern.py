"""Eager kernels inside a compiled graph: because the library is better, or because we have no rule.

In:   an ATen call.  Out: an `ExternKernel` (and `MultiOutput`s) whose tensor arguments are stored
      buffers.

Matrix products, convolutions, attention and sorting stay library calls: `EXTERN`.  An op without a
lowering runs as its eager kernel, too, and so does a call of dtypes, devices or numbers that its
rule must not lower (`check_arguments`); that is recorded as a fallback, with its reason.

    z * 2                       # of complex numbers
    x + y.cpu()                 # of two devices
    torch.add(int8, bool)       # of dtypes for which eager itself has no kernel: it raises

Calls that may raise are run for all of their elements, as eager runs them.  A value that is not
stored is computed by the kernels that read it, for the elements that they read; `calls_to_store`
finds what is not read in full (a user that `reads_all` does not recognise reads a part).

    y = x[i]; return y + 1            # inlined: the kernel looks at all positions
    y = x[i]; return y[:2] + 1        # stored: only two of the positions would be looked at
    x[i]; return x + 1                # stored: no kernel would look at any

Mirrors torch/_inductor/kernel/*.py, `fallback_handler` and `fallback_node_due_to_unsupported_type`
in torch/_inductor/lowering.py.
"""

import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import sympy
import torch
import torch.utils._pytree as pytree
from torch import fx

from ..autograd.fake_mode import may_raise, name_of, refusal
from ..autograd.functionalize import COUNTS_PLACES, is_view
from ..devices import FLOAT8
from ..errors import CannotLower
from ..ir.loops import (
    Buffer,
    BufferView,
    ExternKernel,
    Layout,
    MultiOutput,
    TensorBox,
    boxes_in,
    leaves_of,
)
from ..records import Fallback
from ..sizes.expressions import Opaque
from ..sizes.symbols import same
from .registry import LOWERINGS, Call, NotLowered, aten

PRODUCTS = [getattr(aten, name).default for name in ("mm", "bmm", "addmm", "baddbmm", "mv")]
# op -> its out= overload, or None
EXTERN: dict[Any, Any] = {op: op.overloadpacket.out for op in PRODUCTS}
KINDS = "flash_attention_for_cpu flash_attention efficient_attention cudnn_attention".split()
ATTENTION = [
    getattr(aten, f"_scaled_dot_product_{kind}{half}").default
    for half in ("", "_backward")
    for kind in KINDS
]
# bernoulli draws the numbers that eager draws; binary_cross_entropy looks at each probability, and
# raises; grid_sampler_2d is two to ten times as fast as its formula in fused kernels on a CPU, and
# 0.8 times on a GPU
OTHERS = """bernoulli binary_cross_entropy dot convolution convolution_backward grid_sampler_2d
max_pool2d_with_indices_backward sort topk""".split()
EXTERN |= dict.fromkeys([getattr(aten, name).default for name in OTHERS])
EXTERN |= {aten.bernoulli.p: None, aten.sort.stable: None}
EXTERN |= dict.fromkeys(ATTENTION)
if torch._C._has_mkldnn:
    EXTERN[torch.ops.mkldnn._linear_pointwise.default] = None
# ops that write at positions
SCATTERS = "index_put scatter scatter_add scatter_reduce index_add index_copy".split()


def is_cheap(op: Any) -> bool:
    """Is `op` part of fused kernels, so that computing it again in a backward half costs little?"""
    return op in LOWERINGS and op not in EXTERN and op.overloadpacket.__name__ not in SCATTERS


def eager_kernel(
    call: Call, args: Sequence[Any], kwargs: dict[str, Any], reason: str | None
) -> Any:
    """The call as an eager kernel; `reason` makes it a fallback.  Returns a box, or the tuple of
    boxes the op returns."""
    op, where = call.node.target, call.node.meta.get("source_line", "")
    kind = "fallback" if reason else "extern"
    reason = reason or "library kernel"
    call.lowerer.record.fallbacks.append(Fallback(str(op), kind, reason, where, call.node.name))
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
        origins, source = call.origins, kernel.name
        return TensorBox(graph.add(MultiOutput, item, origins, source=source, index=index))

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


# --- calls that must not be lowered ---------------------------------------------------------------
CONVERSIONS = "_to_copy clone copy convert_element_type".split()  # and copies


def check_arguments(node: fx.Node, args: Any, kwargs: Any) -> None:
    """Raise NotLowered for arguments that no rule knows."""
    target: Any = node.target
    fakes = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
    if refused := refusal(target, *fakes):
        raise NotLowered(f"eager has no kernel: {refused}")
    results = leaves_of(torch.Tensor, node.meta["val"])
    if may_raise(node) and any(same(t.numel(), 0) for t in results[:1]):
        raise NotLowered("only the kernel knows which positions of nothing it refuses")
    numbers = leaves_of(sympy.Expr, (args, kwargs))
    if any(not f.texts["c"] for n in numbers for f in n.atoms(Opaque)):
        raise NotLowered("a number made of sizes in a way that kernels do not have")
    boxes = boxes_in((args, kwargs))
    if len({b.device for b in boxes if b.get_size()}) > 1:
        raise NotLowered("tensors on several devices")
    unknown = [unknown_numbers(t.dtype, name_of(target)) for t in [*boxes, *results]]
    unknown += [unknown_numbers(torch.complex128) for _ in leaves_of(complex, (args, kwargs))]
    if any(unknown) and not is_view(target) and target is not aten._unsafe_view.default:
        raise NotLowered(max(unknown))


def check_result(result: Any) -> None:
    """Numbers that our kernels do not have: an eager kernel makes them, and only views of its
    result are possible."""
    for box in boxes_in(result):
        is_stored = not unknown_numbers(box.dtype) or isinstance(box.data, Buffer)
        if not is_stored and box._affine_view() is None:
            raise NotLowered(unknown_numbers(box.dtype))


def unknown_numbers(dtype: torch.dtype, op: str = "copy") -> str:
    """The name of numbers that our kernels do not have for an op, "" for those that they have."""
    if dtype.is_complex:
        return "complex numbers"
    is_small = dtype.is_floating_point and dtype.itemsize < 2
    is_known = not is_small or dtype in FLOAT8 and op in CONVERSIONS
    return "" if is_known else f"{dtype} numbers"


# --- calls that may raise -------------------------------------------------------------------------
WHOLE = frozenset("_to_copy clone cat flip sum mean prod amax amin any all var_mean expand".split())


def calls_to_store(graph: fx.Graph, is_forward: bool) -> set[fx.Node]:
    """The calls that may raise and whose result is not read in full: they are stored, so that all
    positions are looked at.  None in a backward graph: forward has checked what it recomputes."""
    raising = {n for n in graph.nodes if n.op == "call_function" and may_raise(n)}
    if not is_forward or not raising:
        return set()
    full: set[fx.Node] = set()  # those of which every element is computed
    for node in reversed(graph.nodes):
        is_full = any(user in full and reads_all(user, node) for user in node.users)
        if is_full:
            raising.discard(node)
        if is_full or node.op == "output" or node in raising or not is_inlined(node):
            full.add(node)
    return raising


def is_inlined(node: fx.Node) -> bool:
    return node.target in LOWERINGS and node.target not in EXTERN


def reads_all(user: fx.Node, node: fx.Node) -> bool:
    """Does computing all of `user` look at each element of `node`?"""
    if user.op == "output":
        return True
    if user.target is operator.getitem:
        return False
    if not is_inlined(user):
        return True
    value, name = user.meta["val"], name_of(user.target)
    if isinstance(value, torch.Tensor) and same(value.numel(), 0):
        return False
    if name in WHOLE or torch.Tag.pointwise in user.target.tags:  # type: ignore[union-attr]
        return True
    is_whole_view = is_view(user.target) and name not in ("as_strided", "unfold")
    return is_whole_view and bool(same(value.numel(), node.meta["val"].numel()))
