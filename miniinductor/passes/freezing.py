"""Freezing: what depends on parameters alone is computed once, not in every call.

In:   a functional inference graph; the names of tensors that it writes itself.  Out: the same
      graph, its frozen values constants now, and
`Frozen`, which computes them again when a parameter has changed.

    s = rsqrt(var + eps) * g
    packed = mkldnn._reorder_linear_weight(w)       (written by cpu_library.py)
        freeze: s and packed are constants

Off by default (`config.freezing`), as in PyTorch.  PyTorch's frozen model ignores later changes of
its parameters.  Ours looks in every call at each parameter's version and address: in-place writes
(an optimizer's step, load_state_dict, `p.add_()`) and `p.data = new` are noticed, and the constants
made again.  What changes memory behind torch's back is not: `p.data.add_()`, a NumPy array that
shares memory.

Mirrors torch/_inductor/freezing.py and constant_folding.py.  Left out: dropping the original
parameters; folding the arithmetic behind a convolution into its weights.
"""

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from ..autograd.functionalize import Graph, is_needed, is_view
from ..autograd.tracer import no_autocast
from ..foreign import ThreadState
from ..graph_passes import LAYOUTS, Context, graph_pass
from ..records import CompileRecord
from .common_subexpressions import reaches_output_by_views
from .layout import value_of


class Constants:
    """`node in constants`: does it depend on parameters and buffers alone?"""

    def __init__(self, gm, written):
        self.gm, self.written, self.known = gm, {name for _, name in written}, {}

    def __contains__(self, node):
        if node not in self.known:
            self.known[node] = self.is_constant(node)
        return self.known[node]

    def is_constant(self, node) -> bool:
        if node.op == "get_attr":
            is_inference = operator.attrgetter(node.target)(self.gm).is_inference()
            return node.target not in self.written and not is_inference
        if node.op != "call_function" or is_needed(node):
            return False
        return bool(node.all_input_nodes) and all(n in self for n in node.all_input_nodes)


@graph_pass(LAYOUTS, "what depends on parameters alone", order=10, switch="freezing")
def find_constants(gm: fx.GraphModule, context: Context) -> fx.GraphModule:
    if context.inference and is_on_cpu(gm):
        context.constants = Constants(gm, context.written)
    return gm


@graph_pass(LAYOUTS, "frozen constants", order=40, switch="freezing")
def freeze_constants(gm: fx.GraphModule, context: Context) -> fx.GraphModule:
    if isinstance(context.constants, Constants):
        context.frozen = freeze(gm, context.constants, context.record)
    return gm


def is_on_cpu(gm: fx.GraphModule) -> bool:
    return all(t.device.type == "cpu" for t in [*gm.parameters(), *gm.buffers()])


# ---- constants -----------------------------------------------------------------------------------
class Frozen:
    """The part of a graph that makes its constants, and what they were made from."""

    def __init__(self, part, names, watched):
        self.part, self.names, self.watched, self.state = part, names, watched, None

    def values(self) -> dict[str, torch.Tensor]:
        """{name: tensor}, from the parameters as they are now."""
        with torch.no_grad(), no_autocast():
            return dict(zip(self.names, self.part()))

    def seen(self) -> list[tuple[int, int]]:
        return [(t._version, t.data_ptr()) for t in self.watched]

    def guarded(self, run: Any) -> Callable:
        """`run`, a wrapper whose globals hold the constants; they are made again after a parameter
        changed."""

        def checked(*inputs):
            seen = self.seen()
            if seen != self.state:
                run.__globals__.update(ThreadState().around(self.values))
                self.state = seen  # not before: making the constants may be cut short
            return run(*inputs)

        return checked


def freeze(gm: fx.GraphModule, constants: Constants, record: CompileRecord) -> Frozen | None:
    """Put constants in place of what only depends on parameters: Frozen, or None."""
    kept = [
        node for node in gm.graph.nodes if node in constants and is_worth_keeping(node, constants)
    ]
    if not kept:
        return None
    part, copies = Graph(), {}
    for node in gm.graph.nodes:
        if node in constants:
            copies[node] = part.node_copy(node, copies.get)
    part.output([copies[n] for n in kept])
    part.eliminate_dead_code()
    sources = list(dict.fromkeys(n.target for n in part.nodes if n.op == "get_attr"))
    names = [f"_frozen{i}" for i in range(len(kept))]
    watched = [operator.attrgetter(name)(gm) for name in sources]
    frozen = Frozen(fx.GraphModule(gm, part, "Constants"), names, watched)
    seen = frozen.seen()
    for node, (name, value) in zip(kept, frozen.values().items()):
        gm.register_buffer(name, value)
        with gm.graph.inserting_before(node):
            constant = gm.graph.get_attr(name)
        constant.meta = dict(node.meta)
        node.replace_all_uses_with(constant)
    frozen.state = seen
    gm.graph.eliminate_dead_code(is_impure_node=is_needed)
    record.notes.append(
        f"freezing: {len(kept)} tensors computed once, from {len(sources)} parameters and buffers; "
        "again when one of those changes"
    )
    return frozen


def is_worth_keeping(node, constants) -> bool:
    """Is it computed, and read by what is no constant?  (A parameter seen through views is not
    frozen, it is read as it is.)"""
    if value_of(node) is None or all(user in constants for user in node.users):
        return False
    root = node
    while root.op == "call_function" and is_view(root.target):
        root = root.args[0]
    return root.op != "get_attr" and not reaches_output_by_views(node)
