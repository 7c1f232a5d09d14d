"""Triton as a language for kernels, and CUDA GPUs as devices: entered in devices.py's registries.

In:   nothing.  Out: `LANGUAGES["triton"]` and `DEVICES["cuda"]`, where the stages find them.
"""

from collections.abc import Callable, Sequence

import torch
from torch import fx

from .. import config
from ..autograd.runtime import Plan
from ..codegen.common import Kernel
from ..compile import Compilation
from ..devices import Device, Language, language_of, register_device, register_language
from ..graph_passes import graph_pass
from ..hooks import JOINERS, extends
from ..ir import Graph
from ..kernels import main_device
from ..nodes import Group, Schedule, ScheduledNode
from ..records import CompileRecord
from ..scheduler import Scheduler
from ..passes.stages import LAYOUTS, Context
from .arg_chunks import split_arg_reductions
from .build import build_triton_kernels, why_not
from .kernel_writer import TritonKernelWriter
from .layouts import optimize_for_gpu
from .products import FusedProduct, MatmulWriter, with_products
from .short_reductions import unroll_short_reductions
from .split_reductions import split_reductions
from .workers import start_workers


@extends(Scheduler)
class InParts(Scheduler):
    """Reductions of the loop IR are unrolled, or split, before anything is scheduled."""

    def __init__(self, graph: Graph, record: CompileRecord) -> None:
        if config.split_reductions and language_of(main_device(graph)) is TRITON:
            unroll_short_reductions(graph, record)
            split_arg_reductions(graph, record)
            split_reductions(graph, record)
        super().__init__(graph, record)


def join_products(schedule: Schedule, record: CompileRecord) -> list[ScheduledNode]:
    """The nodes of a schedule, matrix products and what follows them as one."""
    device = main_device(schedule.graph)
    if language_of(device) is not TRITON:
        return schedule.nodes
    return with_products(schedule, device, record)


JOINERS.insert(0, join_products)  # before kernels that are alike become one


def build(device: torch.device, kernels: Sequence[Kernel], moved: Sequence[int]) -> list[Callable]:
    return build_triton_kernels(kernels, device, moved)


def expect(nodes: int) -> None:
    """About one kernel in eight nodes; and Triton takes a second to import."""
    start_workers(1 + nodes // 8)


@graph_pass(LAYOUTS, "devices", order=20)
def for_libraries(gm: fx.GraphModule, context: Context) -> fx.GraphModule:
    return optimize_for_gpu(gm, context.record, convolutions=context.inference)


@extends(Compilation)
class OnGpu(Compilation):
    def plan(self) -> Plan:
        """Compilers start while the graph is traced."""
        tensors = [t for t in [*self.inputs, *self.gm.parameters()] if isinstance(t, torch.Tensor)]
        if self.generates and any(t.device.type == "cuda" for t in tensors):
            expect(len(self.gm.graph.nodes))
        return super().plan()

    def laid_out(self, joint: fx.GraphModule) -> fx.GraphModule:
        """A joint graph's convolutions get their layouts before it is cut in two."""
        return optimize_for_gpu(super().laid_out(joint), self.record, products=False)


TRITON = Language(
    name="triton",
    writers={Group: TritonKernelWriter, FusedProduct: MatmulWriter},
    build=build,
    most_pointers=480,  # a GPU takes 4 KB of arguments
    why_not=why_not,
)
register_language(TRITON)
register_device(Device(type="cuda", language="triton", hands_over=True))
