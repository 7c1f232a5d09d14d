"""Sums that are wanted of some rows only: the loop over the others is left out.

    torch.where(is_wanted[:, None], x, 0.0).sum(-1)

    float acc1 = 0;
    if (tmp8) {
        for (int64_t r0 = 0; r0 < 1024; r0++) { ... acc1 = acc1 + tmp12; }
    }

In:   a loop that stores nothing, all of whose accumulators add up `condition ? value : 0`, where no
      iteration changes the condition.  Out: the loop in a branch.  Of several conditions one must
      hold; of columns that are reduced together (rows.py), the condition of one of them.

So a careful form of a sum costs nothing where the plain one is right (lowerings/variances.py).
PyTorch: has no such form; its loops have no branches around them.
"""

from collections.abc import Iterable
from typing import Any

from ..codegen.common import Value
from ..codegen.cpp import CppKernelWriter
from ..codegen.cpp_reductions import Accumulator, Sums, declarations
from ..codegen.strategy import Found, Strategy, strategy
from ..codegen.tree import Branch, Statement, Statements, sets_error
from ..nodes import Node


def conditions_of(writer: CppKernelWriter) -> dict[str, Value]:
    """Name of a value -> the condition without which it is 0."""
    return writer.__dict__.setdefault("conditions", {})


def noting(plain: Any) -> Any:
    """`where`, which notes what is 0 but under a condition."""

    def method(self: CppKernelWriter, condition: Value, a: Value, b: Value) -> Value:
        found: Value = plain(self, condition, a, b)
        if (b.number if isinstance(b, Value) else b) == 0:
            conditions_of(self)[found.text] = condition
        return found

    return method


def forgetting(plain: Any) -> Any:
    """`write_into`, after which names may be used anew."""

    def method(self: CppKernelWriter, *args: Any) -> None:
        conditions_of(self).clear()
        plain(self, *args)

    return method


setattr(CppKernelWriter, "where", noting(CppKernelWriter.where))
setattr(CppKernelWriter, "write_into", forgetting(CppKernelWriter.write_into))


def wanted_where(
    writer: CppKernelWriter, nodes: Iterable[Node], accumulators: Iterable[Accumulator]
) -> list[Value]:
    """Conditions, without all of which a loop over these nodes adds up nothing; none: it may add up
    something, or stores elements."""
    if not all(node.is_reduction for node in nodes):
        return []
    found: dict[str, Value] = {}
    for accumulator in accumulators:
        condition = conditions_of(writer).get(accumulator.term)
        if condition is None or accumulator.kind != "sum":
            return []
        found[condition.text] = condition
    return list(found.values())


@strategy(order=2)
class WantedSums(Strategy):
    is_asking = False  # is the loop being written, around which the branch comes?

    def applies(self) -> bool:
        return not self.writer.plan.is_pointwise

    def inner_loop(self, body: Statements, accumulators: Sums) -> Found:
        writer = self.writer
        nodes = writer.plan.nodes_of(writer.current_stage, inner=True)
        conditions = wanted_where(writer, nodes, accumulators)
        if self.is_asking or not conditions or any(c.inner for c in conditions):
            return None
        if sets_error(body):
            return None
        self.is_asking = True
        lines = writer.ask("inner_loop", body, accumulators)
        self.is_asking = False
        # (known only now: the loop may have made doubles of the accumulators)
        declared = declarations(accumulators)
        loop: list[Statement] = [line for line in lines if line not in declared]
        return [*declared, Branch(" || ".join(c.text for c in conditions), loop)]
