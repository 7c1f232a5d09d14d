"""Groups of the schedule become kernels: their source is written, then built.

In:   a `Schedule`.  Out: the steps of a call in order: eager kernels as they were, and for each
      group a `KernelStep` with its source, its name and its function; `record.kernels` shows them.

    >>> written = write_kernels(schedule, record)
    >>> [step] = build_kernels(written, schedule, record)
    >>> step.name, step.language, step.kernel.arguments
    ('sub_exp_sum_dim_int_list_div_0', 'cpp', ['arg0', 'buf3'])

The language of the device and the class of the node choose the class that writes a kernel: the
table `writers` of a `Language`, filled in languages.py (CPU, Group: cpp/kernel_writer.py).  Mirrors
the loop over nodes in torch/_inductor/scheduler.py (`codegen`) and codecache.py.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from ..devices import LANGUAGES, language_of
from ..ir.loops import Graph
from ..options import announce
from ..records import CompileRecord, KernelRecord
from ..schedule.nodes import ExternNode, Schedule, buffer_bytes, bytes_touched
from .common import Kernel, Order

Place: TypeAlias = tuple[str, torch.device]  # a language and a device


@dataclass
class KernelStep:
    """A call of a kernel of ours."""

    group: Any  # a Group, or a node of another kind (codegen/triton/products.py)
    kernel: Kernel  # what its writer made of it
    language: str
    device: torch.device
    moved: int  # how many bytes it reads and writes
    name: str = ""  # in the wrapper, once it is built
    function: Callable | None = None  # it is built then, too

    def made(self) -> list[str]:
        return self.kernel.stored

    def touched(self) -> list[str]:
        return [a for a in self.kernel.arguments if isinstance(a, str)]


Step: TypeAlias = KernelStep | ExternNode


# --- where ----------------------------------------------------------------------------------------
def main_device(graph: Graph) -> torch.device:
    """The device of the graph's kernels: that of its GPU tensors, if it has some."""
    devices = {b.layout.device for b in graph.buffers.values() if b.layout is not None}
    elsewhere = sorted(devices - {torch.device("cpu")}, key=str)
    if len(elsewhere) > 1:
        raise NotImplementedError(f"tensors on several devices: {', '.join(map(str, elsewhere))}")
    return elsewhere[0] if elsewhere else torch.device("cpu")


# --- writing --------------------------------------------------------------------------------------
def write_kernels(schedule: Schedule, record: CompileRecord) -> list[Step]:
    """A kernel for each group; a node of another kind says itself how it is computed.

    What another node reads, and what escapes, must be in memory after its kernel."""
    used = schedule.escaping.union(*[node.read_names for node in schedule.nodes])
    graph = getattr(record.functional_graph, "graph", None)
    nodes = enumerate(graph.nodes if graph else ())
    order = {node.name: (i, node.meta) for i, node in nodes if node.op == "call_function"}
    groups = [node for node in schedule.nodes if not isinstance(node, ExternNode)]
    made = {}
    for number, group in enumerate(groups, 1):
        announce("kernel", record, f"{number} of {len(groups)}")
        made[group] = kernel_of(group, schedule, used, order)
    return [made.get(node, node) for node in schedule.nodes]


def kernel_of(group: Any, schedule: Schedule, used: set[str], order: Order) -> KernelStep:
    """The kernel of one group.  used: buffers that must be in memory after their kernel."""
    # a scatter writes into memory it takes over, so its own name is always kept
    keep = {name for name in group.names if name in used}
    device, buffers = group.device, schedule.buffers
    if any(buffers[name].layout.device != device for name in group.read_names):
        raise NotImplementedError(f"a kernel on {device} that reads a tensor of another device")
    language = language_of(device)
    writer = language.writers()[type(group)]
    kernel = writer(group, buffers, keep, order, schedule.overwritten).write()
    moved = sum(buffer_bytes(buffers[n]) for n in [*kernel.read, *kernel.stored])
    return KernelStep(group, kernel, language.name, device, moved)


# --- building -------------------------------------------------------------------------------------
def build_kernels(steps: Sequence[Step], schedule: Schedule, record: CompileRecord) -> list[Step]:
    """The steps of a call, their kernels built and named."""
    build_all(steps, schedule)
    record.kernels += [record_of(step, schedule) for step in steps if isinstance(step, KernelStep)]
    return list(steps)


def build_all(steps: Sequence[Step], schedule: Schedule) -> None:
    """Build the kernels of each place, all at once, and name them: equal ones are one function."""
    names: dict[Callable, str] = {}
    for (language, device), members in by_place(steps).items():
        build = LANGUAGES[language].build
        kernels, moved = [step.kernel for step in members], [step.moved for step in members]
        for step, function in zip(members, build(device, kernels, moved)):
            name = f"{step.kernel.summary}_{len(names)}"
            if name in schedule.graph.inputs:  # both are named after operations
                name += "_kernel"
            step.function, step.name = function, names.setdefault(function, name)


def by_place(steps: Iterable[Step]) -> dict[Place, list[KernelStep]]:
    """{(language, device): its kernel steps}"""
    places: dict[Place, list[KernelStep]] = {}
    for step in steps:
        if isinstance(step, KernelStep):
            places.setdefault((step.language, step.device), []).append(step)
    return places


def record_of(step: KernelStep, schedule: Schedule) -> KernelRecord:
    kernel, buffers = step.kernel, schedule.buffers
    return KernelRecord(
        name=step.name,
        language=step.language,
        source=kernel.source.replace("NAME(", step.name + "(", 1),
        nodes=list(step.group.names),
        origins=sorted({str(o) for n in step.group.nodes for o in n.buffer.origins}),
        bytes_read=sum(bytes_touched(n, step.group.nodes, buffers[n]) for n in kernel.read),
        bytes_written=sum(buffer_bytes(buffers[n]) for n in kernel.stored),
        about=kernel.about,
        kernel=kernel,
    )


def functions_of(steps: Iterable[Step]) -> dict[str, Callable]:
    """{name: the built kernel}"""
    return {step.name: step.function for step in steps if isinstance(step, KernelStep)}
