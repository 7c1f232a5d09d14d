"""Which stages a cache entry went through, forward and backward, with the origins of their objects.

In:   an entry's `FrameRecord`, its `Direction`s.  Out: `Stage`s (stages.py) in the pipeline's
      order; the directions get their kernels, measured steps, and the other rows of directions.py.

    >>> from minidynamo.explain.directions import directions_of
    >>> directions = directions_of(record, "f0.0")
    >>> [stage.kind for stage in stages_of(record, "f0.0", directions, Files())]
    ['bytecode', 'replacement', 'fx', 'aten', ..., 'loop_ir', 'fused', 'kernel', 'wrapper']

How the objects of two neighbouring stages are joined: FX nodes know their instruction and their
lines (`meta`), ATen nodes the FX node that called them (`meta["origins"]`), nodes of a graph the
node of the same name before a pass, statements of the loop IR their node (`Instruction.origin`),
and lines of kernels and wrappers the statements that were being written (`marks` of the text).
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from torch import fx

from miniinductor.records import NOTHING, Listing, listing_of

from .directions import Direction, described_rows
from .files import Files
from .flow import flow_of
from .measure import sheet_of
from .passes import History, lines_of
from .stages import Node, Stage, bytecode, graph_stage, held_names, instruction_ends
from .traffic import traffic_of

NO_LINE = "captured without a line of the program"
INPUT = "an input of the graph"
HELD = "a tensor that the graph's module holds"
RESULT = "what the graph gives back"


def stages_of(record: Any, entry: str, directions: list[Direction], files: Files) -> list[Stage]:
    code = bytecode(entry, "bytecode", record.code, files)
    stages = [code, bytecode(entry, "replacement", record.replacement_code, files)]
    if record.graph is None:
        return stages
    captured = captured_graph(record, entry, code, files)
    stages.append(captured)
    graphs = Graphs(captured)
    for direction in directions:
        stages += compiled_stages(record, direction, graphs, files)
    set_places(stages)
    return stages


def set_places(stages: list[Stage]) -> None:
    """Objects without a place of their own have that of the first one that they came from."""
    places: dict[str, Any] = {}
    for stage in stages:
        for node in stage.nodes:
            if node["place"] is None:
                found = [places[one] for one in node["origins"] if places.get(one)]
                node["place"] = found[0] if found else None
            places[node["id"]] = node["place"]


def captured_graph(record: Any, entry: str, code: Stage, files: Files) -> Stage:
    """The FX graph: each call comes from an instruction of the frame, and from the lines that were
    being run, the innermost last."""
    stage, ends = Stage(f"{entry}/fx", "fx", "FX graph"), instruction_ends(record.code)

    def explain(node: fx.Node) -> tuple[list[str], str]:
        if node.op == "placeholder":
            return [], INPUT
        if node.op == "get_attr":
            return [], HELD
        if node.op == "output":
            return [], RESULT
        stack = node.meta.get("user_stack") or ()
        origins = code.ids([ends.get(node.meta.get("instruction"), "")])
        origins += [files.line_id(file, line) for file, line, *_ in stack[-1:]]
        return origins, NO_LINE

    return graph_stage(stage, record.graph, explain, files)


# --- what the compiler made -----------------------------------------------------------------------
@dataclass
class Graphs:
    """The stages so far whose nodes later ones come from, latest first."""

    captured: Stage
    traced: Stage | None = None
    joint: Stage | None = None
    lowered: Stage | None = None
    history: History | None = None  # of what passes changed
    shared: History | None = None  # the same up to the cut

    def origins(self, node: fx.Node) -> list[str]:
        """Where a node of a graph comes from: the latest graph that knows it."""
        made_of = node.meta.get("traced", ())
        changed = self.history.id_of(node.name, made_of) if self.history is not None else ""
        if changed:
            return [changed]
        if self.joint is not None and node.name in self.joint.names:
            if self.joint.traced.get(node.name) == made_of:
                return self.joint.ids([node.name])
        found = self.traced.ids(made_of) if self.traced is not None else []
        return found or self.captured.ids(sorted(map(str, node.meta.get("origins", ()))))


def compiled_stages(
    record: Any, direction: Direction, graphs: Graphs, files: Files
) -> Iterator[Stage]:
    """The stages of one direction.  What both halves have (the traced and the joint graph) stands
    in the forward half."""
    compiled = direction.record
    names = given_names(record.graph, compiled)
    if direction.name == "forward" and compiled.aten_graph is not None:
        stage = Stage(f"{direction.id}/aten", "aten", "ATen graph, as traced", direction.name)
        graphs.traced = aten_graph(stage, compiled.aten_graph, names, graphs, files)
        lines = lines_of(listing_of(compiled.aten_graph.graph))
        graphs.history = History(graphs.traced, lines)
        yield stage
    steps = compiled.steps or []
    cut = next((n for n, (name, _) in enumerate(steps) if name == "partition"), len(steps))
    yield from pass_stages(direction, graphs, steps[:cut])
    if direction.name == "forward" and compiled.joint_graph is not None:
        title = "Joint graph of forward and backward"
        stage = Stage(f"{direction.id}/joint", "joint", title, direction.name)
        graphs.joint = aten_graph(stage, compiled.joint_graph, names, graphs, files)
        yield stage
    if direction.name == "forward":
        graphs.shared = graphs.history
    graphs.history = graphs.shared.copy() if graphs.shared is not None else None
    yield from pass_stages(direction, graphs, steps[cut:])
    graph = compiled.lowered_graph or compiled.functional_graph
    if graph is not None:
        title = "ATen graph that is lowered"
        stage = Stage(f"{direction.id}/lowered", "aten", title, direction.name)
        graphs.lowered = aten_graph(stage, graph, names, graphs, files)
        yield stage
        yield from written_stages(direction, stage)
    described_rows(direction, graphs.lowered or graphs.captured, graphs.joint, files)


def pass_stages(direction: Direction, graphs: Graphs, steps: list) -> Iterator[Stage]:
    if graphs.history is not None:
        for stage in graphs.history.stages(steps, direction.id):
            stage.direction = direction.name
            yield stage


def given_names(graph: fx.GraphModule, compiled: Any) -> dict[str, str]:
    """What the tracer calls the captured graph's inputs and tensors: "primal3" -> name there."""
    placeholders = [node.name for node in graph.graph.find_nodes(op="placeholder")]
    held = held_names(graph)
    found = {name: name for name in placeholders}
    if compiled.joint_graph is not None:
        tensors = {id(t): t for t in [*graph.parameters(), *graph.buffers()]}
        given = [*placeholders, *[held.get(key, "") for key in tensors]]
        return found | {f"primal{n}": name for n, name in enumerate(given)}
    found |= {f"arg{n}": name for n, name in enumerate(placeholders)}
    if compiled.aten_graph is not None:
        tables = (compiled.aten_graph._parameters, compiled.aten_graph._buffers)
        found |= {key: held.get(id(t), "") for table in tables for key, t in table.items()}
    return found


def aten_graph(
    stage: Stage, graph: Any, names: dict[str, str], graphs: Graphs, files: Files
) -> Stage:
    """A graph of ATen ops.  Nodes of the graph that was traced come from captured ones; those of
    later graphs from that."""
    is_first = graphs.traced is None

    def explain(node: fx.Node) -> tuple[list[str], str]:
        if node.op == "output":
            return [], RESULT
        if node.op in ("placeholder", "get_attr"):
            name = str(node.target)
            before = [one for one in (graphs.joint, graphs.traced) if one is not None]
            known = next((one.ids([name]) for one in before if name in one.names), [])
            reason = HELD if node.op == "get_attr" else given_reason(name)
            return known or graphs.captured.ids([names.get(name, "")]), reason
        if is_first:
            origins = graphs.captured.ids(sorted(map(str, node.meta.get("origins", ()))))
        else:
            origins = graphs.origins(node)
        return origins, "autograd's own" if node.meta.get("backward") else "the compiler's own"

    graph_stage(stage, graph, explain, files)
    nodes = getattr(graph, "graph", graph).nodes
    stage.traced = {node.name: node.meta.get("traced", ()) for node in nodes}
    return stage


def given_reason(name: str) -> str:
    if name.startswith("tangent"):
        return "the gradient of a result, which the caller gives"
    return INPUT


def written_stages(direction: Direction, lowered: Stage) -> Iterator[Stage]:
    """Loop IR, fused IR, kernels, wrapper."""
    compiled = direction.record
    if not compiled.lowered:
        return
    loops = Stage(f"{direction.id}/loop_ir", "loop_ir", "Loop IR, before fusion", direction.name)
    yield loop_ir(loops, compiled.loop_ir, lowered)
    fused = Stage(f"{direction.id}/fused", "fused", "Loop IR after fusion", direction.name)
    yield fused_ir(fused, compiled.fused_ir, loops, lowered)
    for kernel in compiled.kernels:
        yield kernel_stage(direction, kernel, fused)
    set_kernels(direction, loops, fused)
    direction.flow.extend(flow_of(compiled, direction.kernels, lowered, loops, fused))
    wrapper = Stage(f"{direction.id}/wrapper", "wrapper", "Wrapper", direction.name)
    reason = "the wrapper's own: memory, sizes, streams, and what is given back"
    yield numbered_lines(wrapper, compiled.wrapper_source, fused, reason)
    set_measured(direction, Origin(loops, fused, wrapper), wrapper)


class Origin(dict[str, list[str]]):
    """What the objects of some stages came from: id -> ids."""

    def __init__(self, *stages: Stage) -> None:
        super().__init__({node["id"]: node["origins"] for one in stages for node in one.nodes})

    def all(self, name: str) -> set[str]:
        found, waiting = {name}, [name]
        while waiting:
            new = set(self.get(waiting.pop(), ())) - found
            found |= new
            waiting += new
        return found


def set_measured(direction: Direction, origin: Origin, wrapper: Stage) -> None:
    """What was measured, as rows: a step is a line of the wrapper that calls a kernel.  The kernels
    get their times; `came_from` of other steps finds their eager kernel."""
    sheet = sheet_of(direction.record)
    if sheet is None:
        return
    waiting = [*direction.kernels]
    for line, step in sorted(sheet.steps.items()):
        kernel = next((one for one in waiting if one["name"] == step.name), None)
        row: Node = {
            "id": f"{direction.id}/step{len(direction.steps)}",
            "line": wrapper.names[str(line)],
            "kernel": kernel["id"] if kernel else "",
            "seconds": step.seconds,
            "bytes": step.moved,
            "at_most": True,
        }
        if kernel is not None:
            waiting.remove(kernel)
            kernel["seconds"] = step.seconds
            row["bytes"] = kernel["bytes_read"] + kernel["bytes_written"]
            row["at_most"] = kernel["at_most"]
        direction.steps.append(row)
    direction.came_from.update((row["id"], origin.all(row["line"])) for row in direction.steps)


def about_lines(text: str) -> Iterator[tuple]:
    """(line, its name, marks, reason, op) of a text."""
    lines = text.rstrip("\n").split("\n")
    about = getattr(text, "about", None) or [NOTHING] * len(lines)
    for line, known in zip(lines, about):
        yield line, *known


def loop_ir(stage: Stage, text: str, lowered: Stage) -> Stage:
    """Buffers and their statements: each from the node whose op was called."""
    head, at = "", {}
    for line, name, marks, reason, op in about_lines(text):
        origins = lowered.ids(marks)
        if ":" in name:
            name = unused(name, stage.names)
            origins, shown = (
                origins or stage.ids([head]),
                [stage.node(name, op, origins, group=head)],
            )
        else:
            head = name
            at[head] = len(stage.nodes)
            shape = line.partition(": ")[2].partition(" = ")[0]
            shown = [stage.node(name, op, origins, shape=shape)] if name else []
        stage.line(line, shown)
        for read in reads_of(line, op, stage.names) if head else ():
            inputs = stage.nodes[at[head]]["inputs"]
            if read not in inputs and read != stage.names[head]:
                inputs.append(read)
    say_why(stage)
    return stage


def reads_of(line: str, op: str, buffers: dict[str, str]) -> list[str]:
    """The ids of the buffers that a line of the loop IR reads: the one that it loads, or the
    arguments of a library's kernel."""
    words = re.findall(r"\w+", line.partition("(")[2].partition("    #")[0])
    if op == "load":
        words = words[:1]
    elif "." not in op:
        return []
    return [buffers[word] for word in words if word in buffers]


def say_why(stage: Stage) -> None:
    """A buffer that no node has asked for (a copy) comes from the nodes of its statements."""
    for head in [node for node in stage.nodes if not node["origins"]]:
        inside = [node["origins"] for node in stage.nodes if node["group"] == head["name"]]
        found = dict.fromkeys(origin for origins in inside for origin in origins)
        head["origins"] = [origin for origin in found if origin != head["id"]]
        head["reason"] = "" if head["origins"] else PARTS


PARTS = "puts together what another buffer holds in parts"


def fused_ir(stage: Stage, text: str, loops: Stage, lowered: Stage) -> Stage:
    """Groups, buffers and statements, which come from those of the loop IR."""
    statements = Statements(loops)
    groups: list[tuple[int, tuple]] = []
    for line, name, marks, reason, op in about_lines(text):
        if not name:
            stage.line(line)
            continue
        if op == "group":
            origins = loops.ids(marks)
        elif "." in name:
            origins = statements.of(name.partition(".")[0], op, lowered.ids(marks))
        else:
            origins = loops.ids([name])
        origins = origins or lowered.ids(marks)
        about = {} if origins else {"reason": PARTS}
        made = stage.node(unused(name, stage.names), op, origins, **about)
        stage.line(line, [made])
        if op == "group":
            groups.append((len(stage.lines) - 1, marks))
    join_groups(stage, loops)
    for line, marks in reversed(groups):  # alike parts of one kernel, whose bodies are not shown
        for name in [mark for mark in marks if mark not in stage.names]:
            stage.lines[line].append(stage.node(name, "buffer", loops.ids([name])))
    return stage


def join_groups(stage: Stage, loops: Stage) -> None:
    """What a group, or a library's kernel, reads: the groups in which its buffers' inputs are
    made."""
    inputs = {node["id"]: node["inputs"] for node in loops.nodes}
    heads = [node for node in stage.nodes if node["op"] == "group"]
    within = {one for node in heads for one in node["origins"]}
    heads += [n for n in stage.nodes if "." in n["op"] and not within.intersection(n["origins"])]
    owner = {one: node["id"] for node in heads for one in node["origins"]}
    for node in heads:
        read = [
            owner[one] for made in node["origins"] for one in inputs.get(made, ()) if one in owner
        ]
        node["inputs"] = [one for one in dict.fromkeys(read) if one != node["id"]]


class Statements:
    """Finds a recorded statement among those of the loop IR: the same op of the same node in the
    same buffer; of several the one that comes next."""

    def __init__(self, loops: Stage) -> None:
        self.waiting: dict[tuple, list[str]] = {}
        self.last: dict[tuple, str] = {}
        self.loops = loops
        for node in loops.nodes:
            if node["group"]:
                key = (node["group"], node["op"], tuple(node["origins"]))
                self.waiting.setdefault(key, []).append(node["id"])

    def of(self, buffer: str, op: str, origins: list[str]) -> list[str]:
        key = (buffer, op, tuple(origins or self.loops.ids([buffer])))
        waiting = self.waiting.get(key)
        if waiting:
            self.last[key] = waiting.pop(0)
        found = self.last.get(key)
        return [found] if found else origins or self.loops.ids([buffer])


def numbered_lines(stage: Stage, text: str, origins: Stage, reason: str) -> Stage:
    """Lines of a kernel or a wrapper: objects that are called by their numbers."""
    for number, (line, _, marks, why, _) in enumerate(about_lines(text), 1):
        # of an alike part of the kernel only the buffer is known, not its statements
        shown = [mark if mark in origins.names else mark.partition(".")[0] for mark in marks]
        found = origins.ids(shown)
        why = "" if found else why or reason
        stage.line(line, [stage.node(str(number), "line", found, reason=why)])
    return stage


def kernel_stage(direction: Direction, kernel: Any, fused: Stage) -> Stage:
    """The lines of a kernel, each from the statements that it computes."""
    name = unused(f"{direction.id}/kernel/{kernel.name}", {k["id"] for k in direction.kernels})
    language = "cpp" if kernel.language == "cpp" else "python"
    stage = Stage(name, "kernel", f"Kernel {kernel.name}", direction.name, language)
    source = Listing(kernel.source)
    source.about = kernel.about
    numbered_lines(stage, source, fused, "")
    traffic = traffic_of(kernel, direction.record)
    direction.kernels.append(
        {
            "id": name,
            "name": kernel.name,
            "language": kernel.language,
            "stage": name,
            "nodes": fused.ids(kernel.nodes),
            "bytes_read": traffic.read,
            "bytes_written": traffic.written,
            "at_most": traffic.is_bound,
            "seconds": None,
            "assembly": "",
        }
    )
    return stage


def set_kernels(direction: Direction, *stages: Stage) -> None:
    """The kernel that computes them is the group of buffers, statements and groups."""
    of_buffer = {
        made.rpartition("/")[2]: kernel["id"]
        for kernel in direction.kernels
        for made in kernel["nodes"]
    }
    for stage in stages:
        for node in stage.nodes:
            name = node["name"].removeprefix("group:").removeprefix("foreach ")
            buffer = re.split("[:.+]", name)[0]
            node["group"] = of_buffer.get(buffer, node["group"])


def unused(name: str, taken: Collection[str]) -> str:
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}-{number}"
    return found
