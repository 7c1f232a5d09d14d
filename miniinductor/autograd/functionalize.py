"""Functionalization: a graph with in-place writes and views -> an equal graph without any write.

In:   an ATen graph.  Out: the same values from pure ops; writes to inputs come back as extra
      outputs.

    y = clone(x)                            y = clone(x)
    v = slice(y, 0, 1, 3)          ->       v = slice(y, 0, 1, 3)
    add_(v, 1)                              v1 = add(v, 1)
    return y                                y1 = slice_scatter(y, v1, 0, 1, 3)
                                            return y1

    >>> functional, written = functionalize(gm)         # of this program
    >>> [node.name for node in functional.graph.nodes]
    ['arg0', 'clone_default', 'slice_tensor', 'add_tensor', 'slice_scatter_default', 'output']

The recorded graph is a straight line, so aliasing is fully known: a view shares the storage of its
first argument, all else is fresh.  No value of the functional graph is negated or conjugated lazily
(`LAZY_VIEWS`): kernels read memory as it is.  Each storage has a root node and a version; a write
is pushed through the inverse of each view down to the root; a view that is older than its root is
replayed when it is read.

How a write through a view reaches what was viewed (`INVERSES`):

    x[:3].add_(1)                        ->   x1 = slice_scatter(x, x[:3] + 1, 0, 0, 3)
    x.t().add_(1)                        ->   x1 = t(add(t(x), 1))
    a, b = x.split(2);  b.mul_(3)        ->   x1 = slice_scatter(x, b * 3, 0, 2, 4)

Mirrors aten/src/ATen/FunctionalTensorWrapper.cpp and torch/_functorch/_aot_autograd (paper section
3.10). Left out: writes to one of two *inputs* that share storage (`compile_fx` runs such calls
eagerly).
"""

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher

# torch.fx prints the Python of such a module only when it is first called, and few graphs are
from torch.fx._lazy_graph_module import _LazyGraphModule as graph_module

from ..errors import CannotFunctionalize, blaming
from ..ir.loops import contiguous_strides, same_layout
from ..sizes.symbols import same, same_sizes, sizes
from .fake_mode import Op, is_random, only_checks, written_arguments

aten = torch.ops.aten
Node: TypeAlias = Any  # an fx.Node, of whose arguments its own types know too little


class Graph(fx.Graph):
    """A graph whose nodes have sizes among their arguments, which print as Python over the first
    placeholders.  torch.fx warns of that where nodes are made, so they get their arguments later: a
    program that turns warnings into errors must not see one."""

    def create_node(
        self, op: Any, target: Any, args: Any = None, kwargs: Any = None, *names: Any, **more: Any
    ) -> Node:
        node = super().create_node(op, target, None, None, *names, **more)
        node.args, node.kwargs = args or (), kwargs or {}
        return node

    def python_code(self, *arguments: Any, **options: Any) -> Any:
        code = super().python_code(*arguments, **options)
        code.globals["math"] = math  # sizes may be computed: `math.floor(1.5*s0)`
        return code


def with_graph(gm: fx.GraphModule, graph: fx.Graph) -> fx.GraphModule:
    """`gm` with another graph in place of its own."""
    made = graph_module(gm, graph, "FunctionalGraph")
    made.meta.update(gm.meta)
    return made


MAY_BE_VIEWS = {aten.reshape.default, aten._unsafe_view.default}
# in-place ops whose functional form has another name
RENAMED: dict[Any, Any] = {
    aten.bernoulli_.float: aten.bernoulli.p,
    aten.normal_.default: aten.normal_functional.default,
    aten.zero_.default: aten.zeros_like.default,
    aten._native_batch_norm_legit.default: aten._native_batch_norm_legit_functional.default,
}


def functional_form(op: Any) -> tuple[Any, list[str]]:
    """aten.add_.Tensor -> aten.add.Tensor, aten.add.out -> aten.add.Tensor; and the names of the
    written arguments."""
    written = [*written_arguments(op).values()]
    if op in RENAMED:
        return RENAMED[op], written
    wanted = [(a.name, str(a.type)) for a in op._schema.arguments if not a.is_out]
    packet = getattr(aten, op._schema.name.split("::")[1].rstrip("_"), None)
    for name in packet.overloads() if packet else ():
        schema = getattr(packet, name)._schema
        given = [(a.name, str(a.type)) for a in schema.arguments]
        if given == wanted and not schema.is_mutable:
            return getattr(packet, name), written
    raise CannotFunctionalize(f"no functional form of {op}")


@functools.cache
def functional_of(func: Op) -> Op | None:
    """aten.silu_ -> aten.silu, for ops that write their first argument and return it; else None."""
    schema = func._schema
    if func.namespace != "aten" or not schema.name.endswith("_") or len(schema.returns) != 1:
        return None
    if torch.Tag.inplace_view in func.tags:
        return None
    try:
        functional, written = functional_form(func)
    except CannotFunctionalize:
        return None
    return functional if written == [schema.arguments[0].name] else None


def is_needed(node: Node) -> bool:
    """Must this node stay, though nobody reads it?

    Random ops advance the generator, so later draws depend on them; asserts raise."""
    return node.op in ("placeholder", "output") or is_random(node.target) or only_checks(node)


def is_view(op: Any) -> bool:
    """Does the op return a view of an argument?"""
    schema = getattr(op, "_schema", None)
    if schema is None or schema.is_mutable:
        return False
    return any(argument.alias_info for argument in schema.arguments)


def of_tensors(tree: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """An op's arguments, perhaps nested, with change(t) in place of each tensor t."""
    return fx.node.map_aggregate(
        tree, lambda leaf: change(leaf) if isinstance(leaf, torch.Tensor) else leaf
    )


@functools.cache
def is_composite(func: Op) -> bool:
    """Does ATen define `func` purely in terms of other ops (CompositeImplicitAutograd)?"""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return (
        func.namespace != "prim"  # which has no kernels
        and has(func.name(), "CompositeImplicitAutograd")
        and not has(func.name(), "CPU")
    )


def add_node(
    graph: fx.Graph,
    like: Node,
    target: Any,
    args: Sequence[Any],
    kwargs: dict[str, Any] | None = None,
) -> Node:
    """A new call in `graph`, with its fake value and the origin of node `like`."""
    node = graph.call_function(target, tuple(args), kwargs)
    fake_args, fake_kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
    node.meta.update(like.meta, val=target(*fake_args, **fake_kwargs))
    return node


class Functionalizer:
    """One pass over the old graph, whose nodes are the keys of these dictionaries.

    value: the node of the new graph that holds what the old node holds now.
    root: the old node that owns the memory: for v = x.t()[0] it is x, for x itself x.
    version: of a root, how often its memory was written so far.
    stamp: the version of the root that `value` shows.  Where it is not the last, `read` makes the
      view again.
    """

    def __init__(self, graph: fx.Graph) -> None:
        self.old, self.new = graph, Graph()
        self.value: dict[Node, Node] = {}
        self.root: dict[Node, Node] = {}
        self.stamp: dict[Node, int] = {}
        self.version: dict[Node, int] = {}
        self.written_inputs: list[Node] = []

    def emit(
        self, like: Node, target: Any, args: Sequence[Any], kwargs: dict[str, Any] | None = None
    ) -> Node:
        return add_node(self.new, like, target, args, kwargs)

    def own(self, node: Node, value: Node) -> None:
        """`node` owns its memory, in which nothing was written so far."""
        self.value[node] = value
        self.root[node] = node
        self.version[node] = self.stamp[node] = 0

    def read(self, node: Node) -> Node:
        """The new node that holds what `node` holds now."""
        root = self.root[node]
        if self.stamp[node] != self.version[root]:
            args, kwargs = self.arguments(node)
            target = LAZY_VIEWS.get(node.target, node.target)
            self.value[node] = self.emit(node, target, args, kwargs)
            self.stamp[node] = self.version[root]
        return self.value[node]

    def arguments(self, node: Node) -> tuple[tuple, dict[str, Any]]:
        """(args, kwargs) of the node as they are now."""
        args, kwargs = fx.map_arg((node.args, node.kwargs), self.read)
        if node.target in COUNTS_PLACES:
            check_memory(node, args)
        return args, kwargs

    def write(self, node: Node, value: Node) -> None:
        """`node`, perhaps a view, holds `value` from here on, and so does its part of the root.

        Of x.t()[0] first t's new value is made, then that of x."""
        root, viewed, whole = self.root[node], node, value
        while viewed is not root:
            inverse = INVERSES.get(viewed.target)
            if inverse is None:
                raise CannotFunctionalize(f"write through {viewed.target}")
            viewed, whole = inverse(self, node, viewed, whole)
        whole = self.in_layout_of(root, whole)
        self.version[root] += 1
        for holder, held in ((node, value), (root, whole)):  # perhaps one, which holds `whole`
            self.value[holder], self.stamp[holder] = held, self.version[root]
        if root.op == "placeholder" and root.target.startswith("tangent"):
            raise CannotFunctionalize("a backward writes into the gradient that it is given")
        if root.op in ("placeholder", "get_attr") and root not in self.written_inputs:
            self.written_inputs.append(root)

    def in_layout_of(self, node: Node, value: Node) -> Node:
        """`value` in the strides that `node` has: what a write leaves lies where it lay.  (The
        functional form of index_copy_ gives a contiguous tensor, whatever it is given.)  Of a
        tensor with holes only the order of its strides is kept."""
        given, before = value.meta["val"], node.meta["val"]
        wanted = torch.empty_like(before)
        shape, strides = sizes(before.shape), given.stride()
        if any(same_layout(shape, t.stride(), strides) for t in (before, wanted)):
            return value
        layout = list(wanted.shape), list(wanted.stride())
        place = {"dtype": wanted.dtype, "device": wanted.device}
        memory = self.emit(node, aten.empty_strided.default, layout, place)
        return self.emit(node, aten.copy.default, (memory, value))

    def run(self) -> fx.Graph:
        for node in list(self.old.nodes):
            with blaming(lambda: node.meta):
                self.take(node)
        self.new.eliminate_dead_code(is_needed)
        return self.new

    def take(self, node: Node) -> None:
        if node.op in ("placeholder", "get_attr"):
            self.own(node, self.new.node_copy(node))
        elif node.op == "output":
            outputs = fx.map_arg(node.args[0], self.read)
            self.new.output((outputs, [self.read(n) for n in self.written_inputs]))
        else:
            self.call(node)

    def call(self, node: Node) -> None:
        schema = getattr(node.target, "_schema", None)
        if schema is not None and schema.is_mutable:
            return self.call_in_place(node, schema)
        args, kwargs = self.arguments(node)
        if node.target in LAZY_VIEWS:
            value = self.emit(node, LAZY_VIEWS[node.target], args)
        elif all(self.value[a].meta["val"] is a.meta["val"] for a in node.all_input_nodes):
            # nothing that it reads has changed: neither does its fake value
            value = self.new.call_function(node.target, args, kwargs)
            value.meta.update(node.meta)
        else:
            value = self.emit(node, node.target, args, kwargs)
        self.own(node, value)
        if self.shares_memory(node):  # or it is a view, whose memory another owns
            self.root[node] = self.root[node.args[0]]
            self.stamp[node] = self.version[self.root[node]]

    def shares_memory(self, node: Node) -> bool:
        """Is the node's value a view of its first argument?"""
        source = node.args[0] if node.args else None
        if not isinstance(source, fx.Node):
            return False
        if node.target is operator.getitem:  # of a split; other results are tensors of their own
            return self.root.get(source) is not source
        return is_view(node.target) or node.target in MAY_BE_VIEWS

    def call_in_place(self, node: Node, schema: Any) -> None:
        """The functional form of a call that writes, and what it writes."""
        target, written = functional_form(node.target)
        given = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
        given |= dict(zip([a.name for a in schema.arguments], node.args)) | node.kwargs
        victims = [given[name] for name in written]
        if any(isinstance(victim, (list, tuple)) for victim in victims):
            raise CannotFunctionalize(f"{node.target} writes to lists of tensors")
        result = self.emit(node, target, *self.arguments_of(target, given))
        self.keep_written(node, victims, result)

    def keep_written(self, node: Node, victims: list[Node], result: Node) -> None:
        """Write the last results of the functional form to the tensors that the call wrote."""
        value = result.meta["val"]
        results = [result]
        if not isinstance(value, torch.Tensor):
            results = [self.emit(node, operator.getitem, (result, i)) for i in range(len(value))]
        for victim, new in zip(victims, results[-len(victims) :]):
            self.write(victim, self.as_victim(node, victim, new))
        if isinstance(node.meta["val"], tuple) and node.meta["val"]:
            self.own(node, result)  # its own results are read by getitem
        elif len(victims) == 1:  # what the call returns is the tensor that it has written
            # (in the old graph, of which later nodes are still to come)
            node.replace_all_uses_with(victims[0])

    def arguments_of(self, target: Any, given: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """(args, kwargs) of the functional form.  given: name -> argument of the call that
        writes."""
        wanted = [a for a in target._schema.arguments if a.name in given]
        args = [given[a.name] for a in wanted if not a.kwarg_only]
        options = [a.name for a in wanted if a.kwarg_only and given[a.name] is not None]
        kwargs = {name: given[name] for name in options}
        return fx.map_arg((tuple(args), kwargs), self.read)

    def as_victim(self, node: Node, victim: Node, new: Node) -> Node:
        """The new value in the dtype and the strides of `victim`, which is written."""
        have, want = new.meta["val"], victim.meta["val"]
        if not torch.can_cast(have.dtype, want.dtype):
            raise CannotFunctionalize(f"{node.target} of {have.dtype} into {want.dtype}")
        if have.dtype != want.dtype:
            new = self.emit(node, aten._to_copy.default, (new,), {"dtype": want.dtype})
        if not same_sizes(have.shape, want.shape):
            raise CannotFunctionalize(f"{node.target} resizes its out= tensor")
        return self.in_layout_of(victim, new)


def functionalize(gm: fx.GraphModule) -> tuple[fx.GraphModule, list[tuple[str, str]]]:
    """(functional GraphModule whose output is (outputs, [new values of written inputs]), names of
    written inputs)."""
    functionalizer = Functionalizer(gm.graph)
    # C++ shape functions would ask for numbers
    with gm.meta["fake_mode"], torch.no_grad(), enable_python_dispatcher():
        graph = functionalizer.run()
    return with_graph(gm, graph), [(n.op, n.target) for n in functionalizer.written_inputs]


# --- writes through views -------------------------------------------------------------------------
# How a write through a view reaches the tensor that was viewed: (functionalizer, the node that is
# written, a view on its way, the view's new value) -> (the view's source, the source's new value).
Inverse: TypeAlias = Callable[["Functionalizer", Node, Node, Node], tuple[Node, Node]]
INVERSES: dict[Any, Inverse] = {}
# views that only set a bit, which kernels do not see: the ops that compute their values
LAZY_VIEWS = {
    aten._neg_view.default: aten.neg.default,
    aten._conj.default: aten._conj_physical.default,
}
# what counts places from the start of a tensor's memory, wherever in it the tensor begins
COUNTS_PLACES = {
    aten.as_strided.default,
    aten.as_strided_copy.default,
    aten.as_strided_scatter.default,
}


def inverts(*ops: Any) -> Callable[[Inverse], Inverse]:
    """Decorator: this function pushes writes through views that these ops make."""

    def register(inverse: Inverse) -> Inverse:
        INVERSES.update(dict.fromkeys(ops, inverse))
        return inverse

    return register


@inverts(
    aten.view.default,
    aten.reshape.default,
    aten._unsafe_view.default,
    aten.unsqueeze.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
)
def reshaped(made: "Functionalizer", like: Node, view: Node, value: Node) -> tuple:
    source = view.args[0]
    return source, made.emit(like, aten.reshape.default, (value, list(source.meta["val"].shape)))


# views that select: the inverse scatters into the old value
SCATTERS = {
    aten.slice.Tensor: aten.slice_scatter.default,
    aten.select.int: aten.select_scatter.default,
    aten.diagonal.default: aten.diagonal_scatter.default,
}


@inverts(*SCATTERS)
def selected(made: "Functionalizer", like: Node, view: Node, value: Node) -> tuple:
    source, *rest = view.args
    arguments = (made.read(source), value, *rest)
    return source, made.emit(like, SCATTERS[view.target], arguments, view.kwargs)


@inverts(aten.t.default, aten.transpose.int, *LAZY_VIEWS)
def its_own_inverse(made: "Functionalizer", like: Node, view: Node, value: Node) -> tuple:
    source, *rest = view.args
    target = LAZY_VIEWS.get(view.target, view.target)
    return source, made.emit(like, target, (value, *rest))


@inverts(aten.permute.default)
def permuted(made: "Functionalizer", like: Node, view: Node, value: Node) -> tuple:
    source, dims = view.args
    order = sorted(range(len(dims)), key=lambda i: dims[i] % len(dims))
    return source, made.emit(like, aten.permute.default, (value, order))


# --- pieces of a split ----------------------------------------------------------------------------
PIECES = {aten.split.Tensor, aten.split_with_sizes.default, aten.unbind.int}


@inverts(operator.getitem)
def written_piece(made: "Functionalizer", like: Node, piece: Node, value: Node) -> tuple:
    """A write to one output of split or unbind: (the tensor that was split, its new value)."""
    call, index = piece.args
    source = call.args[0]
    if call.target not in PIECES:
        raise CannotFunctionalize(f"write to an output of {call.target}")
    is_unbind = call.target is aten.unbind.int
    place = 1 if is_unbind else 2
    dim = call.args[place] if len(call.args) > place else call.kwargs.get("dim", 0)
    target, where = aten.select_scatter.default, [index]
    if not is_unbind:
        lengths = [p.shape[dim] for p in call.meta["val"]]
        start = sum(lengths[:index])
        target, where = aten.slice_scatter.default, [start, start + lengths[index]]
    return source, made.emit(piece, target, (made.read(source), value, dim, *where))


@inverts(aten.as_strided.default)
def written_places(made: "Functionalizer", like: Node, view: Node, value: Node) -> tuple:
    """A write through as_strided: refused, unless the view has all elements in their order, as
    pooling makes it."""
    source, size, stride, *offset = view.args
    whole = source.meta["val"]
    start = offset[0] if offset and offset[0] is not None else whole.storage_offset()
    is_all = start == whole.storage_offset() and math.prod(size) == whole.numel()
    if not (is_all and whole.is_contiguous() and same_sizes(stride, contiguous_strides(size))):
        raise CannotFunctionalize("write through as_strided to a part, or in another order")
    return reshaped(made, like, view, value)


def check_memory(node: Node, args: tuple) -> None:
    """Raise CannotFunctionalize if this op, of `COUNTS_PLACES`, is given a tensor that was written,
    and whose new value begins elsewhere in its memory, or lies there in other strides."""
    before, now = node.args[0].meta["val"], args[0].meta["val"]
    if now is not before and not same_sizes(places(before), places(now)):
        raise CannotFunctionalize(f"{node.target} of a tensor that was written")


def places(tensor: torch.Tensor) -> tuple:
    """Strides, offset and bytes: where a tensor's elements lie in its memory."""
    return *tensor.stride(), tensor.storage_offset(), tensor.untyped_storage().nbytes()


def is_as_before(
    source: torch.Tensor, size: Sequence[Any], stride: Sequence[Any], offset: Any = None
) -> bool:
    """Does as_strided() give the same elements at the same places?  (Pooling of channels-last
    images changes the strides of sizes of 1.)"""
    at_start = offset is None or same(offset, source.storage_offset())
    return (
        at_start
        and same_sizes(source.shape, size)
        and same_layout(sizes(size), sizes(stride), sizes(source.stride()))
    )
