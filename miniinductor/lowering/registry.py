"""The table of lowering rules and the helpers they share.

In:   ATen ops with `TensorBox` arguments.  Out: `TensorBox`es.

    @lower(aten.relu)                       # every overload of relu
    def relu(call, x):
        return pointwise(call, lambda v: ops.maximum(v, ops.constant(0, x.dtype)), x)

A rule gets a `Call` (the FX node: its result's layout, its origin) and the arguments with tensors
as boxes.  It may raise `NotLowered(reason)`: the op then runs as its eager kernel, and the reason
is recorded. Mirrors torch/_inductor/lowering.py.
"""

import functools
import numbers
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch import fx
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as Promotion
from torch._prims_common import elementwise_dtypes

from ..ir.loops import Index, Loader, Pointwise, Reindex, TensorBox, View, layouts_of
from ..ir.ops import NARROW, Value, compute_dtype, ops
from ..sizes.expressions import Size
from ..sizes.symbols import sizes

if TYPE_CHECKING:
    from .graph import GraphLowering

aten = torch.ops.aten
Rule = Callable[..., Any]  # (call, *arguments) -> a box, or several
LOWERINGS: dict[torch._ops.OpOverload, Rule] = {}
# these read each element more than once
READ_SEVERAL_TIMES = {aten.max_pool2d_with_indices.default, aten.avg_pool2d.default}


class NotLowered(Exception):
    """This op, on these arguments, has no rule; it runs as an eager kernel."""


@dataclass
class Call:
    """The ATen call being lowered."""

    node: fx.Node
    lowerer: "GraphLowering"

    @functools.cached_property
    def value(self) -> Any:
        """The Layout of the result, or a tuple of them, as eager has it."""
        return layouts_of(self.node.meta["val"])

    @property
    def first(self) -> Any:
        """The result's Layout, or the first one of several."""
        return self.value[0] if isinstance(self.value, (tuple, list)) else self.value

    @property
    def origins(self) -> frozenset[str]:
        return frozenset([self.node.name])

    @property
    def name(self) -> str:
        """ "add" for aten.add.Tensor."""
        target: Any = self.node.target
        return target._schema.name.split("::")[1]


def overloads(target: Any) -> list[Any]:
    """All overloads of an op packet; an op itself."""
    if isinstance(target, torch._ops.OpOverload):
        return [target]
    return [getattr(target, name) for name in target.overloads()]


def lower(*targets: Any) -> Callable[[Rule], Rule]:
    """Register a rule for ops or op packets (all overloads that are not in place or out=)."""

    def decorate(rule: Rule) -> Rule:
        for target in targets:
            for op in overloads(target):
                if not op._schema.is_mutable:
                    register(LOWERINGS, op, rule)
        return rule

    return decorate


def register(table: dict[Any, Rule], op: Any, rule: Rule) -> None:
    """Add an entry to a table.  A second rule for an op raises; but a program may replace a rule of
    its own, as a cell of a notebook does that is run again."""
    known = table.get(op)
    is_ours = str(rule.__module__).startswith("miniinductor.")
    if known and (is_ours or known.__module__ != rule.__module__):
        raise ValueError(f"{op} has a rule already, that of {known.__module__}")
    table[op] = rule


# --- building values ------------------------------------------------------------------------------
def made(
    call: Call,
    body: Loader,
    *sources: Any,
    dtype: torch.dtype | None = None,
    size: Sequence[Size] | None = None,
) -> TensorBox:
    """A `Pointwise` value: body(index) for every index of the call's (first) result.  sources: the
    boxes that `body` reads; dtype, size: where they are not the result's."""
    value = call.first
    origins = call.origins.union(*[s.origins for s in sources if isinstance(s, TensorBox)])
    ranges = list(value.size if size is None else size)
    return TensorBox(Pointwise(value.device, dtype or value.dtype, ranges, body, origins=origins))


def mapped(
    call: Call,
    box: TensorBox,
    function: Callable[[Value], Value],
    dtype: torch.dtype,
    *sources: Any,
) -> TensorBox:
    """function(value) of every element of `box`, as `dtype`; sources: what `box` was made from, if
    that is part of the same op."""
    load, size = box.make_loader(), box.get_size()
    return made(call, lambda index: function(load(index)), box, *sources, dtype=dtype, size=size)


def is_number(x: object) -> bool:
    return isinstance(x, (numbers.Number, sympy.Expr)) and not isinstance(x, torch.Tensor)


def broadcast_loader(box: TensorBox, size: Sequence[Size]) -> Loader:
    """A loader that takes an index into the broadcast shape `size`."""
    load, place = box.make_loader(), broadcast_index(box.get_size(), size)
    return lambda index: load(place(index))


def broadcast_index(own: Sequence[Size], size: Sequence[Size]) -> Reindex:
    """index into the broadcast shape `size` -> index into the shape `own`."""
    skip, zero = len(size) - len(own), sympy.Integer(0)
    is_repeated = [n == 1 and m != 1 for n, m in zip(own, size[skip:])]
    return lambda index: [zero if r else i for r, i in zip(is_repeated, index[skip:])]


def cast(value: Value, src: torch.dtype, dst: torch.dtype) -> Value:
    return value if src == dst else ops.to_dtype(value, dst, src)


WIDE = (torch.float32, torch.float64)
WIDE_SECOND = {aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor, aten.div.Scalar}


@functools.cache
def _like(dtype: torch.dtype, rank: int) -> torch.Tensor:
    return torch.empty([1] * rank, dtype=dtype, device="meta")


def promoted(promotion: Promotion, *args: Any) -> torch.dtype:
    """The dtype in which torch computes with these boxes and numbers."""

    def example(value: Any) -> Any:
        """What decides: a tensor's dtype and number of dimensions, a number's type."""
        if isinstance(value, TensorBox):
            return _like(value.dtype, len(value.get_size()))
        if isinstance(value, sympy.Expr):
            return 1 if value.is_integer else 1.0
        return value

    return elementwise_dtypes(*map(example, args), type_promotion_kind=promotion)[0]


def pointwise(
    call: Call, function: Callable[..., Value], *args: Any, promotion: Promotion = Promotion.DEFAULT
) -> TensorBox:
    """function over values of `args` (boxes and numbers), broadcast, converted to the computation
    dtype of torch's promotion rule; the result has the dtype that eager gives it."""
    result = call.value.dtype
    compute = promoted(promotion, *args)
    produced = torch.bool if promotion == Promotion.ALWAYS_BOOL else compute
    loaders = operands(call, args, compute)

    def body(index: Index) -> Value:
        return cast(function(*[load(index) for load in loaders]), produced, result)

    return made(call, body, *args)


def operands(call: Call, args: Sequence[Any], compute: torch.dtype) -> list[Loader]:
    """A loader of each argument as `compute`.  Where the common dtype is float16 or bfloat16, eager
    rounds numbers, and tensors of other dtypes, to it before it computes in float32; but not a
    scalar second argument of mul and div."""
    size, wide_second = call.value.size, call.node.target in WIDE_SECOND
    common = promoted(Promotion.NO_OPMATH, *args)
    loaders = []
    for k, arg in enumerate(args):
        is_wide = wide_second and k == 1 and (is_number(arg) or not arg.get_size())
        is_rounded = common in NARROW and not is_wide
        loaders.append(operand(arg, size, compute, common if is_rounded else None))
    return loaders


def operand(
    arg: Any, size: Sequence[Size], compute: torch.dtype, common: torch.dtype | None = None
) -> Loader:
    """A loader of `arg` as `compute`, after it was converted to `common`, if that is given."""
    if isinstance(arg, TensorBox):
        load, own = broadcast_loader(arg, size), arg.dtype
        first = common or own
        return lambda index: cast(cast(load(index), own, first), first, compute)
    if not is_number(arg):
        raise NotLowered(f"argument {arg!r}")
    if common and not isinstance(arg, sympy.Expr):
        arg = torch.tensor(arg, dtype=torch.float64).to(common).item()
    return lambda index: number(arg, compute)


def number(value: Any, dtype: torch.dtype) -> Value:
    """A number, perhaps one made of symbolic sizes, as a value of a loop body."""
    if isinstance(value, sympy.Expr):
        wide = compute_dtype(dtype)
        return cast(ops.index_expr(value, wide), wide, dtype)
    return ops.constant(value, dtype)


def view(call: Call, base: TensorBox, size: Iterable[Size], reindex: Reindex) -> TensorBox:
    return TensorBox(View(base, list(sizes(size)), reindex, call.origins | base.origins))


def normalize_dim(dim: int, rank: int) -> int:
    """A dimension number in [0, rank)."""
    return dim % rank if rank else 0


def normalize_dims(dims: Any, rank: int) -> list[int]:
    """Dimensions to be reduced; None and () are all of them."""
    if not rank:
        return []
    if dims in (None, (), []):
        return list(range(rank))
    return [normalize_dim(d, rank) for d in (dims if isinstance(dims, (list, tuple)) else [dims])]
