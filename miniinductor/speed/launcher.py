"""Kernels called, and tensors made, by C functions (launcher.c): a tenth of a microsecond each.

In:   addresses of torch's C functions.  Out: what runtime/launch.py gives from now on.
Whatever of it does not work with this torch stays as it was.
"""

import ctypes
import functools
import operator
import os
import platform
from collections.abc import Callable
from typing import Any

import torch

from ..foreign import ours
from ..runtime.launch import empty, kernel_at, maker_of_tensors
from . import _launcher  # type: ignore[attr-defined]


@functools.cache
def kernel_type() -> type:
    """The launcher's Kernel, told where torch keeps a tensor's pointer and who labels kernels while
    torch.profiler runs."""
    _launcher.use_profiler(vars(torch.autograd.profiler), torch.autograd.profiler.record_function)
    tensor, get_data_ptr = torch.ones(3), c_function("torch_cpu", "aoti_torch_get_data_ptr")
    if get_data_ptr:
        _launcher.use_torch(
            tensor, tensor._cdata, tensor.data_ptr(), get_data_ptr, torch.nn.Parameter
        )
    return _launcher.Kernel


@maker_of_tensors.replaced
@functools.cache
def empty_cpu() -> Callable[..., torch.Tensor]:
    """empty_strided(size, stride, dtype) of tuples, on the CPU: the launcher's, or torch's where
    libtorch lacks what that takes or it differs."""
    functions = [
        c_function("torch_cpu", "aoti_torch_empty_strided"),
        c_function("torch_cpu", "aoti_torch_delete_tensor_object"),
        c_function("torch_python", "_Z16THPVariable_WrapRKN2at10TensorBaseE"),
    ]
    if not all(functions):
        return empty
    codes = {
        dtype: c_function("torch_cpu", f"aoti_torch_dtype_{name}", call=True)
        for name, dtype in vars(torch).items()
        if isinstance(dtype, torch.dtype) and str(dtype) == f"torch.{name}"
    }
    _launcher.use_allocator(
        *functions, {dtype: code for dtype, code in codes.items() if code is not None}
    )
    makers = (_launcher.empty_strided, empty)
    one, other = (make((2, 3), (1, 2), torch.int16) for make in makers)
    looks = (type, torch.Tensor.size, torch.Tensor.stride, operator.attrgetter("dtype", "device"))
    return _launcher.empty_strided if all(of(one) == of(other) for of in looks) else empty


def c_function(library: str, name: str, call: bool = False) -> Any:
    """Address of a C function of libtorch, or what it returns; None where there is none of that
    name."""
    function = getattr(loaded(library), name, None)
    return function and (function() if call else ctypes.cast(function, ctypes.c_void_p).value)


@functools.cache
def loaded(library: str) -> ctypes.CDLL | None:
    """This library of torch; None where it cannot be opened (too many open files), or not so."""
    path = os.path.join(os.path.dirname(torch.__file__), "lib", f"lib{library}.so")
    try:
        return ctypes.CDLL(path) if platform.system() == "Linux" else None
    except ours(OSError):
        return None


@kernel_at.replaced
def launched(address: int, name: str, library: object) -> Callable[..., None]:
    return kernel_type()(address, name, library)
