"""Calls that may raise are run for all of their elements, as eager runs them.

In:   a graph that is lowered.  Out: stored buffers, and marks on those whose kernels must run.

    x[i]; return x + 1          # a kernel of its own looks at the positions

A value that is not stored is computed only where it is read: in weight[positions][0] only one
position would be checked, where eager checks all.  So the calls that may raise are stored, unless
one of `CHECKS` leaves them out.
"""

from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from ..checks import may_raise
from ..dependencies import MAY_RAISE
from ..hooks import extends
from ..ir import ExternKernel, Pointwise, boxes_in
from ..lowering.graph import GraphLowering, dense_strides
from .targets import is_forward
from ..nodes import Group, ScheduledNode
from ..records import CompileRecord
from ..scheduler import Scheduler

# (graph, is it a forward half) -> the calls that must be stored
CHECKS: list[Callable[[fx.Graph, bool], set[fx.Node]]] = []


@extends(GraphLowering)
class KeepingChecks(GraphLowering):
    def __init__(
        self, gm: fx.GraphModule, record: CompileRecord, written: Sequence[tuple[str, str]]
    ) -> None:
        super().__init__(gm, record, written)
        self.checks = {n for n in gm.graph.nodes if n.op == "call_function" and may_raise(n)}
        for still_needed in CHECKS:
            self.checks &= still_needed(gm.graph, is_forward(self))

    def run_node(self, node: fx.Node) -> Any:
        """Stores all results of a node that may raise, and marks its buffers: they must run."""
        before = len(self.lowered.operations)
        result = super().run_node(node)
        if node in self.checks:
            for base in [box.base for box in boxes_in(result)]:
                if isinstance(base.data, Pointwise):
                    base.realize(dense_strides(base))
            self.lowered.checks.update(made.name for made in self.lowered.operations[before:])
        return result


@extends(Scheduler)
class KeepingScheduler(Scheduler):
    def must_stay(self, node: ScheduledNode) -> bool:
        raises = not self.graph.checks.isdisjoint(node.names)
        if isinstance(node, Group):
            # positions that are known to be in range leave no instruction
            return raises and any(i.op in MAY_RAISE for n in node.nodes for i in n.body.walk())
        is_eager = isinstance(getattr(node, "buffer", None), ExternKernel)
        return raises and is_eager or super().must_stay(node)
