"""Freezing: what depends on parameters alone is computed once, not in every call.

In:   a functional inference graph; the names of tensors that it writes itself.  Out: the same
      graph, its frozen values constants now, and
`Frozen`, which computes them again when a parameter has changed.

    y = convolution(x, w); z = (y - mean) * rsqrt(var + eps) * g + b
        fold_affine: ->  convolution(x, w * s, t), where s = rsqrt(var + eps) * g
                         and t = b - mean * s
    packed = mkldnn._reorder_linear_weight(w)       (written by cpu_library.py)
    s, t, w * s, packed
        freeze: ->  constants

Off by default (`config.freezing`), as in PyTorch.  PyTorch's frozen model ignores later changes of
its parameters.  Ours looks in every call at each parameter's version and address: in-place writes
(an optimizer's step, load_state_dict, `p.add_()`) and `p.data = new` are noticed, and the constants
made again.  What changes memory behind torch's back is not: `p.data.add_()`, a NumPy array that
shares memory.

Mirrors torch/_inductor/freezing.py, constant_folding.py and fx_passes/binary_folding.py.  Left out:
dropping the original parameters.
"""

import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx

from ..autograd.functionalize import Graph, add_node, is_needed, is_view
from ..autograd.tracer import no_autocast
from ..foreign import ThreadState
from ..graph_passes import LAYOUTS, Context, graph_pass
from ..records import CompileRecord
from .common_subexpressions import reaches_output_by_views
from .layout import aten, value_of

AFFINE = {aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor}


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


@graph_pass(LAYOUTS, "arithmetic into frozen weights", order=10, switch="freezing")
def fold_frozen(gm: fx.GraphModule, context: Context) -> fx.GraphModule:
    if context.inference and is_on_cpu(gm):
        context.constants = Constants(gm, context.written)
        fold_affine(gm, context.constants, context.record)
    return gm


@graph_pass(LAYOUTS, "frozen constants", order=40, switch="freezing")
def freeze_constants(gm: fx.GraphModule, context: Context) -> fx.GraphModule:
    if isinstance(context.constants, Constants):
        context.frozen = freeze(gm, context.constants, context.record)
    return gm


def is_on_cpu(gm: fx.GraphModule) -> bool:
    return all(t.device.type == "cpu" for t in [*gm.parameters(), *gm.buffers()])


# ---- folding arithmetic into a convolution's weights ---------------------------------------------
def fold_affine(gm: fx.GraphModule, constants: Constants, record: CompileRecord) -> None:
    """Sums and products with one constant per channel, behind a convolution with constant weights,
    become part of the weights."""
    count = 0
    for node in list(gm.graph.nodes):
        if node.target is not aten.convolution.default or node.args[6]:
            continue
        weights = [n for n in node.args[1:3] if n is not None]
        chain = list(affine_chain(node, constants))
        is_float = node.meta["val"].dtype in (torch.float32, torch.float64)
        if is_float and chain and all(n in constants for n in weights):
            fold(gm, node, chain)
            count += 1
    if count:
        gm.graph.eliminate_dead_code(is_impure_node=is_needed)
        record.notes.append(
            f"freezing: the arithmetic behind {count} convolutions folded into their weights"
        )


def affine_chain(node: Any, constants: Constants) -> Iterator[tuple[Any, Any]]:
    """(op node, its constant operand) behind `node`, as long as each value has one user."""
    while len(node.users) == 1:
        user = next(iter(node.users))
        if user.target not in AFFINE or user.kwargs or len(user.args) != 2:
            return
        a, b = user.args
        other = b if a is node else a
        is_swapped = a is not node and user.target in (aten.sub.Tensor, aten.div.Tensor)
        if is_swapped or not isinstance(other, fx.Node) or other not in constants:
            return
        if value_of(user).dtype != value_of(node).dtype or not is_per_channel(other, node):
            return
        yield user, other
        node = user


def is_per_channel(constant, node) -> bool:
    """Has it one element for each channel of `node`?"""
    shape, (_, channels, *image) = list(value_of(constant).shape), value_of(node).shape
    wanted = [channels] + [1] * len(image)
    return shape in (wanted, [1, *wanted])


def fold(gm: fx.GraphModule, node: Any, chain: list[tuple[Any, Any]]) -> None:
    last, (x, w, bias, *rest) = chain[-1][0], node.args

    def call(target, *args):
        return add_node(gm.graph, last, target, args)

    # before the last, every constant of the chain is known
    with gm.graph.inserting_before(last), gm.meta["fake_mode"]:
        channels = value_of(w).shape[0]
        scale, shift = None, bias
        for op, other in chain:
            other = call(aten.reshape.default, other, [channels])
            if op.target in (aten.mul.Tensor, aten.div.Tensor):
                scale = scale or call(aten.ones_like.default, other)
                scale = call(op.target, scale, other)
                shift = shift and call(op.target, shift, other)
            else:
                shift = shift or call(aten.zeros_like.default, other)
                shift = call(op.target, shift, other)
        if scale is not None:
            column = [channels] + [1] * (value_of(w).dim() - 1)
            w = call(aten.mul.Tensor, w, call(aten.reshape.default, scale, column))
        new = call(aten.convolution.default, x, w, shift, *rest)
        new.meta["val"] = last.meta["val"]
    last.replace_all_uses_with(new)


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
