"""The languages of kernels, C++ and Triton, and the devices that they are for.

In:   nothing.  Out: `LANGUAGES["cpp"]`, `LANGUAGES["triton"]` and `DEVICES["cuda"]`, where the
      stages find them (devices.py).
"""

from . import config
from .codegen.cpp.foreach import ForeachWriter
from .codegen.cpp.kernel_writer import CppKernelWriter
from .codegen.kernels import main_device
from .codegen.triton.build import build_triton_kernels, why_not
from .codegen.triton.kernel_writer import TritonForeachWriter, TritonKernelWriter
from .codegen.triton.products import FusedProduct, MatmulWriter, with_products
from .codegen.triton.split_reductions import rewrite_reductions
from .codegen.triton.workers import start_workers
from .devices import Device, Language, register_device, register_language
from .ir.loops import Graph
from .records import CompileRecord
from .runtime import cuda_graphs
from .schedule.after_fusion import Foreach
from .schedule.nodes import Group, Schedule, ScheduledNode
from .toolchain.cpp import build_kernels as build_cpp_kernels


def reductions(graph: Graph, record: CompileRecord) -> None:
    if config.split_reductions:
        rewrite_reductions(graph, record)


def products(schedule: Schedule, record: CompileRecord) -> list[ScheduledNode]:
    """Matrix products and what follows them as one."""
    return with_products(schedule, main_device(schedule.graph), record)


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
        rewrites=[reductions],
        joiners=[products],
        why_not=why_not,
    )
)
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
