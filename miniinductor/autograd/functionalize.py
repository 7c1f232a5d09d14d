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

Mirrors aten/src/ATen/FunctionalTensorWrapper.cpp and torch/_functorch/_aot_autograd (paper section
3.10). Left out: writes to one of two *inputs* that share storage (`compile_fx` runs such calls
eagerly).
"""

import math
import operator

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch.fx._lazy_graph_module import (
    _LazyGraphModule as graph_module,
)  # its Python is written when somebody calls it: few are

from ..checks import may_raise
from ..exceptions import CannotFunctionalize
from ..fake_mode import EAGER
from ..sizes.symbols import same, same_sizes

aten = torch.ops.aten


def with_graph(gm, graph, name="FunctionalGraph"):
    """`gm` with another graph in place of its own."""
    made = graph_module(gm, graph, name)
    made.meta.update(gm.meta)
    return made


def _inverse(dims):
    order = [0] * len(dims)
    for i, d in enumerate(dims):
        order[d % len(dims)] = i
    return order


RESHAPES = (
    aten.view.default,
    aten.reshape.default,
    aten._unsafe_view.default,
    aten.unsqueeze.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
)
SAME_ELEMENTS = {  # views that only rearrange: the inverse is again a view
    **dict.fromkeys(
        RESHAPES, lambda value, source, args: (aten.reshape.default, (value, list(source.shape)))
    ),
    aten.t.default: lambda value, source, args: (aten.t.default, (value,)),
    aten.transpose.int: lambda value, source, args: (aten.transpose.int, (value, *args[1:])),
    aten.permute.default: lambda value, source, args: (
        aten.permute.default,
        (value, _inverse(args[1])),
    ),
}
PART_OF = {  # views that select: the inverse scatters into the old value
    aten.slice.Tensor: aten.slice_scatter.default,
    aten.select.int: aten.select_scatter.default,
    aten.diagonal.default: aten.diagonal_scatter.default,
}
# views that only set a bit, which kernels do not see: the ops that compute their values
LAZY_VIEWS = {
    aten._neg_view.default: aten.neg.default,
    aten._conj.default: aten._conj_physical.default,
}
SAME_ELEMENTS.update(
    {
        lazy: lambda value, source, args, compute=compute: (compute, (value,))
        for lazy, compute in LAZY_VIEWS.items()  # each is its own inverse
    }
)
# what counts places from the start of a tensor's memory, wherever in it the tensor begins
COUNTS_PLACES = {
    aten.as_strided.default,
    aten.as_strided_copy.default,
    aten.as_strided_scatter.default,
}
PIECES = {aten.split.Tensor, aten.split_with_sizes.default, aten.unbind.int}
RENAMED = {  # in-place ops whose functional form has another name
    aten.bernoulli_.float: aten.bernoulli.p,
    aten.normal_.default: aten.normal_functional.default,
    aten.zero_.default: aten.zeros_like.default,
    aten._native_batch_norm_legit.default: aten._native_batch_norm_legit_functional.default,
}


def same_layout(a, b):
    """Do two tensors of one shape lie in memory alike?"""
    return all(
        same(s, t) or same(n, 1) for n, s, t in zip(a.shape, a.stride(), b.stride(), strict=True)
    )


def functional_form(op):
    """aten.add_.Tensor -> aten.add.Tensor, aten.add.out -> aten.add.Tensor; and the names of the
    written arguments."""
    written = [a.name for a in op._schema.arguments if a.alias_info and a.alias_info.is_write]
    if op in RENAMED:
        return RENAMED[op], written
    wanted = [(a.name, str(a.type)) for a in op._schema.arguments if not a.is_out]
    packet = getattr(aten, op._schema.name.split("::")[1].rstrip("_"), None)
    for name in packet.overloads() if packet else ():
        candidate = getattr(packet, name)
        if (
            not candidate._schema.is_mutable
            and [(a.name, str(a.type)) for a in candidate._schema.arguments] == wanted
        ):
            return candidate, written
    raise CannotFunctionalize(f"no functional form of {op}")


def is_needed(node):
    """Must this node stay, though nobody reads it?

    Random ops advance the generator, so later draws depend on them; others may raise."""
    return (
        node.op in ("placeholder", "output")
        or torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        or may_raise(node)
    )


def is_refused(node):
    """Would eager refuse this call, which nobody reads, for its dtypes?  It then stays to raise."""
    if node.users or not isinstance(node.target, torch._ops.OpOverload):
        return False
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
    node.meta["refused"] = bool(EAGER.refusal(node.target, args, kwargs))
    return node.meta["refused"]


def is_view(op):
    """Does the op return a view of an argument?"""
    schema = getattr(op, "_schema", None)
    return (
        schema is not None and not schema.is_mutable and any(a.alias_info for a in schema.arguments)
    )


def add_node(graph, like, target, args, kwargs=None):
    """A new call in `graph`, with its fake value and the origin of node `like`."""
    node = graph.call_function(target, tuple(args), kwargs or {})
    fake_args, fake_kwargs = fx.map_arg((tuple(args), kwargs or {}), lambda n: n.meta["val"])
    node.meta.update(like.meta, val=target(*fake_args, **fake_kwargs))
    return node


def output_of(graph):
    return next(node for node in reversed(graph.nodes) if node.op == "output")


class Functionalizer:
    """One pass over the old graph; `value[old]` is the new node that holds what `old` holds now."""

    def __init__(self, graph):
        self.old, self.new = graph, fx.Graph()
        self.value, self.root, self.stamp, self.version = {}, {}, {}, {}
        self.written_inputs, self.results = [], []

    def emit(self, like, target, args, kwargs=None):
        return add_node(self.new, like, target, args, kwargs)

    def own(self, node, value):
        self.value[node], self.root[node], self.version[node], self.stamp[node] = value, node, 0, 0

    def read(self, node):
        root = self.root[node]
        if self.stamp[node] != self.version[root]:
            args, kwargs = self.arguments(node)
            target = LAZY_VIEWS.get(node.target, node.target)
            self.value[node] = self.emit(node, target, args, kwargs)
            self.stamp[node] = self.version[root]
        return self.value[node]

    def arguments(self, node):
        """(args, kwargs) of the node as they are now."""
        args, kwargs = fx.map_arg((node.args, node.kwargs), self.read)
        if node.target in COUNTS_PLACES:
            return self.in_its_memory(node, args, kwargs)
        return args, kwargs

    def in_its_memory(self, node, args, kwargs):
        """Arguments of as_strided, which counts strides and offset of its own.  The tensor that
        stands for a written one may begin elsewhere in its memory, or lie there in other
        strides."""
        names = [argument.name for argument in node.target._schema.arguments]
        written = (dict(zip(names, node.args)) | node.kwargs)["self"]
        given = dict(zip(names, args)) | kwargs
        before, now = written.meta["val"], given["self"].meta["val"]
        if now is before:
            return args, kwargs
        if not same_sizes(before.stride(), now.stride()):
            raise CannotFunctionalize(
                "as_strided of a written tensor whose new value lies otherwise"
            )
        offset = given.get("storage_offset")
        if offset is not None:
            offset += now.storage_offset() - before.storage_offset()
            if not (isinstance(offset, int) and offset >= 0):
                raise CannotFunctionalize("as_strided begins before the tensor that it is given")
            given["storage_offset"] = offset
        return tuple(given[name] for name in names if name in given), {}

    def write(self, node, value):
        """The storage behind `node` (perhaps a view) now holds `value` there."""
        root, at, whole = self.root[node], node, value
        while at is not root:
            source = at.args[0]
            if at.target is operator.getitem:
                source, whole = self._scatter_piece(at, whole)
            elif at.target in SAME_ELEMENTS:
                whole = self.emit(
                    node, *SAME_ELEMENTS[at.target](whole, source.meta["val"], at.args)
                )
            elif at.target is aten.as_strided.default:
                whole = self._scatter_strided(node, source, whole, *at.args[1:])
            elif at.target in PART_OF:
                whole = self.emit(
                    node, PART_OF[at.target], (self.read(source), whole, *at.args[1:]), at.kwargs
                )
            else:
                raise CannotFunctionalize(f"write through {at.target}")
            at = source
        whole = self.in_layout_of(root, whole)
        self.value[root] = whole
        self.version[root] += 1
        self.stamp[root] = self.version[root]
        self.value[node], self.stamp[node] = (
            value if node is not root else whole,
            self.version[root],
        )
        if root.op in ("placeholder", "get_attr") and root not in self.written_inputs:
            self.written_inputs.append(root)

    def in_layout_of(self, node, value):
        """`value` in the strides that `node` has: what a write leaves lies where it lay.  (The
        functional form of index_copy_ gives a contiguous tensor, whatever it is given.)  Of a
        tensor with holes only the order of its strides is kept."""
        wanted, given = node.meta["val"], value.meta["val"]
        if same_layout(wanted, given):
            return value
        wanted = torch.empty_like(wanted)
        if same_layout(wanted, given):
            return value
        return self.copied_into(node, wanted, value)

    def copied_into(self, node, wanted, value):
        """`value` in new memory with the strides of the tensor `wanted`."""
        place = {"dtype": wanted.dtype, "device": wanted.device}
        memory = self.emit(
            node, aten.empty_strided.default, (list(wanted.shape), list(wanted.stride())), place
        )
        return self.emit(node, aten.copy.default, (memory, value))

    def _scatter_piece(self, piece, value):
        """A write to one output of split or unbind: (the tensor that was split, its new value)."""
        call, index = piece.args
        source = call.args[0]
        if call.target not in PIECES:
            raise CannotFunctionalize(f"write to an output of {call.target}")
        if call.target is aten.unbind.int:
            dim = call.args[1] if len(call.args) > 1 else call.kwargs.get("dim", 0)
            return source, self.emit(
                piece, aten.select_scatter.default, (self.read(source), value, dim, index)
            )
        dim = call.args[2] if len(call.args) > 2 else call.kwargs.get("dim", 0)
        sizes = [p.shape[dim] for p in call.meta["val"]]
        start = sum(sizes[:index])
        return source, self.emit(
            piece,
            aten.slice_scatter.default,
            (self.read(source), value, dim, start, start + sizes[index]),
        )

    def _scatter_strided(self, like, source, value, size, stride, offset=None):
        """`source` with `value` at the places that as_strided(size, stride, offset) reads.
        (aten.as_strided_scatter counts the offset from the start of the storage, which several
        buffers of generated code share.)"""
        whole = source.meta["val"]
        start = (whole.storage_offset() if offset is None else offset) - whole.storage_offset()
        if not whole.is_contiguous() or start < 0:
            raise CannotFunctionalize("write through as_strided of a tensor that is not contiguous")
        if (
            start == 0
            and math.prod(size) == whole.numel()
            and list(stride) == [math.prod(size[k + 1 :]) for k in range(len(size))]
        ):
            return self.emit(like, aten.reshape.default, (value, list(whole.shape)))
        place = {"device": whole.device}
        at = self.emit(like, aten.full.default, ([1], start), {"dtype": torch.int64, **place})
        for n, step in zip(size, stride):  # the position of each element, dimension by dimension
            steps = self.emit(
                like, aten.mul.Tensor, (self.emit(like, aten.arange.default, (n,), place), step)
            )
            at = self.emit(
                like,
                aten.reshape.default,
                (
                    self.emit(
                        like,
                        aten.add.Tensor,
                        (self.emit(like, aten.unsqueeze.default, (at, 1)), steps),
                    ),
                    [-1],
                ),
            )
        flat = self.emit(like, aten.reshape.default, (self.read(source), [-1]))
        new = self.emit(
            like,
            aten.index_put.default,
            (flat, [at], self.emit(like, aten.reshape.default, (value, [-1]))),
        )
        new.meta["in_range"] = True  # the places are those of a view
        return self.emit(like, aten.reshape.default, (new, list(whole.shape)))

    def result(self, node):
        """What `node` holds when the program has ended.  A tensor that was written has the strides
        that it had before, also where no element's place depends on them: in dimensions of size 1,
        and without elements."""
        value, wanted = self.read(node), node.meta["val"]
        if not isinstance(wanted, torch.Tensor) or node.op != "call_function":
            return value
        shared = sum(self.root.get(n) is self.root[node] for n in self.results) > 1
        if not self.version[self.root[node]] or self.root[node] is not node or shared:
            return value
        if same_sizes(wanted.stride(), value.meta["val"].stride()):
            return value
        return self.copied_into(node, wanted, value)

    def run(self):
        self.results = output_of(self.old).all_input_nodes
        for node in list(self.old.nodes):
            if node.op in ("placeholder", "get_attr"):
                self.own(node, self.new.node_copy(node))
            elif node.op == "output":
                outputs = fx.map_arg(node.args[0], self.result)
                self.new.output((outputs, [self.read(n) for n in self.written_inputs]))
            else:
                self.call(node)
        self.new.eliminate_dead_code(is_impure_node=lambda n: is_needed(n) or is_refused(n))
        return self.new

    def call(self, node):
        schema = getattr(node.target, "_schema", None)
        if schema is not None and schema.is_mutable:
            return self.call_in_place(node, schema)
        args, kwargs = self.arguments(node)
        if node.target in LAZY_VIEWS:
            value = self.emit(node, LAZY_VIEWS[node.target], args)
        elif all(self.value[a].meta["val"] is a.meta["val"] for a in node.all_input_nodes):
            value = self.new.call_function(node.target, args, kwargs)  # nothing above it changed
            value.meta.update(node.meta)
        else:
            value = self.emit(node, node.target, args, kwargs)
        self.own(node, value)
        source = node.args[0] if node.args and isinstance(node.args[0], fx.Node) else None
        if source is not None and (
            is_view(node.target)
            or node.target in (aten.reshape.default, aten._unsafe_view.default)
            or node.target is operator.getitem
            and self.root.get(source) is not source
        ):
            self.root[node] = self.root[source]
            self.stamp[node] = self.version[self.root[source]]

    def call_in_place(self, node, schema):
        target, written = functional_form(node.target)
        given = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
        given.update(zip([a.name for a in schema.arguments], node.args))
        given.update(node.kwargs)
        victims = [given[name] for name in written]
        if any(isinstance(victim, (list, tuple)) for victim in victims):
            raise CannotFunctionalize(f"{node.target} writes to lists of tensors")
        wanted = [a for a in target._schema.arguments if a.name in given]
        args = [given[a.name] for a in wanted if not a.kwarg_only]
        kwargs = {
            a.name: given[a.name] for a in wanted if a.kwarg_only and given[a.name] is not None
        }
        if target is aten.zeros_like.default:
            args = args[:1]
        args, kwargs = fx.map_arg((args, kwargs), self.read)
        result = self.emit(node, target, args, kwargs)
        results = [result]
        if len(victims) > 1 or isinstance(result.meta["val"], (tuple, list)):
            results = [
                self.emit(node, operator.getitem, (result, i))
                for i in range(len(result.meta["val"]))
            ]
            results = results[-len(victims) :]
        for victim, new in zip(victims, results):
            have, want = new.meta["val"], victim.meta["val"]
            if not torch.can_cast(have.dtype, want.dtype):
                raise CannotFunctionalize(f"{node.target} of {have.dtype} into {want.dtype}")
            if have.dtype != want.dtype:
                new = self.emit(node, aten._to_copy.default, (new,), {"dtype": want.dtype})
            if not same_sizes(have.shape, want.shape):
                raise CannotFunctionalize(f"{node.target} resizes its out= tensor")
            self.write(victim, self.in_layout_of(victim, new))
        if isinstance(node.meta["val"], tuple) and node.meta["val"]:
            self.own(
                node, result
            )  # batch norm: its statistics are written, its results are read by getitem
        elif len(victims) == 1:  # the node's own value is its victim
            node.replace_all_uses_with(victims[0])


def functionalize(gm):
    """(functional GraphModule whose output is (outputs, [new values of written inputs]), names of
    written inputs)."""
    functionalizer = Functionalizer(gm.graph)
    with (
        gm.meta["fake_mode"],
        torch.no_grad(),
        enable_python_dispatcher(),
    ):  # C++ shape functions would ask for numbers
        graph = functionalizer.run()
    return with_graph(gm, graph), [(n.op, n.target) for n in functionalizer.written_inputs]
