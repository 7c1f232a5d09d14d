"""The languages of kernels, C++ and Triton, and the devices that they are for: the one list.

In:   nothing.  Out: `LANGUAGES["cpp"]`, `LANGUAGES["triton"]`, `DEVICES["cpu"]` and
      `DEVICES["cuda"]`, where the stages find them (devices.py).

    >>> sorted(LANGUAGES), sorted(DEVICES)
    (['cpp', 'triton'], ['cpu', 'cuda'])

    device   kernels in            before the schedule    after it              calls
    cpu      cpp (or triton, in    -                      -                     as they are
             its interpreter)
    cuda     triton                long reductions in     some matrix products  recorded and
                                   two steps              with what follows     replayed (CUDA
                                                                                graphs), if asked

A language says which class writes the kernel of each kind of group: of a fused group, of several
alike ones (`Foreach`), of a matrix product with what follows (`FusedProduct`).  It says how sources
become functions, and how many pointers one kernel takes.  A device says which language its kernels
are in, and what else the stages ask of it: how much memory an intermediate may share, and what to
start as soon as a graph is known (the processes that compile Triton).

Another language is one more entry.  This one is C++ for kernels of at most 100 pointers, and a
program asks for it by `miniinductor.config.patch(cpu_backend="short")`, once the option's words in
config.py allow it:

    register_language(dataclasses.replace(CPP, name="short", most_pointers=100))

Mirrors `init_backend_registration` in torch/_inductor/codegen/kernels.py.
"""

import importlib
from collections.abc import Callable
from typing import Any

from .codegen.cpp.kernel_writer import CppKernelWriter, ForeachWriter
from .devices import DEVICES, LANGUAGES, Device, Language, register_device, register_language
from .schedule.after_fusion import Foreach
from .schedule.nodes import Group
from .toolchain import build_kernels as build_cpp_kernels

__all__ = ["CPP", "DEVICES", "LANGUAGES"]


def later(module: str, function: str) -> Callable[..., Any]:
    """A function of a module that is imported when it is first called: programs on a CPU need
    nothing of Triton."""

    def call(*arguments: Any) -> Any:
        return getattr(importlib.import_module(f"{__package__}.{module}"), function)(*arguments)

    return call


def triton_writers() -> dict[type, Callable[..., Any]]:
    from .codegen.triton.kernel_writer import TritonForeachWriter, TritonKernelWriter
    from .codegen.triton.products import FusedProduct, MatmulWriter

    return {Group: TritonKernelWriter, FusedProduct: MatmulWriter, Foreach: TritonForeachWriter}


CPP = Language(
    name="cpp",
    writers=lambda: {Group: CppKernelWriter, Foreach: ForeachWriter},
    build=lambda device, kernels, moved: build_cpp_kernels(
        [(kernel.source, kernel.summary) for kernel in kernels]
    ),
    most_pointers=960,  # the launcher takes 1024 arguments
)
register_language(CPP)
register_language(
    Language(
        name="triton",
        writers=triton_writers,
        build=later("codegen.triton.build", "build_triton_kernels"),
        most_pointers=480,  # a GPU takes 4 KB of arguments
        rewrites=[later("codegen.triton.reductions", "rewrite_reductions")],
        joiners=[later("codegen.triton.products", "with_products")],
        why_not=later("codegen.triton.build", "why_not"),
    )
)
register_device(Device("cpu"))
register_device(
    Device(
        type="cuda",
        language="triton",
        arena_limit=1 << 16,
        # about one kernel in eight nodes; and Triton takes a second to import
        prepare=lambda nodes: later("codegen.triton.build", "start_workers")(1 + nodes // 8),
        replays_in="runtime.cuda_graphs",
    )
)
