"""A small pattern matcher: find what one Python function computes, put what another one computes in
its place.

In:   a functional ATen graph and `Rewrite`s.  Out: the same graph, rewritten in place; what was
      rewritten, and how often.

    def search(x, weight, bias):            # as a user may have written it
        return torch.tanh(torch.addmm(bias, x, weight.t()))

    def replace(x, weight, bias):           # the same values, faster
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "tanh", [], "")

    rewrite = Rewrite("linear + tanh", search, replace, examples=[[(4, 8), (16, 8), (16,)]],
    needs=[aten.addmm.default], at=lambda node: node.target is aten.tanh.default)
    apply([rewrite], gm, record, decompositions)        # {'linear + tanh': 2}

A match is found in two steps, and the second is the proof:

1. `search` is traced by our own tracer on example tensors, and its graph is laid over the graph at
   every node that could be its
    output.  Sizes (any int) are not compared.  This tells which nodes would be x, weight and bias.
2. `search` is traced again on *those* nodes' fake tensors, with the numbers found.  What comes out
   must be the graph that is there,
    int for int: this program, applied to these tensors, is exactly what the graph computes.

Both steps look through what changes no value (`source`: clones; reshapes by any name are one),
accept x + y for y + x, and -1 for the last dimension.  No value inside a match may be used outside
of it.  A float among `examples` is a parameter, too (a scale).

Mirrors torch/_inductor/pattern_matcher.py (`register_replacement`).  Left out: patterns with
several outputs, patterns that are not functions, wildcards for operators; graphs with symbolic
sizes (comparing those would add guards).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode

from ..autograd.functionalize import is_needed
from ..autograd.tracer import Tracer, no_autocast
from ..foreign import ours
from ..graph_passes import optimize
from ..records import CompileRecord
from .common_subexpressions import serves_too
from .layout import TRANSPOSITIONS, origin_of, value_of

aten = torch.ops.aten
RESHAPES = {aten.view.default, aten._unsafe_view.default, aten.reshape.default}
COMMUTE = {aten.add.Tensor, aten.mul.Tensor}
CHANGES_NOTHING = {aten.clone.default, aten._to_copy.default, aten.expand.default, *RESHAPES}


@dataclass
class Rewrite:
    """One rule.  examples: argument lists, a shape for a tensor, a float for a number; one for
    every way to trace `search` (2-D, 3-D). needs: ops without which a graph cannot contain it.
    when(*values): may it be applied to these fake tensors and numbers?
    at(node): may its result be this node's?  Asked before anything is traced, so it is cheap."""

    name: str
    search: Callable
    replace: Callable
    examples: list
    needs: list
    when: Callable = lambda *values: True
    at: Callable[[fx.Node], bool] = lambda node: True
    patterns: list["Pattern"] = field(default_factory=list)  # the examples, traced when needed


def apply(
    rewrites: Sequence[Rewrite], gm: fx.GraphModule, record: CompileRecord, decompositions: Any
) -> dict[str, int]:
    """Apply each rewrite wherever it matches; {name: how often}, which also goes into
    `record.notes`."""
    values = [value_of(node) for node in gm.graph.nodes]
    if any(type(n) is not int for value in values if value is not None for n in value.shape):
        return {}
    targets = {node.target for node in gm.graph.nodes}
    rewriter, counts = Rewriter(gm, decompositions), Counter()
    for rewrite in rewrites:
        if targets.issuperset(rewrite.needs):
            calls = [node for node in gm.graph.nodes if node.op == "call_function"]
            count = sum(rewriter.rewrite_at(rewrite, node) for node in calls)
            counts.update({rewrite.name: count} if count else {})
            gm.graph.eliminate_dead_code(is_impure_node=is_needed)
    if counts:
        optimize(gm)
    record.notes += [f"pattern {name}: rewritten {count} times" for name, count in counts.items()]
    return counts


# ---- tracing -------------------------------------------------------------------------------------
@dataclass
class Pattern:
    graph: fx.Graph
    arguments: list  # fake tensors and numbers, as the function was given them

    def __post_init__(self) -> None:
        self.result = self.graph.output_node().args[0]
        self.position = {f"arg{i}": i for i in range(len(self.arguments))}
        self.numbers = {v: i for i, v in enumerate(self.arguments) if isinstance(v, float)}


def traced(function: Callable, values: Sequence[Any], decompositions: Any, mode: Any) -> Pattern:
    """The pattern of function(*values): fake tensors become placeholders, in order; numbers
    stay."""
    tracer, arguments = Tracer(mode, decompositions), []
    with torch.no_grad(), no_autocast(), enable_python_dispatcher(), mode:
        for i, v in enumerate(values):
            if isinstance(v, torch.Tensor):
                v = torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device=v.device)
                tracer.placeholder(f"arg{i}", v)
            arguments.append(v)
        with tracer:
            result = function(*arguments)
    tracer.graph.output(tracer.node_of(result))
    optimize(tracer.module("Pattern"))
    return Pattern(tracer.graph, arguments)


# ---- matching ------------------------------------------------------------------------------------
class Rewriter:
    """Finds and replaces in one graph.  traces: what was traced for it before; twelve layers alike
    need one proof."""

    def __init__(self, gm, decompositions):
        self.gm, self.decompositions, self.traces = gm, decompositions, {}

    def traced(self, function: Callable, values: Sequence[Any]) -> Pattern:
        key = (function, *map(about, values))
        if key not in self.traces:
            mode = self.gm.meta["fake_mode"]
            self.traces[key] = traced(function, values, self.decompositions, mode)
        return self.traces[key]

    def rewrite_at(self, rewrite, node) -> bool:
        """Rewrite the match whose output is `node`, if there is one."""
        if not node.users or not rewrite.at(node):
            return False
        for example in rewrite.examples[len(rewrite.patterns) :]:
            values = [torch.empty(e) if isinstance(e, tuple) else e for e in example]
            mode = FakeTensorMode(static_shapes=True)
            rewrite.patterns.append(traced(rewrite.search, values, self.decompositions, mode))
        return any(self.match(rewrite, pattern, node) for pattern in rewrite.patterns)

    def match(self, rewrite, pattern, node) -> bool:
        guess = Matcher(pattern, exact=False)
        if not guess.same(pattern.result, node) or len(guess.bound) < len(pattern.arguments):
            return False
        found = [guess.bound[i] for i in range(len(pattern.arguments))]
        values = [f.meta["val"] if isinstance(f, fx.Node) else f for f in found]
        if not rewrite.when(*values):
            return False
        try:
            proof, new = self.traced(rewrite.search, values), self.traced(rewrite.replace, values)
        except ours(RuntimeError, ValueError):  # these shapes do not go together
            return False
        exact = Matcher(proof, exact=True)
        exact.bound = {i: f for i, f in enumerate(found) if isinstance(f, float)}
        if not exact.same(proof.result, node):
            return False
        if any(exact.bound.get(i) is not f for i, f in enumerate(found)):
            return False
        inside = {node, *exact.met.values()}
        between = [n for n in inside - {node, source(node)} if n.target not in CHANGES_NOTHING]
        if any(leaks(n, inside) for n in between):
            return False  # somebody else needs a value in between
        have, want = new.result.meta["val"], node.meta["val"]
        if (have.shape, have.dtype) != (want.shape, want.dtype):
            return False
        serves_too(node, inside)
        self.replace(node, new, found)
        return True

    def replace(self, node: Any, new: Pattern, found: Sequence[Any]) -> None:
        """The graph of `new`, on the nodes `found`, in place of `node`; copied into the strides
        that `node` had, if they are others and matter."""
        copies, origin, graph = {}, origin_of(node), self.gm.graph
        with graph.inserting_before(node):
            for n in new.graph.nodes:
                if n.op == "placeholder":
                    copies[n] = found[new.position[n.target]]
                elif n.op == "call_function":
                    copies[n] = graph.node_copy(n, copies.__getitem__)
                    copies[n].meta = {**origin, "val": n.meta["val"]}
            result = copies[new.result]
            for user in list(node.users):
                if user.target in TRANSPOSITIONS and all(map(makes_contiguous, user.users)):
                    user.replace_input_with(node, result)
                    with self.gm.meta["fake_mode"]:
                        user.meta["val"] = user.target(result.meta["val"], *user.args[1:])
            if result.meta["val"].stride() != node.meta["val"].stride():
                result = graph.call_function(aten.clone.default, (result,))
                result.meta = {**origin, "val": node.meta["val"]}
        node.replace_all_uses_with(result)


def makes_contiguous(node) -> bool:
    is_clone = node.target is aten.clone.default
    return is_clone and node.kwargs.get("memory_format") is torch.contiguous_format


class Matcher:
    """Lays a pattern's graph over another; bound: argument -> node or number, met: pattern node ->
    node."""

    def __init__(self, pattern, exact):
        self.pattern, self.exact, self.bound, self.met = pattern, exact, {}, {}

    def same(self, p, n) -> bool:
        """Does pattern value `p` stand for graph value `n`?"""
        if isinstance(p, fx.Node):
            if not isinstance(n, fx.Node):
                return False
            return self.same_node(source(p, self.exact), source(n, self.exact))
        if isinstance(p, (list, tuple)):
            if not isinstance(n, (list, tuple)):
                return False
            is_sizes = not self.exact and not any(isinstance(x, fx.Node) for x in p)
            return (len(p) == len(n) or is_sizes) and all(map(self.same, p, n))
        if not self.exact and isinstance(p, float) and p in self.pattern.numbers:
            if isinstance(n, (int, float)):
                return self.bind(self.pattern.numbers[p], float(n))
        if type(p) is int and not self.exact:
            return type(n) is int
        return (type(p) is type(n) or {type(p), type(n)} == {int, float}) and p == n

    def bind(self, position, value) -> bool:
        known = self.bound.setdefault(position, value)
        return known is value or isinstance(value, float) and known == value

    def same_node(self, p, n) -> bool:
        if p.op == "placeholder":
            return self.bind(self.pattern.position[p.target], n)
        if p in self.met:
            return self.met[p] is n
        if p.op != "call_function" or n.op != "call_function" or kind_of(p) != kind_of(n):
            return False
        if len(p.args) != len(n.args) or self.exact and about_value(p) != about_value(n):
            return False
        cast = p.target is aten._to_copy.default  # to the same type, however that is written
        if not cast and p.kwargs.keys() != n.kwargs.keys():
            return False
        for args in [n.args] if p.target not in COMMUTE else [n.args, n.args[1::-1]]:
            before = dict(self.bound), dict(self.met)
            self.met[p] = n
            pairs = list(zip(from_front(p, p.args), from_front(n, args)))
            pairs += [] if cast else [(p.kwargs[k], n.kwargs[k]) for k in p.kwargs]
            if all(self.same(a, b) for a, b in pairs):
                return True
            self.bound, self.met = before
        return False


def source(node, exact=True) -> fx.Node:
    """What `node` is a copy of: clones, reshapes to the same shape, casts to the same type (if not
    `exact`, to any type)."""
    while node.op == "call_function" and node.target in CHANGES_NOTHING:
        is_cast = not exact and node.target is aten._to_copy.default
        if not is_cast and about_value(node) != about_value(node.args[0]):
            break
        node = node.args[0]
    return node


def without_copies(node) -> fx.Node:
    """The node that computes what `node` copies, casts or reshapes."""
    while node.target in CHANGES_NOTHING:
        node = node.args[0]
    return node


def about(value: Any) -> Any:
    """A tensor as it is traced; a number is itself."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.shape, value.stride(), value.dtype, value.device


def about_value(node: fx.Node) -> tuple | None:
    value = value_of(node)
    return None if value is None else (value.shape, value.dtype, value.device)


def kind_of(node: fx.Node) -> Any:
    return aten.view.default if node.target in RESHAPES else node.target


def from_front(node: fx.Node, args: Sequence[Any]) -> Sequence[Any]:
    """softmax(x, 3) is softmax(x, -1): of an op that has a `dim`, dimensions count from the
    front."""
    schema = getattr(node.target, "_schema", None)
    names = [argument.name for argument in schema.arguments] if schema else []
    value = value_of(node.args[0]) if "dim" in names else None
    if value is None or not value.dim():
        return args

    def wrap(d):
        if isinstance(d, (list, tuple)):
            return [x % value.dim() for x in d]
        return d % value.dim() if type(d) is int else d

    return [wrap(a) if name == "dim" else a for name, a in zip(names, args)]


def leaks(node, inside) -> bool:
    """Is the value of `node`, or a copy or reshape of it, used by a node that is not `inside`?"""
    return any(
        user not in inside and (user.target not in CHANGES_NOTHING or leaks(user, inside))
        for user in node.users
    )
