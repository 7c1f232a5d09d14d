"""The stages of one cache entry as data: a text, what its lines show, and the objects of the stage.

In:   an entry's `FrameRecord` and the `CompileRecord`s behind it.  Out: a list of stages, in the
      order of the pipeline, as schema.json says.

    >>> [stage["id"] for stage in stages_of(record, "f0.0", Files())][:3]
    ['f0.0/bytecode', 'f0.0/replacement', 'f0.0/fx']

Every object has an id that begins with its stage's, and the ids of the objects of earlier stages,
or of source lines, that it came from (`origins`); where it came from none, `reason` says why.
"""

import dis
import io
import operator
import re
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from .files import Files

Node = dict[str, Any]
SHORT = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "b8",
}


@dataclass
class Stage:
    """One stage on its way into the document; `names`: name of an object -> its id."""

    id: str
    kind: str
    title: str
    direction: str = ""
    language: str = "python"
    texts: list[str] = field(default_factory=list)
    lines: list[list[str]] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    # of a graph: name of a node -> names of the traced nodes that it came from
    traced: dict[str, Any] = field(default_factory=dict)

    def line(self, text: str, ids: Iterable[str] = ()) -> None:
        """One line of the text, or several, all of which show the same objects."""
        for part in text.split("\n"):
            self.texts.append(part)
            self.lines.append(list(ids))

    def node(self, name: str, op: str, origins: Iterable[str] = (), **more: Any) -> str:
        """Add an object; returns its id."""
        made = f"{self.id}/{name}"
        self.names[name] = made
        found = list(dict.fromkeys(origins))
        node = {"id": made, "name": name, "op": op, "origins": found, "reason": "", "inputs": []}
        node |= {"place": None, "shape": "", "bytes": None, "group": ""}
        self.nodes.append(node | more)
        return made

    def ids(self, names: Iterable[str]) -> list[str]:
        """The ids of those of these objects that the stage has."""
        return [self.names[name] for name in names if name in self.names]

    def data(self, step: int) -> dict[str, Any]:
        return {
            "id": self.id,
            "kind": self.kind,
            "direction": self.direction,
            "title": self.title,
            "step": step,
            "text": "\n".join(self.texts),
            "language": self.language,
            "lines": self.lines,
            "nodes": self.nodes,
        }


# --- tensors --------------------------------------------------------------------------------------
def shape_text(value: Any) -> str:
    """ "f32[4, 8]" of a tensor, "" of anything else."""
    if isinstance(value, (tuple, list)):
        return ", ".join(filter(None, map(shape_text, value)))
    if not isinstance(value, torch.Tensor):
        return ""
    dtype = SHORT.get(value.dtype, str(value.dtype).removeprefix("torch."))
    return f"{dtype}[{', '.join(map(str, value.shape))}]"


def byte_count(value: Any) -> int | None:
    """Bytes of a tensor's elements; None where its sizes are symbols."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return None
    if not all(type(n) is int for n in value.shape):
        return None
    return value.numel() * value.dtype.itemsize


# --- bytecode -------------------------------------------------------------------------------------
def bytecode(entry: str, kind: str, code: Any, files: Files) -> Stage:
    """The instructions of a code object, each from its source line."""
    titles = {"bytecode": "Bytecode", "replacement": "Replacement bytecode"}
    stage = Stage(f"{entry}/{kind}", kind, titles[kind], language="text")
    if code is None:
        return stage
    before = None
    for instruction in dis.get_instructions(code):
        line = instruction.positions.lineno if instruction.positions else None
        origins = [files.line_id(code.co_filename, line)] if line else []
        more: Node = {"place": files.place(code.co_filename, line)}
        if not line:
            more["reason"] = "CPython's or minidynamo's own: no line of the program asks for it"
        name = str(instruction.offset)
        made = stage.node(name, instruction.opname, origins, **more)
        shown = str(line) if line and line != before else ""
        about = argument_text(instruction)
        text = f"{shown:>5} {instruction.offset:>5} {instruction.opname:<28} {about}"
        stage.line(text.rstrip(), [made])
        before = line
    return stage


def instruction_ends(code: Any) -> dict[int, str]:
    """Byte at which an instruction ends -> its name, the byte at which it begins."""
    if code is None:
        return {}
    offsets = [instruction.offset for instruction in dis.get_instructions(code)]
    ends = [*offsets[1:], len(code.co_code)]
    return {end: str(offset) for offset, end in zip(offsets, ends)}


def argument_text(instruction: dis.Instruction) -> str:
    """An instruction's argument; objects of ours in replacement code by what they are for."""
    value, text = instruction.argval, instruction.argrepr
    if instruction.opname.startswith("LOAD_CONST") and not text.startswith(("'", '"')):
        if getattr(value, "__name__", "") == "__next__":
            return "count this call"
        if "<bound method Undo.raised of " in text:
            return "the graph raised: run the original"
        if text.startswith("<disabled "):
            return "the graph"
    return text


def disassembled(code: types.CodeType | None) -> str:
    text = io.StringIO()
    if code is not None:
        dis.dis(code, file=text, depth=0)
    return text.getvalue()


def readable(bytecode: str) -> str:
    """Objects of ours that stand in the replacement code as constants, by what they are for."""
    for pattern, meaning in (
        (r"<method-wrapper '__next__' of itertools.count [^>]*>", "count this call"),
        (r"<disabled <bound method Undo.raised of .*(?=\)$)", "the graph raised: run the original"),
        (r"<disabled .*(?=\)$)", "the graph"),
    ):
        bytecode = re.sub(pattern, meaning, bytecode, flags=re.M)
    return bytecode


# --- graphs ---------------------------------------------------------------------------------------
def target_text(node: fx.Node) -> str:
    """What a node calls, in a word: "aten.mm.default", "relu"."""
    if node.op in ("placeholder", "get_attr", "output", "call_method"):
        return node.op if node.op != "call_method" else str(node.target)
    if isinstance(node.target, torch._ops.OpOverload):
        return str(node.target)
    return getattr(node.target, "__name__", str(node.target))


def value_of(node: fx.Node) -> Any:
    return node.meta.get("val", node.meta.get("example_value"))


Explain = Callable[[fx.Node], tuple[list[str], str]]  # a node -> (origins, reason)


def graph_stage(stage: Stage, graph: Any, explain: Explain, files: Files) -> Stage:
    """Nodes and text of an FX graph."""
    graph = getattr(graph, "graph", graph)
    order = list(graph.nodes)
    for node in order:
        value, (origins, reason) = value_of(node), explain(node)
        stage.node(
            node.name,
            target_text(node),
            origins,
            reason="" if origins else reason,
            inputs=stage.ids(source.name for source in node.all_input_nodes),
            place=files.written_place(node.meta.get("source_line")),
            shape=shape_text(value),
            bytes=byte_count(value),
            group=node.meta.get("module_path", ""),
        )
    printed_graph(stage, graph, order)
    return stage


def printed_graph(stage: Stage, graph: fx.Graph, order: list[fx.Node]) -> None:
    """The graph as Python.  torch says which node each line of its text comes from."""
    printed = graph.python_code("self")
    places = printed._lineno_map or {}
    head, *body = printed.src.strip("\n").split("\n")
    stage.line(head, stage.ids(n.name for n in order if n.op == "placeholder"))
    for number, text in enumerate(body, 1):
        at = places.get(number)
        if at is None or not text.strip():
            if text.strip():
                stage.line(text)
            continue
        node = order[at]
        shape = shape_text(value_of(node)) if node.op != "output" else ""
        stage.line(f"{text}  # {shape}" if shape else text, stage.ids([node.name]))


def held_names(gm: fx.GraphModule) -> dict[int, str]:
    """id of a tensor that the graph's module holds -> the name of its get_attr node."""
    found: dict[int, str] = {}
    for node in gm.graph.find_nodes(op="get_attr"):
        found.setdefault(id(operator.attrgetter(node.target)(gm)), node.name)
    return found
