"""Built kernels, as functions of tensors and ints.

In:   the address of a generated function, and its library.  Out: a callable, which keeps it.

    kernel = kernel_at(address, "add_0", library)
    kernel(x, y, 1024)              # their data pointers, and a size

A generated kernel is `int kernel(void** args)`: data pointers and sizes, in order; what it returns
are bits that its checks have set.  PyTorch: writes a C++ launcher for each kernel.  Ours is
speed/launcher.c, one for all; without it a call costs some microseconds more.
"""

import ctypes
from collections.abc import Callable

import torch

from ..replaceable import replaceable

INDEX_ERROR = 1  # (in cpp_prelude.h, too)


class Kernel:
    """A generated function; call it with tensors and ints."""

    def __init__(self, address: int, name: str, library: object = None):
        self.function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(address)
        self.name, self.library = name, library

    def __call__(self, *arguments: torch.Tensor | int) -> None:
        numbers = [a if isinstance(a, int) else a.data_ptr() for a in arguments]
        pointers = (ctypes.c_int64 * len(numbers))(*numbers)
        error = self.function(ctypes.addressof(pointers))
        if error & INDEX_ERROR:
            raise IndexError(f"index out of range in self (in compiled kernel {self.name})")
        if error:
            raise RuntimeError(f"ZeroDivisionError (in compiled kernel {self.name})")


def empty(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A tensor on the CPU."""
    return torch.empty_strided(size, stride, dtype=dtype, device="cpu")


# the two functions that a call of a compiled graph uses most; in speed/launcher.py written in C
@replaceable
def kernel_at(address: int, name: str, library: object) -> Callable[..., None]:
    return Kernel(address, name, library)


@replaceable
def maker_of_tensors() -> Callable[..., torch.Tensor]:
    """What makes a wrapper's tensors: a function of size, stride and dtype."""
    return empty
