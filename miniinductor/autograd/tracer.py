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
import functools
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

from .. import coverage
from ..exceptions import CannotTrace, DataDependent
from ..fake_mode import FakeMode
from ..hooks import extended
from .functionalize import Graph, Node, graph_module

aten = torch.ops.aten
Op: TypeAlias = torch._ops.OpOverload
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
        self._node_of: dict[int, fx.Node] = {}
        self._fake_of: dict[int, FakeTensor] = {}
        self._alive: list[Any] = []  # what is in `_node_of`: the id of a dead tensor is used again

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
            self.bind(tensor, node)
            fake = self.to_fake(tensor)
            node.meta["val"] = fake
            self.bind(fake, node)
        return node

    def node_of(self, tensor: torch.Tensor) -> fx.Node:
        node = self._node_of.get(id(tensor))
        if node is None:
            if isinstance(tensor, FakeTensor):
                raise RuntimeError(f"a fake tensor that this trace did not make: {tensor}")
            node = self.constant(tensor)
        return node

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
        """The recorded graph, with the real tensors that it refers to."""
        gm = graph_module(self.constants, self.graph, name)
        gm.meta["fake_mode"] = self.fake_mode
        return gm

    # --- the loop ---------------------------------------------------------------------------------
    def __torch_dispatch__(self, func: Op, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.prim.device.default and isinstance(args[0], FakeTensor):
            return args[0].fake_device  # autograd asks for this all the time
        if func in SAME_VALUE:
            return self.same_value(func, args[0])
        # on also where a call of the program is taken apart by C++ alone: shapes are Python's
        with torch._C._EnablePythonDispatcher():
            return self.traced(func, args, kwargs)

    def traced(self, func: Op, args: tuple, kwargs: dict[str, Any]) -> Any:
        decomposition = self.decomposition_of(func, args, kwargs)
        if decomposition is not None:
            out = self.taken_apart(decomposition, func, args, kwargs)
            if out is not NotImplemented:
                return out
        elif is_composite(func):  # autograd takes it apart, but is not asked in inference mode
            with self:
                return func.decompose(*args, **kwargs)
        return self.record(func, args, kwargs)

    def same_value(self, func: Op, tensor: torch.Tensor) -> torch.Tensor:
        """For `detach` and `alias`: another tensor object, since the program may compare objects or
        write to one of them, with the node of the first."""
        with self.fake_mode:
            out = func(self.to_fake(tensor))
        self.bind(out, self.node_of(tensor))
        return out

    def taken_apart(
        self, decomposition: Callable, func: Op, args: tuple, kwargs: dict[str, Any]
    ) -> Any:
        """What the op gives, computed by simpler ops, which come here in turn.  NotImplemented: for
        these arguments it is to be recorded as it is."""
        with self:
            return decomposition(*args, **kwargs)

    def decomposition_of(
        self, func: Op | None, args: tuple, kwargs: dict[str, Any]
    ) -> Callable | None:
        """How the op is taken apart, or None."""
        return self.decompositions.get(func)

    def fake_result(self, func: Op, args: tuple, kwargs: dict[str, Any]) -> Any:
        """What the op gives for fake tensors, in the strides that eager's kernel gives it."""
        try:
            with self.fake_mode:
                fake_args, fake_kwargs = of_tensors((args, kwargs), self.to_fake)
                return func(*fake_args, **fake_kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException) as e:
            raise DataDependent(f"{func} needs the data of a tensor") from e

    def record(self, func: Op, args: tuple, kwargs: dict[str, Any]) -> Any:
        """A node for the op as it is; returns its fake result."""
        out = self.fake_result(func, args, kwargs)
        made = [leaf for leaf in pytree.tree_leaves(out) if isinstance(leaf, torch.Tensor)]
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


class OriginInterpreter(fx.Interpreter):
    """Runs the captured graph under a tracer, so that each ATen node knows from which FX node and
    line of the user it came."""

    def __init__(self, gm: fx.GraphModule, tracer: Tracer) -> None:
        super().__init__(gm)
        self.extra_traceback = False  # what is raised keeps its own words
        self.tracer = tracer

    def run_node(self, node: fx.Node) -> Any:
        # (what the front end has written down of each node)
        kept = ("source_line", "stack_trace", "user_stack", "module_path", "checkpointed")
        self.tracer.meta = {key: node.meta[key] for key in kept if key in node.meta}
        self.tracer.meta["origins"] = frozenset([node.name])
        return super().run_node(node)

    def begin_backward(self) -> None:
        """What is recorded from here on belongs to the backward half.  (more/backward_lines.py: and
        to the line whose gradient it is.)"""
        self.tracer.meta = {"backward": True}

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if hasattr(target, "ended_by"):  # so the front end marks what enters a mode
            raise CannotTrace("the program enters a mode")
        if target is getattr and args[1] == "data":
            raise CannotTrace("writes to `.data` are not counted as writes to the tensor")
        return super().call_function(target, args, kwargs)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        tensor = self.fetch_attr(target)
        if not isinstance(tensor, torch.Tensor):
            return tensor
        self.tracer.constant(tensor, target)
        return self.tracer.to_fake(tensor)


def new_tracer(decompositions: Decompositions | None) -> Tracer:
    """A tracer; coverage is loaded first, which may have extended it."""
    coverage.load()
    fake_mode = FakeMode(allow_non_fake_inputs=True, static_shapes=True)
    return extended(Tracer)(fake_mode, decompositions)


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
