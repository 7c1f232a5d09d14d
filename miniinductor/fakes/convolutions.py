"""Convolutions of symbolic sizes, without a decision about how many elements there are.

In:   a convolution, or its backward, of contiguous fake tensors on a CPU whose sizes are symbols.
Out:  its fake result, which is contiguous whichever of eager's kernels runs.

Torch's own rule asks which kernel that is, and `use_mkldnn` looks at `input.numel() > 20480`: each
convolution would put such a guard on the sizes of the input, and each image on the other side
would be compiled for anew.
# PyTorch: asks, and guards.
"""

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, in_kernel_invocation_manager

from ..fake_mode import FakeMode
from ..more.alike import is_contiguous
from ..more.symbolic_tensors import is_symbolic
from .mode import EAGER

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
