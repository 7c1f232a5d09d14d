"""What is guarded of a tensor's layout, as one comparison of bytes (`layouts.c`).

In:   a tensor from outside.   Out: the bytes, and the function's name in a guard.

    layout(x) == P_float32_4_4          # class, dtype, device, sizes, strides, bits, gradients

Where libtorch lacks a function that is asked, or the tensor is not dense, the guards are printed
one by one.  Mirrors TensorCheck in torch/csrc/dynamo/guards.cpp.
"""

import ctypes
import functools
from typing import Any

import torch

from . import _layouts
from .guards import NAMES

KNOWS_NAMES = hasattr(torch.Tensor, "has_names")  # named dimensions went with torch 2.13
HEAD = 32  # bytes in front of the sizes
FUNCTIONS = (
    *[
        f"aoti_torch_get_{name}"
        for name in ("layout", "dtype", "device_type", "device_index", "dim", "sizes", "strides")
    ],
    # at::native::is_neg(const Tensor &) and its neighbours: the C functions above have none of them
    *[
        f"_ZN2at6native{len(name)}{name}ERKNS_6TensorE"
        for name in ("is_neg", "is_conj", "_is_zerotensor", "is_inference")
    ],
    "_ZNK3c1010TensorImpl13requires_gradEv",
    "_ZN2at4impl9has_namesEPKN3c1010TensorImplE",
)
NAMES["layout"], NAMES["plain_layout"] = _layouts.layout, _layouts.plain_layout


@functools.cache
def are_read() -> bool:
    """Can layouts be read?  A transpose is, and compared with what Python says of it."""
    library = ctypes.CDLL(torch._C.__file__)  # finds what it depends on, too
    found: list[Any] = [getattr(library, name, None) for name in FUNCTIONS]
    if None in found[: len(found) if KNOWS_NAMES else -1]:
        return False
    addresses = [ctypes.cast(function, ctypes.c_void_p).value or 0 for function in found]
    probe = torch.empty(2, 3).t().requires_grad_()
    _layouts.use_torch(probe, probe._cdata, tuple(addresses))
    read = memoryview(_layouts.layout(probe) or bytes(HEAD + 32))
    numbers = read[HEAD - 8 :].cast("q").tolist()
    return numbers == [2, *probe.shape, *probe.stride()] and read[20:24].tolist() == [32, 0, 0, 0]


def layout_of(tensor: torch.Tensor, any_size: bool) -> tuple[str, bytes] | None:
    """(the function that reads it now, what it gives), without sizes and strides if `any_size`."""
    if not are_read():
        return None
    recorded = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    name = "layout" if recorded else "plain_layout"
    found = NAMES[name](tensor)
    return found and (name, found[:HEAD] if any_size else found)
