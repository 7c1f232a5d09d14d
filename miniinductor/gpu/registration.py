"""Triton as a language for kernels, and CUDA GPUs as devices: entered in devices.py's registries.

In:   nothing.  Out: `LANGUAGES["triton"]` and `DEVICES["cuda"]`, where the stages find them.
"""

from collections.abc import Callable, Sequence

import torch

from .. import config
from ..codegen.common import Kernel
from ..devices import Device, Language, Replay, Streams, register_device, register_language
from ..ir import Graph
from ..nodes import Group
from ..records import CompileRecord
from .arg_chunks import split_arg_reductions
from .build import build_triton_kernels, why_not
from .cuda_graphs import GraphedCall, new_pools, refusal
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


def streams() -> Streams:
    """(A torch without CUDA has no such functions.)"""
    return Streams(
        current_stream=torch._C._cuda_getCurrentRawStream,
        current_device=torch._C._cuda_getDevice,
        on_device=torch.cuda.device,
    )


def expect(nodes: int) -> None:
    """About one kernel in eight nodes; and Triton takes a second to import."""
    start_workers(1 + nodes // 8)


TRITON = Language(
    name="triton",
    writers={Group: TritonKernelWriter, FusedProduct: MatmulWriter},
    build=build,
    most_pointers=480,  # a GPU takes 4 KB of arguments
    why_not=why_not,
    recomputes=True,
    prepare=prepare,
    arrange=with_products,
)
register_language(TRITON)
register_device(
    Device(
        type="cuda",
        language="triton",
        streams=streams,
        replay=Replay(refusal, new_pools, GraphedCall),
        choose_layouts=optimize_for_gpu,
        expect=expect,
        hands_over=True,
        single=1 << 16,
    )
)
