"""Calls that an op's rule must not lower: of dtypes, devices and numbers that no rule knows.

In:   a call whose op has a lowering.  Out: NotLowered, with the reason: its eager kernel runs.

    z * 2                       # of complex numbers
    x + y.cpu()                 # of two devices
    torch.add(int8, bool)       # of dtypes for which eager itself has no kernel: it raises

What an eager kernel has made of such numbers may be seen through views, and be a result.
Mirrors `fallback_node_due_to_unsupported_type` in torch/_inductor/lowering.py.
"""

from typing import Any

import sympy
import torch
from torch import fx

from ..autograd.functionalize import is_view
from ..checks import may_raise
from ..eager_answers import refusal
from ..ir import Buffer, boxes_in, leaves_of
from .registry import NotLowered, aten

# functions of sizes that kernels and wrappers can print
KNOWN_FUNCTIONS = set(
    "FloorDiv Mod Max Min TrueDiv ToFloat FloatAdd FloatSub FloatMul FloatNeg FloatPow".split()
) | {"Math_sqrt"}


def check_arguments(node: fx.Node, args: Any, kwargs: Any) -> None:
    """Raise NotLowered for arguments that no rule knows."""
    target: Any = node.target
    fakes = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
    if refused := refusal(target, *fakes):
        raise NotLowered(f"eager has no kernel: {refused}")
    results = leaves_of(torch.Tensor, node.meta["val"])
    if may_raise(node) and any(type(n) is int and n == 0 for t in results[:1] for n in t.shape):
        raise NotLowered("only the kernel knows which positions of nothing it refuses")
    numbers = leaves_of(sympy.Expr, (args, kwargs))
    functions = {type(f).__name__ for n in numbers for f in n.atoms(sympy.Function)}
    if functions - KNOWN_FUNCTIONS:
        raise NotLowered("a number made of sizes in a way that kernels do not have")
    boxes = boxes_in((args, kwargs))
    if len({b.device for b in boxes if b.get_size()}) > 1:
        raise NotLowered("tensors on several devices")
    unknown = [unknown_numbers(t.dtype) for t in [*boxes, *results]]
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


def unknown_numbers(dtype: torch.dtype) -> str:
    """The name of numbers that our kernels do not have, "" for those that they have."""
    if dtype.is_complex:
        return "complex numbers"
    return f"{dtype} numbers" if dtype.is_floating_point and dtype.itemsize < 2 else ""
