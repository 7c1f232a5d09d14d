"""Fake results of our own, where torch's rules look at too little or decide too much.

In:   an op and its fake arguments.  Out: its fake result, or nothing: torch's own rule goes on.

* Positions and dimensions out of range (`select`, a `*_scatter` of a part, a softmax, a sort, a
  norm of weights) raise what eager's kernel raises, in its class; where a position is a symbol,
  that it lies in the tensor becomes a guard.  Where nobody used the result, the op would be dropped
  from the graph, and eager's error with it: `x[n]; return x + 1`.  (Torch's rule for `select` looks
  at the position since 2.12.)
* A roll on a CPU has the layout of eager's kernel, which joins two parts: images whose channels lie
  last keep them there, where torch's rule makes dense ones.
* A convolution of symbolic sizes, or its backward, of contiguous tensors on a CPU is contiguous
  whichever of eager's kernels runs.  Torch's rule asks which one that is: `use_mkldnn` looks at
  `input.numel() > 20480`, a guard on the sizes for which images on the other side of it would be
  compiled anew.
* Images of symbolic sizes that are sampled at the points of a grid: the result is contiguous, as
  eager's.  Torch's rule computes it by hundreds of operations on symbols, which takes seconds.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, in_kernel_invocation_manager

from ..fake_mode import FakeMode
from ..sizes.symbols import is_contiguous
from ..sizes.symbols import is_symbolic
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


# --- rolls ----------------------------------------------------------------------------------------
def roll(mode: FakeMode, op: Any, args: tuple, kwargs: dict) -> Any:
    """Two parts of it, joined; None: torch's own rule is asked, whose result is dense."""

    def joined(x: Any, shifts: Any, dims: Any = ()) -> Any:
        if x.fake_device.type != "cpu" or not dims or len(dims) != len(shifts):
            return None
        if is_contiguous(x) or is_symbolic(x) and not all(type(n) is int for n in x.stride()):
            return None
        for dim, shift in zip(dims, shifts):
            check_dimension(x.dim(), dim)
            x = x.clone() if not x.numel() else rolled(x, shift, dim)
        return x

    with mode:
        return joined(*args, **{"x" if k == "self" else k: value for k, value in kwargs.items()})


def rolled(x: torch.Tensor, shift: Any, dim: int) -> torch.Tensor:
    size = x.shape[dim]
    if type(size) is not int or type(shift) is not int:
        return aten.cat.default([x], dim)  # where it begins decides only if that is at 0
    start = -shift % size
    parts = [aten.slice.Tensor(x, dim, *ends) for ends in ((start, size), (0, start))]
    return aten.cat.default(parts, dim)


EAGER.own[aten.roll.default] = roll


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


# --- images at the points of a grid ---------------------------------------------------------------
def grid_sampler(mode: FakeMode, op: Any, args: tuple, kwargs: dict) -> Any:
    """The result of two dimensions and numbers of one dtype; None: torch's own rule is asked, which
    has words for what does not fit."""
    if kwargs or len(args) < 2:
        return None
    images, grid = args[:2]
    if not (is_symbolic(images) or is_symbolic(grid)) or images.dim() != 4 or grid.dim() != 4:
        return None
    if images.dtype != grid.dtype or images.device != grid.device:
        return None
    if not images.is_floating_point() or grid.shape[3] != 2 or images.shape[0] != grid.shape[0]:
        return None
    if images.shape[2] == 0 or images.shape[3] == 0:
        return None
    with mode:
        return images.new_empty((*images.shape[:2], *grid.shape[1:3]))


EAGER.own[aten.grid_sampler_2d.default] = grid_sampler
