"""Operands in 16 bits are rounded before they are computed with, as eager rounds them.

In:   the arguments of an elementwise op (lowering/registry.py).  Out: a loader of each.

Where the common dtype is float16 or bfloat16, eager rounds numbers, and tensors of other dtypes, to
it before it computes in float32.  So do we; except for a scalar second argument of mul and div
(`WIDE_SECOND`), which eager does not round.
"""

from collections.abc import Sequence
from typing import Any

import sympy
import torch

from ..ir import Loader, TensorBox
from ..lowering.registry import (
    NARROW,
    Call,
    Promotion,
    aten,
    broadcast_loader,
    cast,
    is_number,
    number,
    operand,
    operands,
    promoted,
)
from ..sizes.expressions import Size

WIDE_SECOND = {aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor, aten.div.Scalar}


@operands.replaced
def rounded_operands(call: Call, args: Sequence[Any], compute: torch.dtype) -> list[Loader]:
    size, wide_second = call.value.size, call.node.target in WIDE_SECOND
    common = promoted(Promotion.NO_OPMATH, *args)
    loaders = []
    for k, arg in enumerate(args):
        is_wide = wide_second and k == 1 and (is_number(arg) or not arg.get_size())
        is_rounded = common in NARROW and not is_wide
        load = rounded(arg, size, common, compute) if is_rounded else operand(arg, size, compute)
        loaders.append(load)
    return loaders


def rounded(arg: Any, size: Sequence[Size], common: torch.dtype, compute: torch.dtype) -> Loader:
    """A loader of `arg` as `compute`, after it was converted to `common`."""
    if isinstance(arg, TensorBox):
        load, dtype = broadcast_loader(arg, size), arg.dtype
        return lambda index: cast(cast(load(index), dtype, common), common, compute)
    if not is_number(arg) or isinstance(arg, sympy.Expr):
        return operand(arg, size, compute)
    value = torch.tensor(arg, dtype=torch.float64).to(common).item()
    return lambda index: number(value, compute)
