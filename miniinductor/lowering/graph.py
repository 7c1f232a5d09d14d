"""Lower a functional ATen graph, node by node.

In:   an `fx.GraphModule` of pure ATen ops whose output is (outputs, new values of written inputs).
      Out: an `ir.Graph`.

    >>> graph = lower_graph(gm, CompileRecord(), written=[])
    >>> [op.name for op in graph.operations]
    ['buf0', 'buf1', 'buf2', 'buf3']

What is stored and what stays inlined is decided here, by `should_realize`.
Mirrors torch/_inductor/graph.py (paper section 4.2).
"""

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import sympy
import torch
import torch.utils._pytree as pytree
from torch import fx

from .. import config
from ..autograd.fake_mode import is_random
from ..autograd.functionalize import is_view
from ..devices import recomputes
from ..errors import CannotLower, blaming
from ..ir.loops import (
    Buffer,
    BufferView,
    ComputedBuffer,
    ConstantBuffer,
    FromNode,
    Graph,
    InputBuffer,
    Layout,
    LibraryConstant,
    Pointwise,
    TensorBox,
    View,
    boxes_in,
    building,
    layouts_of,
)
from ..ir.ops import EXPENSIVE_PRICE, NARROW, OpsHandler, loop_variables, price, set_handler
from ..records import CompileRecord
from ..sizes.expressions import Position, Size, is_indirect
from ..sizes.symbols import SYMBOLIC, has_own_places, same_sizes, size
from .extern import (
    EXTERN,
    calls_to_store,
    check_arguments,
    check_result,
    eager_kernel,
    unknown_numbers,
)
from .registry import LOWERINGS, READ_SEVERAL_TIMES, Call, NotLowered, aten


class LoweringError(Exception):
    """A rule produced something impossible: a bug of ours, named with the op and the user's
    line."""


# An unrealized value is computed again in each of its users.  With several users it is stored
# instead if one element of it takes more reads, or more operations, than these.
MANY_READS = 4
MANY_OPS = EXPENSIVE_PRICE
# On a CPU: op -> its argument is stored where an element takes so many operations.  Resampling
# reads a pixel for many of the result, and scans have no vectors.
SCANS = aten.cumsum.default, aten.cumprod.default, aten.logcumsumexp.default
STORED_FROM: dict[Any, int] = dict.fromkeys(SCANS, EXPENSIVE_PRICE) | {aten._unsafe_index.Tensor: 1}
FEW_READS, MANY_OPS_ON_GPU = 2, 4 * EXPENSIVE_PRICE
HUGE = 192  # operations: stored even with one user, so that no kernel grows without end


class _Cost(OpsHandler):
    """Counts what one element of a value costs.

    A value is True if it depends on memory.  What depends on the index alone is the same for a
    whole row or column: only expensive operations on it are counted.  loops: a read that is the
    same along some of them is not counted, since it comes from a cache.  None on a CPU, which
    rounds to 16 bits in many operations."""

    def __init__(self, loops: set[sympy.Symbol] | None) -> None:
        self.reads = self.operations = 0
        self.loops = loops

    def default(self, op: str, *args: Any, **kwargs: Any) -> bool:
        read, cost_of_one = True in args, price(op)
        if op == "to_dtype" and args[1] in NARROW and self.loops is None:
            cost_of_one = EXPENSIVE_PRICE
        self.operations += cost_of_one if read or cost_of_one > 1 else 0
        return read

    def load(self, name: str, index: sympy.Expr) -> bool:
        self.reads += is_indirect(index) or not self.loops or self.loops <= index.free_symbols
        return True

    def masked(self, mask: bool, body: Callable[[], bool], other: float) -> bool:
        return body() or mask

    def indirect_indexing(self, value: bool, size: Size, wrap_neg: bool = True) -> sympy.Symbol:
        return Position("position", integer=True)


def cost(box: TensorBox) -> tuple[int, int]:
    """(reads, operations) of one element of an unrealized value."""
    sizes = box.get_size()
    index = loop_variables("i", len(sizes))
    several = {i for i, n in zip(index, sizes) if n != 1}
    counter = _Cost(several if recomputes(box.device) else None)
    with set_handler(counter):
        box.make_loader()(index)
    return counter.reads, counter.operations


def should_realize(box: TensorBox, users: int, many_reads: int, many_ops: int) -> bool:
    """Store this value now?  Yes if it is pointwise, and storing it is cheaper than computing it
    in every user."""
    if not isinstance(box.data, Pointwise):
        return False
    if not config.inlining:
        return True
    # too few FX nodes to be huge (they have four operations at most): not counted
    if users <= 1 and len(box.origins) < HUGE // 4:
        return False
    reads, operations = cost(box)
    return operations > HUGE or users > 1 and (reads > many_reads or operations > many_ops)


class GraphLowering(fx.Interpreter):
    """Runs the graph with boxes for tensors."""

    def __init__(
        self, gm: fx.GraphModule, record: CompileRecord, written: Sequence[tuple[str, str]]
    ) -> None:
        super().__init__(gm, garbage_collect_values=False)
        self.extra_traceback = False  # fx adds no text of its own to what a rule raises
        self.lowered, self.record = Graph(), record
        self.written = [target.replace(".", "_") for _, target in written]
        # buffer -> whose memory it is in eager: an input's, a constant's, or a node's (`_maker`)
        self.owners: dict[str, fx.Node | str] = {}
        self.kept = calls_to_store(gm.graph, is_forward(self))

    def settle_base(self, box: TensorBox) -> None:
        """Store the value, or what it is a view of, in eager's strides, if it is not stored yet."""
        base = box.base
        if base.eager is not None and not isinstance(base.data, Buffer):
            base.realize(dense_strides(base))

    def placeholder(self, target: Any, args: Any, kwargs: Any) -> Any:
        node = self.current
        if isinstance(node.meta["val"], torch.SymInt):
            self.lowered.inputs[target] = InputBuffer(target, None, frozenset([node.name]))
            return size(node.meta["val"])
        buffer = InputBuffer(target, Layout.of(node.meta["val"]), frozenset([node.name]))
        self.lowered.inputs[target] = buffer
        return self.given(buffer)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        tensor = self.fetch_attr(target)
        name = target.replace(".", "_")
        self.lowered.constants[name] = tensor
        if tensor.layout is not torch.strided:
            return LibraryConstant(name)
        return self.given(ConstantBuffer(name, Layout.of(tensor), frozenset([self.current.name])))

    def given(self, buffer: Buffer) -> TensorBox:
        """A handle on an input or constant, which is there before the graph runs."""
        self.lowered.buffers[buffer.name] = buffer
        self.owners[buffer.name] = buffer.name
        box = TensorBox(buffer)
        box.eager = layouts_of(self.current.meta["val"])
        return box

    def run_node(self, node: fx.Node) -> Any:
        self.current = node
        before = len(self.lowered.operations)
        with blaming(lambda: node.meta):
            result = super().run_node(node)
        if node.op == "call_function":
            boxes = boxes_in(result)
            self.made_for(node, before, [box.base.data for box in boxes])
            for box in boxes:
                self.finish_value(box, node)
        if node in self.kept:
            self.keep(result, before)
        return result

    def keep(self, result: Any, before: int) -> None:
        """Store all results of a node that may raise, and mark its buffers in `Graph.checks`: their
        kernels run although nobody may read the results."""
        for base in [box.base for box in boxes_in(result)]:
            if isinstance(base.data, Pointwise):
                base.realize(dense_strides(base))
        self.lowered.checks.update(made.name for made in self.lowered.operations[before:])

    def made_for(self, node: fx.Node, before: int, values: Iterable[Any] = ()) -> None:
        """Mark `node` as the origin of these values, and of what was stored since operation number
        `before`."""
        stored = self.lowered.operations[before:]
        for data in [*values, *[b.data for b in stored if isinstance(b, ComputedBuffer)]]:
            body = getattr(data, "inner_fn", None)
            if body and not isinstance(body, FromNode):  # no earlier node has it
                data.inner_fn = FromNode(node.name, body)

    def finish_value(self, box: TensorBox, node: fx.Node) -> None:
        """Store what a rule made of the node now, if that is cheaper."""
        value = layouts_of(node.meta["val"])
        if not isinstance(value, Layout):
            return
        if not same_sizes(box.get_size(), value.size) or box.dtype != value.dtype:
            raise LoweringError(
                f"{node.target} gave {box.dtype} {box.get_size()}, torch says {value.dtype} "
                f"{value.size} ({node.meta.get('source_line', '')})"
            )
        box.eager = value
        if self.is_stored_now(box.base, node):  # what is used through a view is used as often
            self.settle_base(box)

    def is_stored_now(self, base: TensorBox, node: fx.Node) -> bool:
        """Is this value, which the users of `node` read, stored before they are lowered?"""
        uses = len(node.users)  # of a user that reads each element several times, two or three
        uses += sum(user.args.count(node) > 1 for user in node.users)
        uses += sum(user.target in READ_SEVERAL_TIMES for user in node.users)
        if recomputes(base.device) and is_forward(self):
            # in a backward half, kernels that share a value run over different loops
            return should_realize(base, uses, FEW_READS, MANY_OPS_ON_GPU)
        least = min((STORED_FROM.get(user.target, HUGE) for user in node.users), default=HUGE)
        if least < HUGE and not recomputes(base.device):
            reads, operations = cost(base)
            if reads and operations >= least:
                return True
        return should_realize(base, uses, MANY_READS, MANY_OPS)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is operator.getitem:
            return args[0][args[1]]
        args, kwargs = fx.node.map_aggregate((args, kwargs), _as_size)
        call = Call(self.current, self)
        if target in EXTERN or target not in LOWERINGS:
            reason = None if _is_eager_by_choice(target) else "no lowering"
            return eager_kernel(call, args, kwargs, reason)
        try:
            check_arguments(call.node, args, kwargs)
            result = LOWERINGS[target](call, *args, **kwargs)
            check_result(result)
        except NotLowered as reason:
            return eager_kernel(call, args, kwargs, str(reason))
        return result

    # -- results -----------------------------------------------------------------------------------
    def output(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The graph's outputs, and the new values of the inputs that it writes."""
        graph = self.lowered
        nodes: Any = self.current.args[0]
        [(outputs, new_values)] = args
        for box, node in zip(pytree.tree_leaves(outputs), pytree.tree_leaves(nodes[0])):
            before = len(graph.operations)
            is_tensor = isinstance(box, TensorBox)
            graph.outputs.append(self.output_view(box, node) if is_tensor else size(box))
            self.made_for(node, before)
        for name, box, node in zip(self.written, new_values, nodes[1]):
            before = len(graph.operations)
            view = self.new_value(box, graph.buffers.get(name))
            # it may be written before it is read: x, y = y, x
            if view.name in {*graph.inputs, *graph.constants} and len(self.written) > 1:
                view = self.copied(box, None)
            self.made_for(node, before)
            graph.mutations.append((name, view))

    def output_view(self, box: TensorBox, node: fx.Node) -> BufferView:
        """An output in eager's strides.  A value that is not stored yet is stored that way at once.

        Outputs share memory with each other, or with an input, only where eager's do: `x.repeat(1)`
        is a copy in eager, though it is a view here.
        """
        eager = layouts_of(node.meta["val"])
        stride = None  # expanded or overlapping: whatever layout is natural
        if eager.is_dense or not isinstance(box.data, (Pointwise, View)):
            stride = eager.stride
        self.settle_base(box)
        view = box.as_buffer_view(stride)
        maker = _maker(node)
        if self.owners.setdefault(view.name, maker) != maker:  # in eager it is another tensor's
            view = self.copied(box, stride)
        # dimensions of size 1, and empty tensors, have eager's strides, too: programs can ask
        theirs = eager.stride
        if stride is None and 0 not in view.size:
            pairs = zip(view.size, view.stride, theirs)
            theirs = tuple(step if length == 1 else own for length, own, step in pairs)
        return replace(view, stride=theirs)

    def new_value(self, box: TensorBox, target: Buffer | None) -> BufferView:
        """The new value of an input, the `target`, stored as that is if it is not stored yet."""
        layout = None if target is None else target.layout
        is_pointwise = isinstance(box.base.data, Pointwise)
        if layout and is_pointwise and has_own_places(layout.size, layout.stride):
            box = box.copy() if isinstance(box.data, View) else box
            box.realize(tuple(layout.stride))
        return box.as_buffer_view()

    def copied(self, box: TensorBox, stride: Sequence[Size] | None) -> BufferView:
        """The value in memory of its own."""
        if numbers := unknown_numbers(box.dtype):
            reason = "that would share memory with another tensor"
            raise CannotLower(f"an output of {numbers} {reason}")
        box = box.copy()
        box.realize(stride)
        return box.as_buffer_view()


def dense_strides(box: TensorBox) -> tuple | None:
    """Eager's strides of a node's value; None if they leave holes, or if it is no node's."""
    return box.eager.stride if box.eager is not None and box.eager.is_dense else None


def is_forward(lowering: GraphLowering) -> bool:
    """Is this no backward graph?  (The forward part of a joint graph has `results` in its meta.)"""
    meta: Any = lowering.module.meta
    return lowering.record.joint_graph is None or "results" in meta


def _as_size(leaf: Any) -> Any:
    return size(leaf) if isinstance(leaf, SYMBOLIC) else leaf


def _is_eager_by_choice(target: Any) -> bool:
    """Is an eager kernel wanted: for a library's op, a random op (it draws from torch's generator,
    as eager does), or an assertion?"""
    return target in EXTERN or is_random(target) or not target._schema.returns


def lower_graph(
    gm: fx.GraphModule, record: CompileRecord, written: Sequence[tuple[str, str]] = ()
) -> Graph:
    """The loop IR of `gm`; `written` names the inputs (op, target) whose new values stand in the
    second output."""
    lowering = GraphLowering(gm, record, written)
    with building(lowering.lowered):
        lowering.run()
    return lowering.lowered


def _maker(node: Any) -> fx.Node | str:
    """The owner of the memory that a node shows, through views and items of tuples: a node, or the
    name of an input or constant."""
    while node.op == "call_function" and (node.target is operator.getitem or is_view(node.target)):
        node = node.args[0]
    return node if node.op == "call_function" else node.target.replace(".", "_")
