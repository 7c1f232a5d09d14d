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
from ..devices import Device, Language, register_device, register_language
from ..graph_passes import LAYOUTS, Context, graph_pass
from ..hooks import extends
from ..ir import Graph
from ..nodes import Group
from ..records import CompileRecord
from .arg_chunks import split_arg_reductions
from .build import build_triton_kernels, why_not
from .kernel_writer import TritonKernelWriter
from .layouts import optimize_for_gpu
from .products import FusedProduct, MatmulWriter, with_products
from .short_reductions import unroll_short_reductions
from .split_reductions import split_reductions
from .workers import start_workers


def prepare(graph: Graph, record: CompileRecord) -> None:
    if config.split_reductions:
        unroll_short_reductions(graph, record)
        split_arg_reductions(graph, record)
        split_reductions(graph, record)


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
    def plan(self) -> tuple[Plan, Callable]:
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
    prepare=prepare,
    arrange=with_products,
)
register_language(TRITON)
register_device(Device(type="cuda", language="triton", hands_over=True))
