"""Which stages a cache entry went through, forward and backward, with the origins of their objects.

In:   an entry's `FrameRecord`.  Out: `Stage`s (stages.py) in the pipeline's order, and for each
      direction what else its `CompileRecord` holds: kernels, fusions, saved values, memory.

    >>> directions = directions_of(record, "f0.0")
    >>> [stage.kind for stage in stages_of(record, "f0.0", directions, Files())]
    ['bytecode', 'replacement', 'fx', 'aten', 'pass', ..., 'loop_ir', 'fused', 'kernel', 'wrapper']

How the objects of two neighbouring stages are joined: FX nodes know their instruction and their
lines (`meta`), ATen nodes the FX node that called them (`meta["origins"]`), nodes of a graph the
node of the same name before a pass, statements of the loop IR their node (`Instruction.origin`),
and lines of kernels and wrappers the statements that were being written (`marks` of the text).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from .files import Files
from .stages import Node, Stage, bytecode, graph_stage, held_names

NO_LINE = "captured without a line of the program"
INPUT = "an input of the graph"
HELD = "a tensor that the graph's module holds"
RESULT = "what the graph gives back"


@dataclass
class Direction:
    """The forward or the backward half of an entry: its compiler's record, and what the document
    says of it."""

    name: str  # "forward" | "backward"
    id: str
    record: Any  # CompileRecord
    fusions: list[Node] = field(default_factory=list)
    kernels: list[Node] = field(default_factory=list)
    saved: list[Node] = field(default_factory=list)
    memory: list[Node] = field(default_factory=list)
    eager_kernels: list[Node] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def directions_of(record: Any, entry: str) -> list[Direction]:
    compiled = record.backend_record
    if compiled is None:
        return []
    found = [Direction("forward", f"{entry}/forward", compiled)]
    if compiled.backward is not None:
        found.append(Direction("backward", f"{entry}/backward", compiled.backward))
    return found


def stages_of(record: Any, entry: str, directions: list[Direction], files: Files) -> list[Stage]:
    code = bytecode(entry, "bytecode", record.code, files)
    stages = [code, bytecode(entry, "replacement", record.replacement_code, files)]
    if record.graph is None:
        return stages
    captured = captured_graph(record, entry, code, files)
    stages.append(captured)
    for direction in directions:
        stages += compiled_stages(record, direction, captured, stages, files)
    return stages


def captured_graph(record: Any, entry: str, code: Stage, files: Files) -> Stage:
    """The FX graph: each call comes from an instruction of the frame, and from the lines that were
    being run, the innermost last."""
    stage = Stage(f"{entry}/fx", "fx", "FX graph")

    def explain(node: fx.Node) -> tuple[list[str], str]:
        if node.op == "placeholder":
            return [], INPUT
        if node.op == "get_attr":
            return [], HELD
        if node.op == "output":
            return [], RESULT
        stack = node.meta.get("user_stack") or ()
        origins = code.ids([str(node.meta.get("instruction", ""))])
        origins += [files.line_id(file, line) for file, line, *_ in stack[-1:]]
        return origins, NO_LINE

    return graph_stage(stage, record.graph, explain, files)


# --- what the compiler made -----------------------------------------------------------------------
def compiled_stages(
    record: Any, direction: Direction, captured: Stage, before: list[Stage], files: Files
) -> list[Stage]:
    """The stages of one direction.  Those of the forward half that both have (the traced and the
    joint graph) stand there alone."""
    compiled, found = direction.record, []
    names = given_names(record.graph, compiled)
    previous = captured
    if direction.name == "forward":
        if compiled.aten_graph is not None:
            title = "ATen graph, as traced"
            found.append(
                aten_graph(direction, "aten", title, compiled.aten_graph, names, captured, files)
            )
        if compiled.joint_graph is not None:
            title = "Joint graph of forward and backward"
            found.append(
                aten_graph(direction, "joint", title, compiled.joint_graph, names, captured, files)
            )
    if compiled.functional_graph is not None:
        title = "ATen graph, functional"
        graph = compiled.functional_graph
        found.append(aten_graph(direction, "functional", title, graph, names, captured, files))
        previous = found[-1]
    graphs = {"aten": "aten", "joint": "joint", "functional": "aten"}
    for stage in found:
        stage.kind = graphs[stage.kind]
    found += written_stages(direction, previous)
    described_rows(direction, found, captured, files)
    return found


def given_names(graph: fx.GraphModule, compiled: Any) -> dict[str, str]:
    """What the tracer calls the captured graph's inputs and tensors: "primal3" -> name there."""
    placeholders = [node.name for node in graph.graph.find_nodes(op="placeholder")]
    held = held_names(graph)
    found = {}
    if compiled.joint_graph is not None:
        tensors = {id(t): t for t in [*graph.parameters(), *graph.buffers()]}
        given = [*placeholders, *[held.get(key, "") for key in tensors]]
        found = {f"primal{n}": name for n, name in enumerate(given)}
    else:
        found = {f"arg{n}": name for n, name in enumerate(placeholders)}
        for key, tensor in getattr(compiled.aten_graph, "_parameters", {}).items():
            found[key] = held.get(id(tensor), "")
        for key, tensor in getattr(compiled.aten_graph, "_buffers", {}).items():
            found[key] = held.get(id(tensor), "")
    return found | {name: name for name in placeholders}


def aten_graph(
    direction: Direction,
    kind: str,
    title: str,
    graph: Any,
    names: dict[str, str],
    captured: Stage,
    files: Files,
) -> Stage:
    """A graph of ATen ops, whose nodes know from which captured node they came."""
    stage = Stage(f"{direction.id}/{kind}", kind, title, direction.name)

    def explain(node: fx.Node) -> tuple[list[str], str]:
        origins = captured.ids(sorted(map(str, node.meta.get("origins", ()))))
        if node.op == "placeholder":
            return captured.ids([names.get(node.name, "")]), given_reason(node.name)
        if node.op == "get_attr":
            return captured.ids([names.get(str(node.target), "")]), HELD
        if node.op == "output":
            return [], RESULT
        if node.meta.get("backward"):
            return origins, "autograd adds up gradients"
        return origins, "the compiler's own"

    return graph_stage(stage, graph, explain, files)


def given_reason(name: str) -> str:
    if name.startswith("tangent"):
        return "the gradient of a result, which the caller gives"
    return INPUT


def written_stages(direction: Direction, lowered: Stage) -> list[Stage]:
    """Loop IR, fused IR, kernels, wrapper."""
    compiled, found = direction.record, []
    texts = [
        ("loop_ir", "Loop IR, before fusion", compiled.loop_ir),
        ("fused", "Loop IR after fusion", compiled.fused_ir),
        ("wrapper", "Wrapper", compiled.wrapper_source),
    ]
    for kind, title, text in texts:
        if text:
            stage = Stage(f"{direction.id}/{kind}", kind, title, direction.name)
            for line in str(text).split("\n"):
                stage.line(line)
            found.append(stage)
    for kernel in compiled.kernels:
        found.append(kernel_stage(direction, kernel, lowered))
    return found


def kernel_stage(direction: Direction, kernel: Any, lowered: Stage) -> Stage:
    name = unused(f"{direction.id}/kernel/{kernel.name}", [k["id"] for k in direction.kernels])
    language = "cpp" if kernel.language == "cpp" else "python"
    title = f"Kernel {kernel.name}"
    stage = Stage(name, "kernel", title, direction.name, language)
    for number, line in enumerate(kernel.source.rstrip("\n").split("\n"), 1):
        made = stage.node(str(number), "line", lowered.ids(kernel.origins))
        stage.line(line, [made])
    direction.kernels.append(
        {
            "id": name,
            "name": kernel.name,
            "language": kernel.language,
            "stage": name,
            "nodes": lowered.ids(kernel.origins),
            "bytes_read": kernel.bytes_read,
            "bytes_written": kernel.bytes_written,
            "seconds": getattr(kernel, "seconds", None),
            "assembly": getattr(kernel, "assembly", ""),
        }
    )
    return stage


def unused(name: str, taken: Iterable[str]) -> str:
    taken, found, number = set(taken), name, 1
    while found in taken:
        number += 1
        found = f"{name}-{number}"
    return found


# --- what else the record holds -------------------------------------------------------------------
def described_rows(
    direction: Direction, stages: list[Stage], captured: Stage, files: Files
) -> None:
    """Fusions, saved values, memory and eager kernels of one direction."""
    compiled = direction.record
    by_kind = {stage.id.rpartition("/")[2]: stage for stage in stages}
    joint, functional = by_kind.get("joint"), by_kind.get("functional", captured)
    direction.notes = list(compiled.notes)
    for n, one in enumerate(compiled.fusions):
        direction.fusions.append(
            {
                "id": f"{direction.id}/fusion{n}",
                "first": one.first,
                "second": one.second,
                "fused": one.fused,
                "category": one.category,
                "reason": one.reason,
                "bytes_saved": int(one.bytes_saved),
            }
        )
    for n, one in enumerate(compiled.saved):
        nodes = (joint or functional).ids([one.name])
        direction.saved.append(
            {
                "id": f"{direction.id}/saved{n}",
                "node": nodes[0] if nodes else "",
                "shape": one.shape,
                "bytes": int(one.bytes),
                "is_input": one.is_input,
                "reason": one.reason,
                "place": files.written_place(one.line),
            }
        )
    for n, one in enumerate(compiled.fallbacks):
        place = files.written_place(one.line)
        direction.eager_kernels.append(
            {
                "id": f"{direction.id}/eager{n}",
                "op": one.op,
                "kind": one.kind,
                "reason": one.reason,
                "place": place,
                "origins": [f"{place['file']}:{place['line']}"] if place else [],
            }
        )
    if compiled.memory_lives:
        direction.memory.append(memory(direction))


def memory(direction: Direction) -> Node:
    compiled = direction.record
    lives = [
        {
            "id": f"{direction.id}/life{n}",
            "buffer": name,
            "offset": offset if offset is None else int(offset),
            "bytes": int(nbytes) if is_number(nbytes) else 0,
            "first": first,
            "last": last,
        }
        for n, (name, offset, nbytes, first, last) in enumerate(compiled.memory_lives)
    ]
    steps = list(map(str, compiled.memory_steps))
    peak = max(
        sum(one["bytes"] for one in lives if one["first"] <= n <= one["last"])
        for n in range(max(len(steps), 1))
    )
    return {"direction": direction.name, "peak_live_bytes": peak, "steps": steps, "lives": lives}


def is_number(value: Any) -> bool:
    return isinstance(value, int) or bool(getattr(value, "is_Integer", False))
