"""Fake results of our own: positions out of range, and convolutions of symbolic sizes.

Positions and dimensions out of range, for which torch's fake rules do not look.

In:   `select`, a `*_scatter` of a part, a softmax, a sort or a norm of weights, of fake tensors.
Out:  what eager's kernel raises, in its class; where a position is a symbol, a guard that it lies
      in the tensor.  Else nothing: torch's own rule goes on.

Where the result is used, another op would stumble over it.  Where nobody uses it, the op is dropped
from the graph, and eager's error with it: `x[n]; return x + 1`.  Torch's rule for `select` looks at
the position since 2.12.

Convolutions of symbolic sizes, without a decision about how many elements there are.

In:   a convolution, or its backward, of contiguous fake tensors on a CPU whose sizes are symbols.
Out:  its fake result, which is contiguous whichever of eager's kernels runs.

Torch's own rule asks which kernel that is, and `use_mkldnn` looks at `input.numel() > 20480`: each
convolution would put such a guard on the sizes of the input, and each image on the other side
would be compiled for anew.
# PyTorch: asks, and guards.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, in_kernel_invocation_manager

from ..fake_mode import FakeMode
from ..more.alike import is_contiguous
from ..more.symbolic_tensors import is_symbolic
from ..sizes.symbols import hint
from .mode import EAGER

aten = torch.ops.aten


def check_dimension(ndim: int, dim: int) -> None:
    reach = max(ndim, 1)
    torch._check_index(
        -reach <= dim < reach,
        lambda: (
            f"Dimension out of range (expected to be in range of [{-reach}, {reach - 1}], "
            f"but got {dim})"
        ),
    )


def check_position(tensor: torch.Tensor, dim: int, index: Any) -> None:
    """An index that only the run can tell is looked at there."""
    if not tensor.dim():
        return  # torch's rule has words for that
    check_dimension(tensor.dim(), dim)
    size = tensor.shape[dim]
    if hint(index) is None or hint(size) is None:
        return
    torch._check_index(
        bool(-size <= index) and bool(index < size),
        lambda: (
            f"select(): index {index} out of range for tensor of size "
            f"{list(tensor.shape)} at dimension {dim}"
        ),
    )


def select(mode: FakeMode, op: Any, args: tuple, kwargs: dict) -> None:
    def check(tensor: torch.Tensor, dim: int, index: Any) -> None:
        if not tensor.is_sparse:
            check_position(tensor, dim, index)

    check(*args, **kwargs_of(op, kwargs))


def scatter_of(view: Callable[..., torch.Tensor]) -> Callable[..., None]:
    """The source has the sizes of the part of the tensor that it replaces."""

    def rule(mode: FakeMode, op: Any, args: tuple, kwargs: dict) -> None:
        def check(tensor: torch.Tensor, src: torch.Tensor, *where: Any, **named: Any) -> None:
            with mode:
                part = view(tensor, *where, **named)
            torch._check(
                tuple(part.shape) == tuple(src.shape),
                lambda: (
                    f"expected src to have a size equal to {list(part.shape)}, "
                    f"but got {list(src.shape)}"
                ),
            )

        check(*args, **kwargs_of(op, kwargs))

    return rule


def dimension(mode: FakeMode, op: Any, args: tuple, kwargs: dict) -> None:
    """An op of one tensor first, and of a number called `dim`."""
    names = [argument.name for argument in op._schema.arguments]
    place = names.index("dim")
    dim = args[place] if len(args) > place else kwargs.get("dim", op._schema.arguments[place])
    if type(dim) is int:
        check_dimension(args[0].dim(), dim)


def kwargs_of(op: Any, kwargs: dict) -> dict:
    """`self`, given by name, is the first parameter of the checks."""
    return {"tensor" if name == "self" else name: value for name, value in kwargs.items()}


EAGER.own[aten.select.int] = select
EAGER.own[aten.select_scatter.default] = scatter_of(aten.select.int)
EAGER.own[aten.slice_scatter.default] = scatter_of(aten.slice.Tensor)
EAGER.own[aten.diagonal_scatter.default] = scatter_of(aten.diagonal.default)
for _op in (
    aten._softmax.default,
    aten.sort.default,
    aten.sort.stable,
    aten._weight_norm_interface.default,
):
    EAGER.own[_op] = dimension


# --- convolutions of symbolic sizes ---------------------------------------------------------------
aten = torch.ops.aten


def convolution(mode: FakeMode, op: Any, args: tuple, kwargs: dict) -> Any:
    """The result of a forward or backward convolution; None: torch's own rule is asked."""
    tensors: list[Any] = [
        value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)
    ]
    if not any(map(is_symbolic, tensors)):
        return None
    for tensor in tensors:
        if not isinstance(tensor, FakeTensor) or tensor.fake_device.type != "cpu":
            return None
        if tensor.dtype != tensors[0].dtype or not is_contiguous(tensor):
            return None
    device = tensors[0].fake_device

    def contiguous(out: Any) -> Any:
        return None if out is None else FakeTensor(mode, out.contiguous(), device)

    with in_kernel_invocation_manager(mode):
        out = op(*args, **kwargs)
        if isinstance(out, tuple):
            return tuple(map(contiguous, out))
        return contiguous(out)


for _op in (aten.convolution.default, aten.convolution_backward.default):
    EAGER.own[_op] = convolution


# ---- sizes that only the run knows
def ask_for_ones(mode: FakeMode, op: Any, args: Any, kwargs: Any) -> None:
    """How many dimensions squeeze() leaves is a decision about such a size.  (torch takes it for
    none of 1; whoever does not want that says so in the environment of symbols.)"""
    shape = args[0].shape
    if not shape or not getattr(mode.shape_env, "asks_for_ones", False):
        return
    dims = args[1] if len(args) > 1 else range(len(shape))
    for dim in dims if isinstance(dims, Iterable) else (dims,):
        if -len(shape) <= dim < len(shape):
            bool(shape[dim] != 1)


for _squeeze in (aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims):
    EAGER.own[_squeeze] = ask_for_ones
