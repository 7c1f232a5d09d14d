"""ATen tracer: run a function on fake tensors and record every ATen call as an FX node.

In:   a callable over tensors (a captured `fx.GraphModule`).  Out: an `fx.GraphModule` of ATen ops.

    >>> tracer = new_tracer(None)
    >>> [fake] = fake_inputs(tracer.fake_mode, [torch.randn(3, 4)])
    >>> x = tracer.placeholder("x", fake)
    >>> out = run_traced(tracer, torch.nn.Linear(4, 2), [fake])
    >>> print(tracer.graph)         # t, addmm

A `TorchDispatchMode` sits *below* autograd: by the time an op reaches it, composite ops have been
split into ATen ops. Parameters stay `get_attr` nodes; other tensors from outside become constants.
Symbolic sizes (`torch.SymInt`) are computed while tracing: they stand in the recorded arguments,
`view(x, [s0, 64*s1])`, and print as Python over the graph's first placeholders, one per symbol.
Mirrors torch/fx/experimental/proxy_tensor.py (`make_fx`), paper section 3.10.  Left out:
sub-classes of Tensor.
"""

import contextlib
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import torch
import torch.utils._pytree as pytree
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
)
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from ..errors import CannotTrace, DataDependent
from ..ir.loops import same_layout
from ..sizes.symbols import same_sizes, sizes
from .fake_mode import FakeMode, Op, is_row_by_row, let_go, refusal, tensors_in
from .functionalize import (
    Graph,
    Node,
    functional_of,
    graph_module,
    is_composite,
    is_view,
    of_tensors,
)

aten = torch.ops.aten
Decompositions: TypeAlias = Mapping[Any, Callable]
SAME_VALUE = {aten.detach.default, aten.alias.default}
# A tensor that the program holds comes in, such as torch.tensor([1, 2]).  It is recorded as a copy,
# which is fresh in each call.
LIFT = {aten.lift_fresh.default, aten.lift_fresh_copy.default}


@contextlib.contextmanager
def ambient_autocast() -> Iterator[None]:
    """Autocast as it is, without its cache of cast weights: fake casts must not get into it."""
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)


# A traced graph holds the casts; running it must not cast again.  The context is entered by one
# call of C, and left by one, so that no exception of a signal's handler can leave autocast off.
no_autocast = torch._C._DisableAutocast


def without_autocast(function: Callable, *arguments: Any) -> Any:
    """function(*arguments), while autocast is off for this thread."""
    if not torch._C._is_any_autocast_enabled():
        return function(*arguments)
    with no_autocast():
        return function(*arguments)


LARGEST = torch.finfo(torch.float32).max
DTYPES = {complex: torch.complex128, float: torch.float64, int: torch.int64, bool: torch.bool}


def recording_mode() -> str:
    """How autograd treats a view that is made now: "inference", "grad" or "no_grad"."""
    if torch.is_inference_mode_enabled():
        return "inference"
    return "grad" if torch.is_grad_enabled() else "no_grad"


class Tracer(TorchDispatchMode):
    """Records into `self.graph`; `self.meta` is copied onto each new node (origins, user line).
    What later stages make of a node keeps its name, in `meta["traced"]`."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch wraps the handler in torch._dynamo.disable, at a cost per op

    def __init__(self, fake_mode: FakeMode, decompositions: Decompositions | None = None) -> None:
        super().__init__()
        self.fake_mode = fake_mode
        self.decompositions = decompositions or {}
        self.graph = Graph()
        self.constants: dict[str, torch.Tensor] = {}  # attribute name -> real tensor
        self.meta: dict[str, Any] = {}
        self.writes = 0  # how many ops may have written to a tensor
        self._node_of: dict[int, fx.Node] = {}
        self._fake_of: dict[int, FakeTensor] = {}
        self._alive: list[Any] = []  # what is in `_node_of`: the id of a dead tensor is used again
        self.before_record: Callable[[], None] | None = None  # before each op; it may set `meta`
        # id of a tensor that shares memory -> (its source, a step of a view)
        self.made_by: dict[int, tuple[Any, tuple]] = {}

    # --- tensors and their nodes ------------------------------------------------------------------
    def bind(self, tensor: torch.Tensor, node: fx.Node) -> None:
        self._node_of[id(tensor)] = node
        self._alive.append(tensor)
        node.meta.setdefault("val", tensor)

    def placeholder(self, name: str, fake: Any, held: torch.Tensor | None = None) -> fx.Node:
        """A new input.  held: the real tensor for which it stands, if the captured graph holds that
        (a parameter, in a joint graph)."""
        node = self.graph.placeholder(name)
        node.meta["val"] = fake
        if isinstance(fake, torch.Tensor):
            self.bind(fake, node)
        if held is not None:
            self.bind(held, node)
            self._fake_of[id(held)] = fake
        return node

    def constant(self, tensor: torch.Tensor, path: str | None = None) -> fx.Node:
        """The get_attr node of a real tensor, which the captured graph has at `path`.

        `self.h.weight` is `self_h_weight` from here on: no name in generated code begins so."""
        node = self._node_of.get(id(tensor))
        if node is None:
            name = f"_constant{len(self.constants)}"
            if path is not None:
                name = "self_" + path.replace(".", "_")
            while name in self.constants:  # `a.b` and `a_b`
                name += "_"
            self.constants[name] = tensor
            node = self.graph.get_attr(name)
            self.bind(self.to_fake(tensor), node)
            self.bind(tensor, node)
        return node

    def node_of(self, tensor: torch.Tensor) -> fx.Node:
        if id(tensor) not in self._node_of and isinstance(tensor, FakeTensor):
            raise RuntimeError(f"a fake tensor that this trace did not make: {tensor}")
        return self.constant(tensor)

    def nodes_of(self, tree: Any) -> Any:
        return of_tensors(tree, self.node_of)

    def to_fake(self, tensor: torch.Tensor) -> Any:
        if isinstance(tensor, FakeTensor):
            return tensor
        if id(tensor) not in self._fake_of:
            with _disable_current_modes():
                self._fake_of[id(tensor)] = self.fake_mode.from_tensor(tensor, static_shapes=True)
        return self._fake_of[id(tensor)]

    def module(self, name: str) -> fx.GraphModule:
        """The recorded graph, with the real tensors that it refers to.  What it was made of may be
        swapped from now on."""
        let_go(self.fake_mode)
        gm = graph_module(self.constants, self.graph, name)
        gm.meta["fake_mode"] = self.fake_mode
        return gm

    # --- the loop ---------------------------------------------------------------------------------
    def __torch_dispatch__(self, func: Op, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.before_record is not None:
            self.before_record()
        kwargs = kwargs or {}
        if func._schema.is_mutable or func is aten.as_strided.default:
            self.writes += 1
            from .writes import special_write

            out = special_write(self, func, args, kwargs)
            if out is not NotImplemented:
                return out
        if func is torch.ops.prim.device.default and isinstance(args[0], FakeTensor):
            return args[0].fake_device  # autograd asks for this all the time
        if func in SAME_VALUE:
            return self.same_value(func, args[0])
        # so that ops which C++ decomposes also use torch's shape rules in Python
        with torch._C._EnablePythonDispatcher():
            return self.decompose_or_record(func, args, kwargs)

    def decompose_or_record(self, func: Op, args: tuple, kwargs: dict[str, Any]) -> Any:
        decomposition = self.decomposition_of(func, args, kwargs)
        if decomposition is not None:
            out = self.decomposed(decomposition, func, args, kwargs)
            if out is not NotImplemented:
                return out
        elif is_composite(func):  # autograd decomposes it, but is not asked in inference mode
            with self:
                return func.decompose(*args, **kwargs)
        return self.record(func, args, kwargs)

    def same_value(self, func: Op, tensor: torch.Tensor) -> torch.Tensor:
        """For `detach` and `alias`: another tensor object, since the program may compare objects or
        write to one of them, with the node of the first."""
        with self.fake_mode:
            out = func(self.to_fake(tensor))
        self.bind(out, self.node_of(tensor))
        self.share(out, self.to_fake(tensor), func)
        return out

    def decomposition_of(
        self, func: Op | None, args: tuple, kwargs: dict[str, Any]
    ) -> Callable | None:
        """The op's decomposition; None where the op is recorded whole.  That includes calls that
        eager refuses, complex tensors, for which no kernel is generated (eager's `a - b` of
        infinities is NaN, and the difference in `cross(a, b)` is not), and numbers that no tensor
        of the dtype holds, where eager's kernel may take them (nan_to_num makes such a number an
        infinity)."""
        found = self.decompositions.get(func)
        if func is None or found is None or refusal(func, args, kwargs):
            return None
        given = (*args, *kwargs.values())
        is_complex = any(isinstance(x, torch.Tensor) and x.is_complex() for x in given)
        is_beyond = any(type(x) in (int, float) and LARGEST < abs(x) < math.inf for x in given)
        return None if is_complex or is_beyond else found

    def fake_result(self, func: Op, args: tuple, kwargs: dict[str, Any]) -> Any:
        """What the op gives for fake tensors, in the strides that eager's kernel gives it."""
        if func in LIFT:  # given the real tensor, the fake remembers its value
            with self.fake_mode:
                return aten.lift_fresh.default(*args)
        try:
            with self.fake_mode:
                fake_args, fake_kwargs = of_tensors((args, kwargs), self.to_fake)
                return func(*fake_args, **fake_kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException) as e:
            raise DataDependent(f"{func} needs the data of a tensor") from e

    def record(self, func: Op, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Record the op, and note the views that it makes or writes.  Returns its fake result."""
        if is_view(func) and type(args[0]) in DTYPES:  # autograd's `other.conj()` of `x * 2j`
            with self:
                return func(aten.scalar_tensor(args[0], dtype=DTYPES[type(args[0])]), *args[1:])
        out = self.decomposed_write(func, args, kwargs)
        if out is not NotImplemented:
            return out
        out = self.record_node(func, args, kwargs)
        if is_view(func) and func not in LIFT:
            source = self.to_fake(args[0])
            for number, piece in enumerate(out if isinstance(out, (tuple, list)) else ()):
                self.share(piece, out, operator.getitem, (number,))
            if isinstance(out, (torch.Tensor, tuple, list)) and out is not source:
                self.share(out, source, func, args[1:], kwargs)
        return out

    def record_node(self, func: Op, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Add a node for the op.  Returns its fake result."""
        out = self.fake_result(func, args, kwargs)
        made = tensors_in(out)
        if out is not None and not made:
            return out  # it asks for a size, a device, ...: that is answered, and needs no node
        if any(t.layout != torch.strided for t in made):
            raise CannotTrace(f"{func} makes a tensor that is not strided")
        recorded = aten.lift_fresh_copy.default if func in LIFT else func
        node = self.graph.call_function(recorded, *self.nodes_of((tuple(args), dict(kwargs))))
        node.meta.update(self.meta, traced=(node.name,))
        self.bind_output(out, node)
        return out

    def bind_output(self, out: Any, node: Node) -> None:
        """From here on `node`, or an item of it, stands for the tensors in `out`, its result."""
        if isinstance(out, torch.Tensor) and (
            id(out) not in self._node_of
            or node.target is operator.getitem
            or not node.target._schema.is_mutable
        ):
            return self.bind(out, node)
        # Several results; or that of an in-place op, which is its argument: that keeps its node,
        # since functionalize.py follows the write itself.
        node.meta["val"] = out
        for i, item in enumerate(out if isinstance(out, (tuple, list)) else ()):
            if isinstance(item, (torch.Tensor, tuple, list)):
                child = self.graph.call_function(operator.getitem, (node, i))
                child.meta.update(self.meta, traced=(child.name,))
                self.bind_output(item, child)

    # --- views ------------------------------------------------------------------------------------
    def share(self, tensor: Any, source: Any, op: Any, args: Any = (), kwargs: Any = None) -> None:
        """`tensor` is op(source, ...) and shares its memory."""
        step = (op, tuple(args), dict(kwargs or {}), recording_mode())
        self.made_by[id(tensor)] = (source, step)

    def derivation(self, tensor: torch.Tensor) -> tuple[Any, tuple]:
        """(root, steps): the tensor that `tensor` is a view of, and how it was made from that."""
        steps, root = [], tensor
        while id(root) in self.made_by:
            source, step = self.made_by[id(root)]
            # autograd makes a view's tensor of the one that it was given, by a detach of its own
            if step[0] is not aten.detach.default or not root._is_view():
                steps.append(step)
            root = source
        return root, tuple(reversed(steps))

    # --- decompositions ---------------------------------------------------------------------------
    def decomposed_write(self, func: Op, args: tuple, kwargs: dict[str, Any]) -> Any:
        """x.silu_() is x.copy_(silu(x)), and silu has a decomposition."""
        functional = functional_of(func) if func._schema.is_mutable else None
        decomposition = self.decomposition_of(functional, args, kwargs)
        if decomposition is not None:
            with self:
                out = decomposition(*args, **kwargs)
                if out is not NotImplemented and torch.can_cast(out.dtype, args[0].dtype):
                    return args[0].copy_(out)
        return NotImplemented

    def decomposed(
        self, decomposition: Callable, func: Op, args: tuple, kwargs: dict[str, Any]
    ) -> Any:
        """The op's result, computed by simpler ops, each of which the tracer gets in turn; in the
        strides of the op itself where an argument is not contiguous.  NotImplemented: the
        decomposition does not take these arguments, and the op is recorded whole.

        The results are no views of what was made on the way: `torch.stack` is written as a view of
        `cat(...)`; to autograd, eager's is a tensor of its own, and `stack(...).flatten()` is a
        view of that."""
        known = len(self._alive)
        with self:
            out = decomposition(*args, **kwargs)
        if out is NotImplemented:
            return out
        is_alias = any(result.alias_info for result in func._schema.returns)
        inner = {id(tensor) for tensor in self._alive[known:]}
        if not is_alias and not all(map(is_row_by_row, tensors_in(args, *kwargs.values()))):
            wanted = pytree.tree_leaves(self.fake_result(func, args, kwargs))
            leaves, structure = pytree.tree_flatten(out)
            out = pytree.tree_unflatten(map(self.laid_out, leaves, wanted), structure)
        if not is_view(func):
            for leaf in tensors_in(out):
                if id(self.derivation(leaf)[0]) in inner:
                    self.made_by.pop(id(leaf), None)
        return out

    def laid_out(self, have: Any, want: Any) -> Any:
        """A result in the strides of `want`; those of a size of 1 do not count."""
        if not isinstance(have, torch.Tensor) or not same_sizes(have.shape, want.shape):
            return have
        if same_layout(sizes(have.shape), have.stride(), want.stride()):
            return have
        from .writes import order_in_memory

        order = order_in_memory(want)
        back = [order.index(d) for d in range(want.dim())]
        with self:
            return have.permute(order).contiguous().permute(back)


def fake_inputs(fake_mode: FakeMode, values: Sequence[Any]) -> list[Any]:
    """Fake tensors of `fake_mode` like the graph's inputs: real tensors, or (symbolic sizes) fake
    ones and SymInts of whoever captured it."""
    tensors = [id(value) for value in values if isinstance(value, torch.Tensor)]
    if len(set(tensors)) < len(tensors):
        raise CannotTrace("the same tensor stands for two inputs")
    if any(isinstance(value, torch.SymInt) for value in values):
        fake_mode.cache_enabled = False  # its keys are made of torch's own symbols

    def fake(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        with torch.inference_mode(value.is_inference()), torch.no_grad():
            if not isinstance(value, FakeTensor):
                return fake_mode.from_tensor(value.detach(), static_shapes=True)
            with fake_mode:
                return torch.empty_strided(
                    value.shape, value.stride(), dtype=value.dtype, device=value.device
                )

    return [fake(value) for value in values]


def input_name(function: Any, position: int, value: Any, prefix: str) -> str:
    """A placeholder of the traced graph: a size keeps the name of its symbol, which recorded
    arguments print."""
    if isinstance(value, torch.SymInt):
        return function.graph.find_nodes(op="placeholder")[position].target
    return f"{prefix}{position}"


def new_tracer(decompositions: Decompositions | None) -> Tracer:
    """A tracer with a fake mode of its own."""
    fake_mode = FakeMode(allow_non_fake_inputs=True, static_shapes=True)
    return Tracer(fake_mode, decompositions)


def run_traced(tracer: Tracer, function: Callable, arguments: Sequence[Any]) -> Any:
    """function(*arguments), recorded.

    Raises CannotTrace: DataDependent where a size or branch depends on data.  Gradients are
    recorded or not as where it is called: derivatives are the joint trace's matter.
    """
    with (
        torch.set_grad_enabled(torch.is_grad_enabled()),  # as it was, when the program has ended
        ambient_autocast(),
        enable_python_dispatcher(),
        tracer.fake_mode,
        tracer,
    ):
        return function(*arguments)
