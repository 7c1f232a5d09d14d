"""Triton as a language for kernels, and CUDA GPUs as devices: all that they add to the stages.

In:   nothing.  Out: `LANGUAGES["triton"]` and `DEVICES["cuda"]`, where the stages find them
      (devices.py).
"""

from .. import config
from ..foreach import Foreach
from ..devices import Device, Language, register_device, register_language
from ..ir import Graph
from ..kernels import main_device
from ..nodes import Group, Schedule, ScheduledNode
from ..records import CompileRecord
from . import cuda_graphs
from .build import build_triton_kernels, why_not
from .kernel_writer import TritonForeachWriter, TritonKernelWriter
from .products import FusedProduct, MatmulWriter, with_products
from .split_reductions import rewrite_reductions
from .workers import start_workers


def reductions(graph: Graph, record: CompileRecord) -> None:
    if config.split_reductions:
        rewrite_reductions(graph, record)


def products(schedule: Schedule, record: CompileRecord) -> list[ScheduledNode]:
    """Matrix products and what follows them as one."""
    return with_products(schedule, main_device(schedule.graph), record)


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
