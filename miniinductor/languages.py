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

Mirrors `init_backend_registration` in torch/_inductor/codegen/common.py.
"""

from .codegen.cpp.foreach import ForeachWriter
from .codegen.cpp.kernel_writer import CppKernelWriter
from .codegen.triton.build import build_triton_kernels, start_workers, why_not
from .codegen.triton.kernel_writer import TritonForeachWriter, TritonKernelWriter
from .codegen.triton.products import FusedProduct, MatmulWriter, with_products
from .codegen.triton.split_reductions import rewrite_reductions
from .devices import DEVICES, LANGUAGES, Device, Language, register_device, register_language
from .runtime import cuda_graphs
from .schedule.after_fusion import Foreach
from .schedule.nodes import Group
from .toolchain.cpp import build_kernels as build_cpp_kernels

__all__ = ["CPP", "DEVICES", "LANGUAGES"]

CPP = Language(
    name="cpp",
    writers={Group: CppKernelWriter, Foreach: ForeachWriter},
    build=lambda device, kernels, moved: build_cpp_kernels(
        [(kernel.source, kernel.summary) for kernel in kernels]
    ),
    most_pointers=960,  # the launcher takes 1024 arguments
)
register_language(CPP)
register_language(
    Language(
        name="triton",
        writers={
            Group: TritonKernelWriter,
            FusedProduct: MatmulWriter,
            Foreach: TritonForeachWriter,
        },
        build=build_triton_kernels,
        most_pointers=480,  # a GPU takes 4 KB of arguments
        rewrites=[rewrite_reductions],
        joiners=[with_products],
        why_not=why_not,
    )
)
register_device(Device("cpu"))
register_device(
    Device(
        type="cuda",
        language="triton",
        alone=1 << 16,
        # about one kernel in eight nodes; and Triton takes a second to import
        expect=lambda nodes: start_workers(1 + nodes // 8),
        replay=cuda_graphs,
    )
)
