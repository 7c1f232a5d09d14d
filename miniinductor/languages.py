"""The languages of kernels, C++ and Triton, and the devices that they are for: the one list.

In:   nothing.  Out: `LANGUAGES["cpp"]`, `LANGUAGES["triton"]`, `DEVICES["cpu"]` and
      `DEVICES["cuda"]`, where the stages find them (devices.py).
"""

from .codegen.cpp.foreach import ForeachWriter
from .codegen.cpp.kernel_writer import CppKernelWriter
from .codegen.triton.build import build_triton_kernels, start_workers, why_not
from .codegen.triton.kernel_writer import TritonForeachWriter, TritonKernelWriter
from .codegen.triton.products import FusedProduct, MatmulWriter, with_products
from .codegen.triton.split_reductions import rewrite_reductions
from .devices import Device, Language, register_device, register_language
from .runtime import cuda_graphs
from .schedule.foreach import Foreach
from .schedule.nodes import Group
from .toolchain.cpp import build_kernels as build_cpp_kernels

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
        hands_over=True,
        alone=1 << 16,
        # about one kernel in eight nodes; and Triton takes a second to import
        expect=lambda nodes: start_workers(1 + nodes // 8),
        replay=cuda_graphs,
    )
)
