"""Passes that put library kernels into a graph, and those that choose layouts for them.

In:   a functional graph.  Out: another in its place, or the same.

    @graph_pass(LAYOUTS, "library kernels of the CPU", order=30)
    def for_cpu(gm, context): ...                 # the graph, or an equal one in its place

The driver (compile.py) hands over each graph: in inference for `REWRITING`, before it is lowered
for `LAYOUTS`.
"""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

from ..compile import Compilation
from ..graph_passes import Stage, passes
from ..hooks import extends
from ..records import CompileRecord
from ..runtime.program import Program

REWRITING: Stage = {}  # (graph, context) -> graph; for inference: kernels that do what it computes
LAYOUTS: Stage = {}  # (graph, context) -> graph; for each graph that is lowered


@dataclass
class Context:
    """What a pass may know, and what it leaves for the next one.

    written: (kind, name) of the placeholders and attributes that the graph writes.
    inference: no joint graph, whose convolutions have their layouts already.
    constants: nodes that depend on parameters alone, if those are frozen.
    frozen: what makes the constants again (freezing.py).
    """

    record: CompileRecord
    inference: bool
    written: Sequence[tuple[str, str]] = ()
    decompositions: dict[Any, Callable[..., Any]] | None = None
    constants: Container[fx.Node] = ()
    frozen: Any = None


def changed(stage: Stage, gm: fx.GraphModule, context: Context) -> fx.GraphModule:
    """The graph after the passes of a stage, or another in its place."""
    for one in passes(stage):
        gm = one.run(gm, context)
        context.record.keep_step(one.name, gm)
    return gm


@extends(Compilation)
class WithPasses(Compilation):
    def rewritten(self, functional: fx.GraphModule) -> fx.GraphModule:
        tables = self.decompositions()
        context = Context(self.record, inference=True, decompositions=tables)
        return changed(REWRITING, functional, context)

    def generate(
        self, functional: fx.GraphModule, record: CompileRecord, written: Sequence[tuple[str, str]]
    ) -> Program:
        with record.timed("layouts"):
            context = Context(record, inference=record.joint_graph is None, written=written)
            record.keep_step("partition", functional)
            functional = changed(LAYOUTS, functional, context)
        program = super().generate(functional, record, written)
        program.frozen = context.frozen
        return program
