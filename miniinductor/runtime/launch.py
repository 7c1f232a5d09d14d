"""Built kernels, as functions of tensors and ints.

In:   the address of a generated function, and its library.  Out: a callable, which keeps it.

    kernel = Kernel(address, "add_0", library)
    kernel(x, y, 1024)              # their data pointers, and a size

A generated kernel is `int kernel(void** args)`: data pointers and sizes, in order; what it returns
are bits that its checks have set.  A call costs about 0.4 microseconds more than one from C.
PyTorch: writes a C++ launcher for each kernel.
"""

import ctypes
import struct

import torch
from torch.autograd import profiler

INDEX_ERROR = 1  # (in cpp_prelude.h, too)


class Kernel:
    """A generated function; call it with tensors and ints."""

    def __init__(self, address: int, name: str, library: object = None):
        self.function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)(address)
        self.name, self.library = name, library

    def __call__(self, *arguments: torch.Tensor | int) -> None:
        numbers = [a if isinstance(a, int) else a.data_ptr() for a in arguments]
        pointers = struct.pack(f"{len(numbers)}q", *numbers)
        if profiler._is_profiler_enabled:  # torch.profiler shows the kernel's name
            with profiler.record_function(self.name):
                error = self.function(pointers)
        else:
            error = self.function(pointers)
        if error & INDEX_ERROR:
            raise IndexError(f"index out of range in self (in compiled kernel {self.name})")
        if error:
            raise RuntimeError(f"ZeroDivisionError (in compiled kernel {self.name})")


def empty_cpu(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """What makes a wrapper's tensors."""
    return torch.empty_strided(size, stride, dtype=dtype, device="cpu")
