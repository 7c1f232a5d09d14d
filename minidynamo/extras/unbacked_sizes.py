"""Sizes and numbers that only the run knows, as symbols without a hint ("unbacked").

In:   an op that makes one, under `config.capture_scalar_outputs`: x.nonzero(), x[x > 0], x.item().
Out:  a SymInt or SymFloat that may be computed with, and the node that gives it to the graph.

    >>> u = ShapeEnv().create_unbacked("x.nonzero()", low=0)
    >>> u * 2, u >= 0           # (u0 * 2, True)
    >>> bool(u > 3)             # DataDependentDecision: the graph breaks here

Without this file fake tensors refuse such ops, and the graph breaks at them.  Mirrors the unbacked
symbols of torch/fx/experimental/symbolic_shapes.py.
"""

import contextlib
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import sympy
import torch

from miniinductor.sizes.facts import LARGEST, Symbol
from miniinductor.sizes.printing import python_code

from .extending import extends, noted
from .. import hooks
from ..conversion import Conversion
from ..dynamic import SizePolicy
from ..exceptions import Break
from ..graph_capture import OutputGraph
from ..reconstruct import Codegen
from ..symbolic_numbers import SymNode
from ..symbolic_shapes import ShapeEnv

from ..variables.symbolic import SYMBOLIC, SymVar
from .rare_nodes import describe
from .unused_inputs import symbols_of


class DataDependentDecision(Break, RuntimeError):
    """A decision needs a value that only the run knows; `reason` names it."""

    needs_data = True  # for a backend, which imports nothing of ours

    def __init__(self, reason: str) -> None:
        hint = "the value is only known when the program runs; keep the decision outside"
        super().__init__("data-dependent", reason, hint)


# called with (graph, frame, node, its new symbols) after an op has made what only the run knows
MADE: list[Callable[[OutputGraph, Any, torch.fx.Node, set[sympy.Symbol]], None]] = []
# called with (sizes, expression) before a question about such symbols is refused
ASKED: list[Callable[[ShapeEnv, sympy.Expr], None]] = []


@extends(SizePolicy)
class UnbackedPolicy(SizePolicy):
    sizes_alone: bool | None = None  # do sizes stay, and numbers not?  (extras/kept_sizes.py)


@extends(ShapeEnv)
class RunningEnv(ShapeEnv):
    running: Any = None  # the operation that runs on fake tensors now


class Unbacked(dict[sympy.Symbol, SymVar]):
    """Symbol that only the run knows -> its variable."""


def create_unbacked(
    env: ShapeEnv, created_by: str = "", low: int = -LARGEST, high: int = LARGEST, kind: type = int
) -> Any:
    """A SymInt (kind=float: a SymFloat) whose value only the run knows."""
    assumptions = {"integer" if kind is int else "real": True}
    if low >= 0:
        assumptions["nonnegative"] = True
    number = sum(row.hint is None for row in env.table.values())
    symbol = sympy.Symbol(f"u{number}", **assumptions)
    creator = created_by or describe(cast(RunningEnv, env).running)
    env.table[symbol] = Symbol(symbol, None, [], low, high, env.where(), created_by=creator)
    if kind is int:
        return env.wrap(symbol)
    return torch.SymFloat(SymNode(env, symbol, float, None))


# torch's fake tensors call it by this name, and with these names of arguments
def _constrain_range_for_size(
    env: ShapeEnv, symbol: sympy.Symbol, min: int | None = None, max: int | None = None
) -> None:
    row = env.table[symbol]
    lowest = min or 0
    highest = LARGEST if max is None else max
    row.low = row.low if row.low > lowest else lowest
    row.high = row.high if row.high < highest else highest
    env.forget_answers()


def add_unbacked(output: "OutputGraph", tx: Any, node: torch.fx.Node, result: Any) -> None:
    """Nodes of the sizes and numbers that `node` made and only the run knows."""
    for symbol, row in output.shape_env.table.items():
        if row.hint is not None or row.sources or symbol in output.symbol_nodes:
            continue
        value, size = result, node
        if not isinstance(result, SYMBOLIC):
            value, size = output.shape_env.wrap(symbol), size_node(output, tx, node, result, symbol)
        output.symbol_nodes[symbol] = size
        noted(output, Unbacked)[symbol] = SymVar(value, node=size)


def size_node(
    output: "OutputGraph", tx: Any, node: torch.fx.Node, result: Any, symbol: sympy.Symbol
) -> torch.fx.Node:
    """A node of the size that `symbol` stands for, of what `node` gives: a tensor, or several."""
    if isinstance(result, torch.Tensor):
        sizes = [n.node._expr if type(n) is torch.SymInt else None for n in result.shape]
        if symbol in sizes:
            size = output.graph.call_method("size", (node, sizes.index(symbol)))
            return output.describe_node(tx, size, output.shape_env.wrap(symbol))
    for n, item in enumerate(result if isinstance(result, (tuple, list)) else ()):
        if isinstance(item, torch.Tensor) and symbol in symbols_of(item):
            part = output.graph.call_function(operator.getitem, (node, n))
            part.meta = dict(node.meta, example_value=item)
            return size_node(output, tx, part, item, symbol)
    text = f"a result of {describe(node.target)} whose size only the run knows"
    raise Break("data-dependent", text)


def capture_after_all(conversion: Conversion) -> bool:
    """Under fullgraph=True, what only the run knows stays in the graph: the alternative is an
    error."""
    policy, found = conversion.policy, next(iter(conversion.forced.values()))
    if not conversion.compiler.fullgraph:
        return False
    if found.kind != "data-dependent" or policy.unbacked or policy.dynamic is False:
        return False
    policy.unbacked = True
    conversion.forced.clear()
    return True


# what torch's fake tensors look for in a ShapeEnv, which is a class of torch's to them
FOR_FAKE_TENSORS: dict[str, Any] = {
    "allow_scalar_outputs": True,
    "allow_dynamic_output_shape_ops": True,
    "var_to_range": {},
    "create_unbacked": create_unbacked,
    "create_unbacked_symint": lambda env, source=None: create_unbacked(env),
    "create_unbacked_symfloat": lambda env: create_unbacked(env, kind=float),
    "_constrain_range_for_size": _constrain_range_for_size,
}
for _name, _value in FOR_FAKE_TENSORS.items():
    extends(ShapeEnv, _name)(_value)
evaluate_known, add_plain_node = ShapeEnv.evaluate_sym_node, OutputGraph.add_node
run_plain_fake = OutputGraph.run_fake
compute_symbolic = Codegen.symbolic


@extends(ShapeEnv)
class UnbackedEnv(ShapeEnv):
    def value_now(self, expr: sympy.Expr) -> Any:
        value = self.size_hint(expr)
        if value is not None:
            return value
        for told in ASKED:
            told(self, expr)
        rows = [self.table[symbol] for symbol in sorted(expr.free_symbols, key=str)]
        unknown = [row for row in rows if row.hint is None]
        origin = ", ".join(f"{row.name} ({row.created_by} at {row.line})" for row in unknown)
        text = python_code(expr)
        if expr.is_Relational or expr.is_Boolean:
            raise DataDependentDecision(f"whether {text} holds depends on {origin}")
        raise DataDependentDecision(f"the number {text} is needed, which depends on {origin}")

    def evaluate_sym_node(
        self, node: SymNode, size_oblivious: bool = False, fallback_value: Any = None
    ) -> Any:
        if fallback_value is not None and node.hint is None and self.prove(node.expr) is None:
            return fallback_value
        return evaluate_known(self, node)


def guard_or(default: bool) -> Callable[..., bool]:
    """The method of a SymNode: what holds for all sizes, if that is known; else what holds in this
    run, with a guard; where that is not known either, `default`."""

    def guard(node: SymNode, file: str = "", line: int = 0) -> bool:
        env = node.shape_env
        known = env.prove(node.expr)
        if known is not None:
            return known
        return default if env.size_hint(node.expr) is None else node.guard_bool()

    return guard


extends(SymNode, "guard_or_true")(guard_or(True))
extends(SymNode, "guard_or_false", "guard_size_oblivious")(guard_or(False))


@extends(OutputGraph)
class UnbackedGraph(OutputGraph):
    def run_fake(self, op: str, target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        cast(RunningEnv, self.shape_env).running = target
        return run_plain_fake(self, op, target, args, kwargs)

    def add_node(self, tx: Any, *operation: Any) -> torch.fx.Node:
        node = add_plain_node(self, tx, *operation)
        result = operation[-1]
        if self.policy.unbacked and result is not None:
            before = set(noted(self, Unbacked))
            add_unbacked(self, tx, node, result)
            for told in MADE:
                told(self, tx, node, set(noted(self, Unbacked)) - before)
        return node


@extends(Codegen)
class UnbackedNumbers(Codegen):
    def symbolic(self, expr: sympy.Expr) -> None:
        """Also a number that the graph gives."""
        unbacked = noted(self.output, Unbacked)
        if expr in unbacked:
            self.load_graph_output(unbacked[expr])
        else:
            compute_symbolic(self, expr)


@contextlib.contextmanager
def fakes_with_symbols(output: OutputGraph) -> Iterator[None]:
    """Fake tensors ask the ShapeEnv for symbols, where the policy allows them."""
    if output.policy.unbacked:
        output.fake_mode.shape_env = cast(Any, output.shape_env)
        output.fake_mode.cache_enabled = False
    yield


hooks.TRACING.append(fakes_with_symbols)
hooks.WAYS_ON.append(capture_after_all)
