"""Shared objects of kernels that nobody can call any more are unloaded.

In:   each library that kept_libraries.py loads.  Out: it is closed when the last of its kernels
      has gone: a process that compiles and resets for months maps only what it can call.

What a library needs from others stays: threads of OpenMP wait inside of its runtime, also when no
kernel runs.  So the first library of each set of flags is never closed, and with it its runtime.

PyTorch: torch/_inductor/codecache.py unloads a library on request (`DLLWrapper.close`); its
kernels stay.  Left out: cubins, which belong to the CUDA context.
"""

import _ctypes
import ctypes
import weakref

from .. import config
from .kept_libraries import LOADED

close = getattr(_ctypes, "dlclose", None)  # Windows has none
keepers: dict[bool, ctypes.CDLL] = {}  # {with OpenMP: the library that stays}


def closed_with_its_kernels(library: ctypes.CDLL) -> None:
    """Close this library, which was opened once, when nothing refers to it any more."""
    if close is None or keepers.setdefault(config.openmp, library) is library:
        return
    finalizer = weakref.finalize(library, close, library._handle)
    finalizer.atexit = False  # a thread that outlives the interpreter may be in a kernel


LOADED.append(closed_with_its_kernels)
