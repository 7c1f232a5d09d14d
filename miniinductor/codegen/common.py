"""What all code generators share: values with a dtype, temporaries named once, kernels as text.

In:   op calls of a loop body.  Out: text.

    >>> scope = Scope()
    >>> scope.temporary("in0[x0] * 2", "float", prefix="tmp")      # appends "const float tmp0 = in0[x0] * 2;"
    'tmp0'
    >>> scope.temporary("in0[x0] * 2", "float", prefix="tmp")      # common subexpression: nothing appended
    'tmp0'

Mirrors torch/_inductor/codegen/common.py (CSE).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import sympy
import torch

from ..nodes import Node


@dataclass(frozen=True)
class Value:
    """A computed scalar: `text` is a name or literal in the generated code.

    inner: what it varies with.  C++: does it change in the inner loop?  Triton: a frozenset of the
    tile's axes."""

    text: str
    dtype: torch.dtype
    inner: bool | frozenset[str] = False

    def __str__(self) -> str:
        return self.text


class Scope:
    """Lines of one nesting level, and the expressions already computed there (or in a level around
    it)."""

    def __init__(self, parent: "Scope | None" = None):
        self.parent = parent
        self.lines: list[str] = []
        self.known: dict[object, str] = {}
        self.counter: dict[str, int] = parent.counter if parent else {}

    def fresh(self, prefix: str) -> str:
        number = self.counter[prefix] = self.counter.get(prefix, -1) + 1
        return f"{prefix}{number}"

    def lookup(self, expression: object) -> str | None:
        scope: Scope | None = self
        while scope is not None:
            if expression in scope.known:
                return scope.known[expression]
            scope = scope.parent
        return None

    def temporary(self, expression: str, c_type: str | None, prefix: str = "tmp") -> str:
        """c_type: a C type, or None in Python."""
        name = self.lookup((expression, c_type))
        if name is None:
            name = self.fresh(prefix)
            self.lines.append(
                f"const {c_type} {name} = {expression};" if c_type else f"{name} = {expression}"
            )
            self.known[expression, c_type] = name
        return name

    def add(self, line: str) -> None:
        self.lines.append(line)


@dataclass
class Kernel:
    """`source` has NAME where the function's name goes.  `arguments`: buffer names and size
    symbols, in order."""

    source: str
    arguments: list[str | sympy.Symbol]
    stored: list[str]  # names of the group whose values it writes to memory
    read: list[str]
    summary: str  # a short word for the kernel's name: "softmax", "add_gelu"
    reruns: bool = False  # it may read something again after it has written a result
    launch: object = None  # Triton: how many programs, and which block sizes to try


# --- the order inside a kernel --------------------------------------------------------------------
def in_data_flow_order(nodes: Sequence[Node]) -> list[Node]:
    """A kernel's nodes so that each stands after those whose results it reads."""
    names = {n.name for n in nodes}
    needs = {n.name: {a.name for a in n.body.reads()} & names - {n.name} for n in nodes}
    ordered: list[Node] = []
    pending = list(nodes)
    while pending:
        done = {n.name for n in ordered}
        ordered += [n for n in pending if needs[n.name] <= done]
        pending = [n for n in pending if not needs[n.name] <= done]
    return ordered


def stages_of(
    ordered: Sequence[Node], is_inner: Mapping[str, bool], is_pointwise: bool
) -> dict[str, int]:
    """In which inner loop (stage) each node runs, or right after which: a reduction ends a stage,
    and so does what stands outside of the loop; -1: before the first."""
    makers = {n.name: n for n in ordered}
    stages: dict[str, int] = {}
    for node in ordered:
        inner = is_inner[node.name]
        stage = 0 if inner else -1
        for access in node.body.reads():
            producer = makers.get(access.name)
            if producer is None or producer is node:
                continue
            in_same_loop = (
                not inner or is_pointwise or (is_inner[producer.name] and not producer.is_reduction)
            )
            stage = max(stage, stages[producer.name] + (0 if in_same_loop else 1))
        stages[node.name] = stage
    return stages


# --- names ----------------------------------------------------------------------------------------
def summary(nodes: Sequence[Node], order: Mapping[str, int] | None) -> str:
    """ "add_gelu": the last few FX ops of the nodes, each once."""
    words = []
    for name in reversed(in_graph_order({o for n in nodes for o in n.buffer.origins}, order)):
        word = re.sub(
            r"(_(default|tensor_scalar|tensor|scalar|int|dim|self|correction))?(_\d+)?$",
            "",
            name.lower(),
        )
        word = word.strip("_")
        if (
            word.isidentifier()
            and word not in words
            and word not in ("view", "unsqueeze", "permute", "expand")
        ):
            words.insert(0, word)
        if len(words) == 4:
            break
    return "_".join(words)[:40].strip("_") or (
        "reduction" if any(getattr(n, "is_reduction", False) for n in nodes) else "pointwise"
    )


def indent(lines: Iterable[str], depth: int = 1) -> list[str]:
    return ["    " * depth + line if line else line for line in lines]


# --- comments -------------------------------------------------------------------------------------
def in_graph_order(origins: Iterable[object], order: Mapping[str, int] | None) -> list[str]:
    """Names of the FX nodes, in the order of their graph; what is not computed (inputs, parameters)
    left out."""
    names = {str(o) for o in origins}
    return sorted(names) if order is None else sorted(names & order.keys(), key=order.get)


def origin_text(origins: Iterable[object], order: Mapping[str, int] | None, limit: int = 8) -> str:
    """ ": add, mul, ... (3 before)", for comments."""
    names = in_graph_order(origins, order)
    more = f"{len(names) - limit} more, ..., " if len(names) > limit else ""
    return f": {more}{', '.join(names[-limit:])}" if names else ""


def strip_comments(source: str, sign: str = "//") -> str:
    return re.sub(rf"[ \t]*{sign} [^\n]*", "", source)
