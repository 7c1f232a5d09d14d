"""What the code generators share, and the way of a schedule's groups to kernels: the source of each
is written, then all are built.

In:   a `Schedule`.  Out: the steps of a call in order: eager kernels as they were, and for each
      group a `KernelStep` with its source, its name and its function; `record.kernels` shows them.

    >>> written = write_kernels(schedule, record)
    >>> [step] = build_kernels(written, schedule, record)
    >>> step.name, step.language, step.kernel.arguments
    ('sub_exp_sum_dim_int_list_div_0', 'cpp', ['arg0', 'buf3'])

The language of the device and the class of the node choose the class that writes a kernel: the
table `writers` of a `Language`, filled in languages.py (CPU, Group: cpp/kernel_writer.py).  It
turns op calls of loop bodies into values with a dtype, and names each temporary once:

    >>> scope = Scope()
    >>> scope.known["in0[x0] * 2"] = scope.fresh("tmp")  # its line is written
    >>> Scope(parent=scope).lookup("in0[x0] * 2")  # known: no second line
    'tmp0'

Mirrors the loop over nodes in torch/_inductor/scheduler.py (`codegen`), codecache.py and
codegen/common.py (CSE).
"""

import math
import os
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import sympy
import torch

from ..devices import LANGUAGES, language_of
from ..ir.loops import Buffer, Graph, playing
from ..options import announce
from ..records import About, CompileRecord, KernelRecord, Marked
from ..schedule.nodes import ExternNode, Node, Schedule, buffer_bytes, bytes_touched

# FX node -> its place in the graph, and its meta: for comments and names of kernels
Order: TypeAlias = Mapping[str, tuple[int, Mapping[str, Any]]]

# operations that both languages write between their operands
INFIX = dict(
    zip(
        "add sub mul bitwise_and bitwise_or bitwise_xor eq ne lt le gt ge".split(),
        "+ - * & | ^ == != < <= > >=".split(),
    )
)
LOGICAL = {"logical_and": "&", "logical_or": "|", "logical_xor": "^"}


@dataclass(frozen=True)
class Value:
    """A computed scalar: `text` is a name or literal in the generated code."""

    text: str
    dtype: torch.dtype
    inner: bool = False  # does it change in the inner loop?
    number: float | None = None  # its value, if it is a constant

    def __str__(self) -> str:
        return self.text


def wrapped(value: float, dtype: torch.dtype) -> int:
    """As torch converts a scalar to an integer type: -1 is 255 in uint8."""
    info = torch.iinfo(dtype)
    return (int(value) - info.min) % (info.max - info.min + 1) + info.min


def limit(dtype: torch.dtype, lowest: bool) -> bool | int | float:
    """The smallest or largest number of a dtype."""
    if dtype.is_floating_point:
        return -math.inf if lowest else math.inf
    if dtype is torch.bool:
        return not lowest
    return torch.iinfo(dtype).min if lowest else torch.iinfo(dtype).max


class Scope:
    """The expressions already computed in one nesting level, or in a level around it."""

    def __init__(self, parent: "Scope | None" = None):
        self.parent = parent
        self.known: dict[object, str] = {}
        self.counter: dict[str, int] = parent.counter if parent else {}
        # name of a value -> the instructions that it was computed for
        self.makers: dict[str, list] = parent.makers if parent else {}

    def fresh(self, prefix: str) -> str:
        number = self.counter[prefix] = self.counter.get(prefix, -1) + 1
        return f"{prefix}{number}"

    def lookup(self, expression: object) -> str | None:
        """The name of its value, if it is computed already, now also for what is being played."""
        if expression not in self.known:
            return self.parent.lookup(expression) if self.parent else None
        name = self.known[expression]
        makers = self.makers.setdefault(name, [])
        if playing.value not in makers:
            makers.append(playing.value)
        return name


@dataclass
class Kernel:
    """`source` has NAME where the function's name goes.  `arguments`: buffer names and size
    symbols, in order."""

    source: str
    arguments: list[str | sympy.Symbol]
    stored: list[str]  # names of the group whose values it writes to memory
    read: list[str]
    summary: str  # a short word for the kernel's name: "softmax", "add_gelu"
    reads_again: bool = False  # may it read something after it has written a result?
    # what is known of each line of the source, see `Listing` in records.py
    about: list[About] = field(default_factory=list, compare=False, repr=False)
    launch: Any = None  # Triton: how many programs, and which block sizes to try


def of_all_parts(kernel: Kernel, parts: Sequence[Any]) -> Kernel:
    """The kernel of a `Foreach`, made from its first part's: wherever that one names a buffer of
    the first part, this one names the same buffer of every part."""
    first = parts[0].names

    def of_all(marks: Sequence[str]) -> tuple[str, ...]:
        """ "buf0.3" of the first part stands for "buf7.3" of another one."""
        found = [mark.partition(".") for mark in marks]
        return tuple(
            dict.fromkeys(
                part.names[first.index(name)] + dot + number if name in first else name
                for part in parts
                for name, dot, number in found
            )
        )

    about = [(name, of_all(marks), reason, op) for name, marks, reason, op in kernel.about]
    summary = "foreach_" + kernel.summary
    stored, read = list(of_all(kernel.stored)), list(of_all(kernel.read))
    return replace(kernel, summary=summary, stored=stored, read=read, about=about)


def marked(text: str, origin: Any) -> Marked:
    """A line of a kernel.  origin: what it computes, an Instruction or a list of them; or a text,
    what else the line is for; or None."""
    if isinstance(origin, str):
        return Marked.of(text, reason=origin)
    instructions = origin if isinstance(origin, list) else [origin]
    return Marked.of(text, marks=[one.about[0] for one in instructions if one is not None])


# parts of a node's name that say nothing of what it computes
OVERLOADS = "default tensor_scalar tensor scalar int dim self correction".split()
VIEWS = ("view", "unsqueeze", "permute", "expand")


def summary(nodes: Sequence[Node], order: Order) -> str:
    """The name of a kernel, "add_gelu": the last few FX ops of its nodes, each once."""
    names = in_graph_order([n.buffer for n in nodes], order)
    words = [op_of(name.lower()) for name in reversed(names)]
    found = dict.fromkeys(word for word in words if word.isidentifier() and word not in VIEWS)
    reduces = any(getattr(n, "is_reduction", False) for n in nodes)
    plain = "reduction" if reduces else "pointwise"
    return "_".join([*found][3::-1])[:40].strip("_") or plain


def op_of(node: str) -> str:
    """ "add" of "add_tensor_1", the name of an FX node."""
    head, _, number = node.rpartition("_")
    word = head if number.isdigit() else node
    for overload in OVERLOADS:
        word = word.removesuffix(f"_{overload}")
    return word.strip("_")


# --- comments -------------------------------------------------------------------------------------
def in_graph_order(buffers: Iterable[Buffer], order: Order) -> list[str]:
    """Names of the FX nodes, in the order of their graph, without inputs and parameters."""
    names = {str(origin) for buffer in buffers for origin in buffer.origins}
    return sorted(names & order.keys(), key=order.__getitem__) if order else sorted(names)


def source_of(name: str, order: Order) -> list[str]:
    """The line of the program that a node comes from: ["y = gelu(x @ w)", "model.py:12"]."""
    meta = order[name][1] if order else {}
    if not (line := meta.get("source_line")):
        return [op_of(name), "the compiler's own"]
    code = textwrap.shorten(line[2] or op_of(name), 60, placeholder="...")
    parts = "gradient of " * ("backward" in meta) + code, f"{os.path.basename(line[0])}:{line[1]}"
    return [part.encode("unicode_escape").decode() for part in parts]  # (on one line)


def origin_text(buffer: Buffer, order: Order) -> str:
    """ " = mul: model.py:12": what the last FX node of a buffer computes, and for which line."""
    names = in_graph_order([buffer], order)
    return f" = {op_of(names[-1])}: {source_of(names[-1], order)[1]}" if names else ""


def about_lines(nodes: Sequence[Node], order: Order) -> list[str]:
    """The lines of the program that a kernel computes: "y = gelu(x @ w): model.py:12"."""
    names = in_graph_order([n.buffer for n in nodes], order)
    found = list(dict.fromkeys(": ".join(source_of(name, order)) for name in names))
    return found[:6] + [f"and {len(found) - 6} more"] * (len(found) > 6)


# --- the kernels of a schedule -------------------------------------------------------------------
@dataclass
class KernelStep:
    """A call of a kernel of ours."""

    group: Any  # a Group, or a node of another kind (codegen/triton/products.py)
    kernel: Kernel  # what its writer made of it
    language: str
    moved: int  # how many bytes it reads and writes
    name: str = ""  # in the wrapper, once it is built
    function: Callable | None = None  # it is built then, too

    def made(self) -> list[str]:
        return self.kernel.stored

    def touched(self) -> list[str]:
        return [a for a in self.kernel.arguments if isinstance(a, str)]


Step: TypeAlias = KernelStep | ExternNode


# --- devices --------------------------------------------------------------------------------------
def main_device(graph: Graph) -> torch.device:
    """The device of the graph's kernels: that of its GPU tensors, or else the CPU."""
    devices = {b.layout.device for b in graph.buffers.values() if b.layout is not None}
    elsewhere = sorted(devices - {torch.device("cpu")}, key=str)
    if len(elsewhere) > 1:
        raise NotImplementedError(f"tensors on several devices: {', '.join(map(str, elsewhere))}")
    return elsewhere[0] if elsewhere else torch.device("cpu")


# --- writing --------------------------------------------------------------------------------------
def write_kernels(schedule: Schedule, record: CompileRecord) -> list[Step]:
    """A `KernelStep`, not yet built, for each group; eager kernels stay as they are."""
    used = schedule.in_memory()
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
    keep = used.intersection(group.names)
    device, buffers = group.device, schedule.buffers
    if any(buffers[name].layout.device != device for name in group.read_names):
        raise NotImplementedError(f"a kernel on {device} that reads a tensor of another device")
    language = language_of(device)
    writer = language.writers()[type(group)]
    kernel = writer(group, buffers, keep, order, schedule.overwritten).write()
    moved = sum(buffer_bytes(buffers[n]) for n in [*kernel.read, *kernel.stored])
    return KernelStep(group, kernel, language.name, moved)


# --- building -------------------------------------------------------------------------------------
def build_kernels(steps: Sequence[Step], schedule: Schedule, record: CompileRecord) -> list[Step]:
    """The steps of a call with their kernels built, all those of a place at once, and named.  Equal
    kernels are one function."""
    ours = [step for step in steps if isinstance(step, KernelStep)]
    places: dict[tuple[str, torch.device], list[KernelStep]] = {}
    for step in ours:
        places.setdefault((step.language, step.group.device), []).append(step)
    names: dict[Callable, str] = {}
    for (language, device), members in places.items():
        build = LANGUAGES[language].build
        kernels, moved = [step.kernel for step in members], [step.moved for step in members]
        for step, function in zip(members, build(device, kernels, moved)):
            name = f"{step.kernel.summary}_{len(names)}"
            if name in schedule.graph.inputs:  # both are named after operations
                name += "_kernel"
            step.function, step.name = function, names.setdefault(function, name)
    record.kernels += [record_of(step, schedule) for step in ours]
    return list(steps)


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
