"""How many bytes a program would move if the compiler stopped after a stage: what each stage saves.

In:   the record of one half, and its stages.  Out: a row for the graph that is lowered (each
      operation by itself), for the loop IR (each buffer by itself) and for what fusion leaves.

    >>> explanation = minidynamo.explain(lambda x: x.sin().cos())(torch.ones(8))
    >>> [entry] = explanation.to_json()["frames"][0]["entries"]
    >>> [sum(row["bytes"]) for row in entry["flow"]]       # sin, cos; then one loop
    [128, 64, 64]

Bytes are those of traffic.py: distinct elements that are read and written.  What looks up rows, or
runs under a condition, moves at most these (`at_most`).  A view moves nothing.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import fx

from miniinductor.ir.loops import ExternKernel, buffer_views
from miniinductor.records import CompileRecord
from miniinductor.schedule.nodes import ExternNode, Node, buffer_bytes
from miniinductor.sizes.symbols import hint, hints_of, size_hints

from .measure import LOOK_UPS
from .stages import Node as Row
from .stages import Stage, value_of
from .traffic import Hints, traffic_of_body

Moved = tuple[str, int, bool]  # name of an object, bytes, are they exact?
WRITE_NOTHING = ("empty", "empty_strided", "empty_like", "new_empty", "_unsafe_view", "getitem")


def flow_of(record: CompileRecord, kernels: list[Row], *stages: Stage) -> list[Row]:
    """The rows of one half.  kernels: those of the document; stages: lowered, loop IR, fused."""
    lowered, loops, fused = stages
    graph = (record.lowered_graph or record.functional_graph).graph
    hints = hints_of(graph)
    with size_hints(hints):
        alone = [*buffers(record, hints)]
        found = [row(lowered, operations(graph)), row(loops, alone)]
    own = {name.rpartition("/")[2] for kernel in kernels for name in kernel["nodes"]}
    last = row(fused, (one for one in alone if one[0] not in own))
    for kernel in kernels:
        last["nodes"].append(kernel["id"])
        last["bytes"].append(kernel["bytes_read"] + kernel["bytes_written"])
        last["at_most"] |= kernel["at_most"]
    return [*found, last]


def row(stage: Stage, moved: Iterable[Moved]) -> Row:
    known = [(stage.names[name], count, sure) for name, count, sure in moved if name in stage.names]
    return {
        "stage": stage.id,
        "nodes": [made for made, _, _ in known],
        "bytes": [count for _, count, _ in known],
        "at_most": not all(sure for _, _, sure in known),
    }


# --- operations of a graph ------------------------------------------------------------------------
def operations(graph: fx.Graph) -> Iterator[Moved]:
    for node in graph.nodes:
        if node.op.startswith("call"):
            yield node.name, *moved_by(node)


def moved_by(node: fx.Node) -> tuple[int, bool]:
    """What an operation reads and writes by itself."""
    name = getattr(node.target, "__name__", "").partition(".")[0]
    if name in WRITE_NOTHING or is_view(node.target):
        return 0, True
    read = [tensor_bytes(value_of(each)) for each in node.all_input_nodes]
    return looked_up(name, read, tensor_bytes(value_of(node)))


def is_view(target: Any) -> bool:
    """Does the result share the memory of an argument that stays as it is?"""
    schema = getattr(target, "_schema", None)
    returned = [each.alias_info for each in schema.returns] if schema is not None else []
    return any(alias is not None and not alias.is_write for alias in returned)


def looked_up(name: str, read: list[int], written: int) -> tuple[int, bool]:
    """All that is read and written; of a table in which rows are looked up, what is written."""
    if name in LOOK_UPS and read:
        return min(read[0], written) + sum(read[1:]) + written, False
    return sum(read) + written, True


def tensor_bytes(value: Any) -> int:
    """Bytes of the distinct elements of a tensor, or of several."""
    if isinstance(value, (tuple, list)):
        return sum(map(tensor_bytes, value))
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return 0
    return elements(value.shape, value.stride()) * value.dtype.itemsize


def elements(sizes: Iterable[Any], steps: Iterable[Any]) -> int:
    """How many elements a view has in this run; one that is repeated counts once."""
    numbers = [(hint(size, 0), hint(step, 0)) for size, step in zip(sizes, steps)]
    return math.prod(size if step or not size else 1 for size, step in numbers)


# --- buffers of the loop IR -----------------------------------------------------------------------
def buffers(record: CompileRecord, hints: Hints) -> Iterator[Moved]:
    """Every buffer that is computed, as if it had a kernel of its own."""
    for step in record.schedule.nodes:
        if isinstance(step, ExternNode):
            if isinstance(step.buffer, ExternKernel):
                yield step.buffer.name, *moved_by_library(step.buffer, record)
            continue
        for node in step.nodes:
            if isinstance(node, Node):
                found = traffic_of_body(node.body, record.schedule, hints)
                yield node.name, found.read + found.written, not found.is_bound
            elif isinstance(node.buffer, ExternKernel):  # a product in a kernel of ours
                yield node.buffer.name, *moved_by_library(node.buffer, record)


def moved_by_library(kernel: ExternKernel, record: CompileRecord) -> tuple[int, bool]:
    """What an eager kernel reads and writes."""
    known = record.schedule.buffers
    read = [
        elements(view.size, view.stride) * known[view.name].layout.dtype.itemsize
        for view in dict.fromkeys(buffer_views([kernel.args, kernel.kwargs]))
    ]
    parts = [one for one in known.values() if getattr(one, "source", "") == kernel.name]
    made = [kernel] if kernel.layout is not None else parts
    name = getattr(kernel.op, "__name__", "").partition(".")[0]
    return looked_up(name, read, sum(map(buffer_bytes, made)))
