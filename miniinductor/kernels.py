"""Scheduled nodes become kernels: written, built, and of alternatives the faster one kept.

In:   a `Schedule`.  Out: the steps of a call in order: eager kernels as they were, and for each
      group a `KernelStep` with its source, its name and its function; `record.kernels` shows them.

    >>> written = write_kernels(schedule, record)
    >>> [step] = build_kernels(written, schedule, main_device(graph), record)
    >>> step.name, step.language, step.kernel.arguments
    ('sub_exp_sum_dim_int_list_div_0', 'cpp', ['arg0', 'buf3'])

Which generator writes a kernel is a matter of its device and of its kind (`WRITERS`).  Mirrors the
loop over nodes in torch/_inductor/scheduler.py (`codegen`) and codecache.py.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import fx

from . import config
from .codegen.common import Kernel
from .codegen.cpp import CppKernelWriter
from .codegen.cpp_foreach import ForeachWriter
from .codegen.matmul import FusedProduct, MatmulWriter
from .codegen.triton import TritonKernelWriter
from .codegen.triton_foreach import TritonForeachWriter
from .foreach import Foreach
from .ir import Graph
from .nodes import ExternNode, Group, Schedule, buffer_bytes
from .records import CompileRecord, KernelRecord
from .runtime.program import build_functions
from .runtime.triton_build import race

WRITERS = {
    ("triton", FusedProduct): MatmulWriter,
    ("triton", Foreach): TritonForeachWriter,
    ("triton", Group): TritonKernelWriter,
    ("cpp", Foreach): ForeachWriter,
    ("cpp", Group): CppKernelWriter,
}
Place: TypeAlias = tuple[str, torch.device]  # a language and a device


@dataclass
class KernelStep:
    """A call of a kernel of ours."""

    group: Group | FusedProduct
    kernel: Kernel  # what its writer made of it
    language: str
    device: torch.device
    moved: int  # bytes that it reads and writes
    name: str = ""  # in the wrapper, once it is built
    function: Callable | None = None  # it is built then, too

    def made(self) -> list[str]:
        return self.kernel.stored

    def touched(self) -> list[str]:
        return [a for a in self.kernel.arguments if isinstance(a, str)]


Step: TypeAlias = KernelStep | ExternNode


@dataclass
class Alternatives:
    """Two ways to compute the same; the faster one is taken."""

    fused: KernelStep
    apart: list[Step]

    def parts(self) -> list[Step]:
        return [self.fused, *self.apart]


# --- where ----------------------------------------------------------------------------------------
def main_device(graph: Graph) -> torch.device:
    """The device of the graph's kernels: that of its GPU tensors, if it has some."""
    devices = {
        b.layout.device
        for b in [*graph.inputs.values(), *graph.buffers.values(), *graph.operations]
        if getattr(b, "layout", None) is not None
    }
    elsewhere = sorted(devices - {torch.device("cpu")}, key=str)
    if len(elsewhere) > 1:
        raise NotImplementedError(f"tensors on several devices: {', '.join(map(str, elsewhere))}")
    return elsewhere[0] if elsewhere else torch.device("cpu")


def language_of(device: torch.device) -> str:
    """Which code generator writes the kernels of a device."""
    if device.type == "cuda":
        return "triton"
    if device.type == "cpu":
        return config.cpu_backend
    raise NotImplementedError(f"there is no code generator for device {device}")


# --- writing --------------------------------------------------------------------------------------
def write_kernels(schedule: Schedule, record: CompileRecord) -> list[Step | Alternatives]:
    """A kernel for each group, and where it is to be measured, two ways to compute it.

    What another node reads, and what escapes, must be in memory after its kernel."""
    used = schedule.escaping.union(*[node.read_names for node in schedule.nodes])
    positions = positions_of(record.functional_graph)
    written: list[Step | Alternatives] = []
    for node in schedule.nodes:
        if isinstance(node, ExternNode):
            written.append(node)
        elif isinstance(node, FusedProduct):
            written.append(write_product(node, schedule, used, positions))
        else:
            written.append(write_kernel(node, schedule, used, positions))
    return written


def positions_of(functional_graph: fx.GraphModule | fx.Graph | None) -> dict[str, int] | None:
    """{name of an FX node: its place in the graph}, for comments and names of kernels."""
    graph = getattr(functional_graph, "graph", functional_graph)
    nodes = getattr(graph, "nodes", None)
    if nodes is None:
        return None
    return {node.name: i for i, node in enumerate(nodes) if node.op == "call_function"}


def write_product(
    product: FusedProduct, schedule: Schedule, used: set[str], positions: dict[str, int] | None
) -> KernelStep | Alternatives:
    """The fused product, and beside it, where that might be faster, its parts."""
    fused = write_kernel(product, schedule, used, positions)
    if config.matmul_templates == "always" or product.certain:
        return fused
    within = used.union(*[part.read_names for part in product.apart])
    apart: list[Step] = []
    for part in product.apart:
        if isinstance(part, Group):
            part = write_kernel(part, schedule, within, positions)
        apart.append(part)
    return Alternatives(fused, apart)


def write_kernel(
    group: Group | FusedProduct,
    schedule: Schedule,
    used: set[str],
    positions: dict[str, int] | None,
) -> KernelStep:
    """The kernel of one group.  used: buffers that must be in memory afterwards."""
    # a scatter writes into memory it takes over, so its own name is always kept
    keep = {name for name in group.names if name in used}
    device, buffers = group.device, schedule.buffers
    if any(buffers[name].layout.device != device for name in group.read_names):
        raise NotImplementedError(f"a kernel on {device} that reads a tensor of another device")
    language = language_of(device)
    writer = WRITERS[language, type(group)]
    kernel = writer(group, buffers, keep, positions, schedule.overwritten).write()
    moved = sum(buffer_bytes(buffers[n]) for n in [*kernel.read, *kernel.stored])
    return KernelStep(group, kernel, language, device, moved)


# --- building -------------------------------------------------------------------------------------
def build_kernels(
    written: Sequence[Step | Alternatives],
    schedule: Schedule,
    device: torch.device,
    record: CompileRecord,
) -> list[Step]:
    """The steps of a call, their kernels built and named; of alternatives the faster one."""
    parts: list[Step] = []
    for step in written:
        parts += step.parts() if isinstance(step, Alternatives) else [step]
    names: dict[Callable, str] = {}
    for place, members in by_place(parts).items():
        build_for(place, members, names, set(schedule.graph.inputs))
    steps: list[Step] = []
    for step in written:
        if isinstance(step, Alternatives):
            steps += faster(step, schedule, device, record)
        else:
            steps.append(step)
    for step in steps:
        if isinstance(step, KernelStep):
            record.kernels.append(record_of(step, schedule))
    return steps


def by_place(steps: Iterable[Step]) -> dict[Place, list[KernelStep]]:
    """{(language, device): its kernel steps}"""
    places: dict[Place, list[KernelStep]] = {}
    for step in steps:
        if isinstance(step, KernelStep):
            places.setdefault((step.language, step.device), []).append(step)
    return places


def build_for(
    place: Place, steps: Sequence[KernelStep], names: dict[Callable, str], inputs: set[str]
) -> None:
    """Build the kernels of one place, all at once, and name them: equal ones are one function."""
    functions = build_functions(*place, [s.kernel for s in steps], [s.moved for s in steps])
    for step, function in zip(steps, functions):
        name = f"{step.kernel.summary}_{len(names)}"
        if name in inputs:  # both are named after operations
            name += "_kernel"
        step.function, step.name = function, names.setdefault(function, name)


def record_of(step: KernelStep, schedule: Schedule) -> KernelRecord:
    kernel, buffers = step.kernel, schedule.buffers
    return KernelRecord(
        name=step.name,
        language=step.language,
        source=kernel.source.replace("NAME(", step.name + "(", 1),
        nodes=list(step.group.names),
        origins=sorted({str(o) for n in step.group.nodes for o in n.buffer.origins}),
        bytes_read=sum(buffer_bytes(buffers[n]) for n in kernel.read),
        bytes_written=sum(buffer_bytes(buffers[n]) for n in kernel.stored),
    )


def faster(
    choice: Alternatives, schedule: Schedule, device: torch.device, record: CompileRecord
) -> list[Step]:
    """The steps of the faster alternative, by measuring both; the answer is kept on disk."""
    ways: dict[str, list[Step]] = {"fused": [choice.fused], "apart": choice.apart}
    names = dict.fromkeys(name for step in choice.parts() for name in step.touched())
    times = race(
        {what: functools.partial(run_steps, steps) for what, steps in ways.items()},
        choice.fused.kernel.source,
        {name: schedule.buffers[name].layout for name in names},
        device,
    )
    measured = ", ".join(f"{what} {ms * 1e3:.1f} us" for what, ms in times.items())
    record.notes.append(f"{choice.fused.name}: {measured}")
    return ways[min(times, key=times.get)]


def run_steps(steps: Sequence[Step], tensors: dict[str, torch.Tensor], stream: int) -> None:
    """The steps on these tensors, to be measured."""
    for step in steps:
        if isinstance(step, KernelStep):
            step.function(*[tensors[a] for a in step.kernel.arguments], stream)
        else:
            views = [
                tensors[v.name].as_strided(
                    [*map(int, v.size)], [*map(int, v.stride)], int(v.offset)
                )
                for v in step.buffer.args
            ]
            step.buffer.out_op(*views, out=tensors[step.buffer.name])


# --- what is kept ---------------------------------------------------------------------------------
def kernel_table(steps: Iterable[Step]) -> list[tuple]:
    """Program.kernels: what it takes to build the kernels again, equal ones once."""
    table = []
    for (language, device), members in by_place(steps).items():
        by_name = {step.name: (step.name, step.kernel, step.moved) for step in members}
        table.append((language, device, list(by_name.values())))
    return table


def functions_of(steps: Iterable[Step]) -> dict[str, Callable]:
    """{name: the built kernel}"""
    return {step.name: step.function for step in steps if isinstance(step, KernelStep)}
