"""ATen tracer: run a function on fake tensors and record every ATen call as an FX node.

In:   a callable over tensors (a captured `fx.GraphModule`).  Out: an `fx.GraphModule` of ATen ops.

    >>> gm = trace(torch.nn.Linear(4, 2), [torch.randn(3, 4)])
    >>> print(gm.graph)         # t, addmm

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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
from ..exceptions import CannotFunctionalize, CannotTrace, DataDependent
from ..fake_mode import EAGER, FakeMode
from ..foreign import together
from ..hooks import CALLS, Op, rules_of
from ..sizes.symbols import hint, same, same_sizes, sizes
from .functionalize import Node, functional_form, graph_module, is_view

aten = torch.ops.aten
Decompositions: TypeAlias = Mapping[Any, Callable]
SAME_VALUE = {aten.detach.default, aten.alias.default}
LIFT = {aten.lift_fresh.default, aten.lift_fresh_copy.default}


@contextlib.contextmanager
def _autocast(**options: Any) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(
                    torch.autocast(device, dtype=torch.get_autocast_dtype(device), **options)
                )
        yield


def ambient_autocast() -> contextlib.AbstractContextManager[None]:
    """Autocast as it is, without its cache of cast weights: fake casts must not get into it."""
    return _autocast(cache_enabled=False)


def no_autocast() -> contextlib.AbstractContextManager[None]:
    """The casts are in the graph; running it must not cast again."""
    return (
        _autocast(enabled=False)
        if torch._C._is_any_autocast_enabled()
        else contextlib.nullcontext()
    )


def recording_mode() -> str:
    """How autograd treats a view that is made now: "inference", "grad" or "no_grad"."""
    if torch.is_inference_mode_enabled():
        return "inference"
    return "grad" if torch.is_grad_enabled() else "no_grad"


def data_of(tensor: torch.Tensor) -> torch.Tensor:
    """The step of a view that `.data` is: no part of autograd's history, writes are not counted."""
    return tensor.data


def without_autocast(function: Callable, *arguments: Any) -> Any:
    """function(*arguments), the same.  It is put back by one call of C, so that no exception of a
    signal's handler leaves it off."""
    if not torch._C._is_any_autocast_enabled():
        return function(*arguments)
    before = {device: torch.is_autocast_enabled(device) for device in ("cpu", "cuda")}
    put_back = together(list, *[(torch.set_autocast_enabled, *one) for one in before.items()])
    try:
        torch.set_autocast_enabled("cpu", False)
        torch.set_autocast_enabled("cuda", False)
        return function(*arguments)
    finally:
        put_back()


class Tracer(TorchDispatchMode):
    """Records into `self.graph`; `self.meta` is copied onto each new node (origins, user line)."""

    @classmethod
    def _should_skip_dynamo(
        cls,
    ) -> bool:  # else torch wraps the handler in torch._dynamo.disable, at a cost per op
        return False

    def __init__(self, fake_mode: FakeMode, decompositions: Decompositions | None = None) -> None:
        super().__init__()
        self.fake_mode = fake_mode
        self.decompositions = decompositions or {}
        self.graph = fx.Graph()
        self.constants: dict[str, torch.Tensor] = {}  # attribute name -> real tensor
        self.meta: dict[str, Any] = {}
        # called before each op: the joint trace sets `meta` of backward ops there
        self.before_record: Callable[[], None] | None = None
        self._node_of: dict[int, fx.Node] = {}
        self._fake_of: dict[int, FakeTensor] = {}
        self._alive: list[Any] = []
        # id of a tensor that shares memory -> (its source, a step of a view)
        self._made_by: dict[int, tuple[Any, tuple]] = {}
        # ids of tensors whose version a write has raised: of a base, not of what it is `.data` of
        self.versions_raised: set[int] = set()
        self.noted: dict[str, Any] = {}  # what rules of coverage keep about this trace

    # --- tensors and their nodes ------------------------------------------------------------------
    def bind(self, tensor: torch.Tensor, node: fx.Node) -> None:
        self._node_of[id(tensor)] = node
        self._alive.append(tensor)  # ids stay unique
        node.meta.setdefault("val", tensor)

    def placeholder(self, name: str, fake: Any) -> fx.Node:
        node = self.graph.placeholder(name)
        node.meta["val"] = fake
        if isinstance(fake, torch.Tensor):
            self.bind(fake, node)
        return node

    def share(
        self, tensor: torch.Tensor, source: Any, op: Any, args: Any = (), kwargs: Any = None
    ) -> None:
        """`tensor` is op(source, ...) and shares its memory."""
        step = (op, tuple(args), dict(kwargs or {}), recording_mode())
        self._made_by[id(tensor)] = (source, step)

    def share_as(self, tensor: torch.Tensor, like: torch.Tensor) -> None:
        """`tensor` has been derived as `like` was."""
        if id(like) in self._made_by:
            self._made_by[id(tensor)] = self._made_by[id(like)]

    def derivation(self, tensor: torch.Tensor, ends: Collection[int] = ()) -> tuple[Any, tuple]:
        """(root, steps): the tensor that `tensor` is a view of, and how it was made from that.

        ends: ids of tensors; the first of them on the way is the root.
        """
        steps, root = [], tensor
        while id(root) in self._made_by and (root is tensor or id(root) not in ends):
            source, step = self._made_by[id(root)]
            # autograd makes a view's tensor of the one that it was given, by a detach of its own
            if step[0] is not aten.detach.default or not root._is_view():
                steps.append(step)
            root = source
        return root, tuple(reversed(steps))

    def note_writes(self, func: Op, args: Any, kwargs: Any) -> None:
        """Writes raise the version of what the tensor is a view of; `.data` has one of its own."""
        for place, argument in enumerate(func._schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            given = args[place] if place < len(args) else kwargs.get(argument.name)
            for tensor in given if isinstance(given, (tuple, list)) else (given,):
                while (
                    id(tensor) in self._made_by and self._made_by[id(tensor)][1][0] is not data_of
                ):
                    tensor = self._made_by[id(tensor)][0]
                self.versions_raised.add(id(tensor))

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
        root = torch.nn.Module()
        for key, tensor in self.constants.items():
            if isinstance(tensor, torch.nn.Parameter):
                root.register_parameter(key, tensor)
            else:
                root.register_buffer(key, tensor)
        gm = graph_module(root, self.graph, name)
        gm.meta["fake_mode"] = self.fake_mode
        return gm

    # --- the loop ---------------------------------------------------------------------------------
    def __torch_dispatch__(self, func: Op, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.before_record is not None:
            self.before_record()
        if func is torch.ops.prim.device.default and isinstance(args[0], FakeTensor):
            return args[0].fake_device  # most of all questions: autograd's
        if refused := EAGER.refusal_of_nothing(func, args, kwargs):
            raise CannotTrace(f"eager refuses: {refused}")
        for asked in rules_of(func):
            out = asked(self, func, args, kwargs)
            if out is not NotImplemented:
                return out
        if func in SAME_VALUE:
            with self.fake_mode:  # another tensor object, the same value: no node
                out = func(self.to_fake(args[0]))
            self.bind(out, self.node_of(args[0]))
            self.share(out, self.to_fake(args[0]), func)
            return out
        out = self.taken_apart(func, args, kwargs)
        return self.record(func, args, kwargs) if out is NotImplemented else out

    def taken_apart(self, func: Op, args: tuple, kwargs: dict[str, Any]) -> Any:
        """What the op gives, by simpler ops; NotImplemented: it is one of those."""
        rule = self.rule_for(func, args, kwargs)
        if rule is not None:
            known = len(self._alive)
            with self:
                out = rule(*args, **kwargs)
            if out is not NotImplemented:
                out = self.in_layout_of_op(func, args, kwargs, out)
                if not is_view(func):
                    self.forget_inner_views(out, known)
                return out
        elif is_composite(func):  # reached when autograd was off
            with self:
                return func.decompose(*args, **kwargs)
        if func._schema.is_mutable:
            return self.written_apart(func, args, kwargs)
        return NotImplemented

    def rule_for(self, func: Op | None, args: tuple, kwargs: dict[str, Any]) -> Callable | None:
        """The op's decomposition, unless eager refuses the call: then its kernel is to raise."""
        rule = self.decompositions.get(func)
        return None if func is None or rule is None or EAGER.refusal(func, args, kwargs) else rule

    def written_apart(self, func: Op, args: tuple, kwargs: dict[str, Any]) -> Any:
        """x.silu_() is x.copy_(silu(x)), and silu has a decomposition."""
        rule = self.rule_for(functional_of(func), args, kwargs)
        if rule is not None:
            with self:
                out = rule(*args, **kwargs)
                if out is not NotImplemented and torch.can_cast(out.dtype, args[0].dtype):
                    return args[0].copy_(out)
        return NotImplemented

    def forget_inner_views(self, out: Any, known: int) -> None:
        """The results of a decomposition are no views of what it made on the way.

        `torch.stack` is written as a view of `cat(...)`; to autograd, eager's is a tensor of its
        own, and `stack(...).flatten()` is a view of that.  known: how many tensors were bound before.
        """
        inner = {id(tensor) for tensor in self._alive[known:]}
        for leaf in pytree.tree_leaves(out):
            if isinstance(leaf, torch.Tensor) and id(self.derivation(leaf)[0]) in inner:
                self._made_by.pop(id(leaf), None)

    def in_layout_of_op(self, func: Op, args: tuple, kwargs: dict[str, Any], out: Any) -> Any:
        """The result of a decomposition, in the strides that the op itself gives where an argument
        is not contiguous."""
        met: list[torch.Tensor] = []
        of_tensors((args, kwargs), met.append)
        if gives_what_it_is_given(func) or all(t.is_contiguous() for t in met):
            return out
        wanted = pytree.tree_leaves(self.fake_result(func, args, kwargs))
        leaves, spec = pytree.tree_flatten(out)
        for i, (have, want) in enumerate(zip(leaves, wanted)):
            if isinstance(have, torch.Tensor) and lies_otherwise(have, want):
                order = sorted(
                    range(want.dim()), key=lambda d: hint(want.stride(d), 0), reverse=True
                )
                back = [order.index(d) for d in range(want.dim())]
                with self:
                    leaves[i] = have.permute(order).contiguous().permute(back)
        return pytree.tree_unflatten(leaves, spec)

    def fake_result(self, func: Op, args: tuple, kwargs: dict[str, Any]) -> Any:
        """What the op gives for fake tensors, in the strides that eager's kernel gives it."""
        try:
            with self.fake_mode:
                if func in LIFT:  # given the real tensor, the fake remembers its value
                    return aten.lift_fresh.default(*args)
                fake_args, fake_kwargs = of_tensors((args, kwargs), self.to_fake)
                return func(*fake_args, **fake_kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException) as e:
            raise DataDependent(f"{func} needs the data of a tensor") from e

    def record(self, func: Op, args: tuple, kwargs: dict[str, Any]) -> Any:
        """A node for the op as it is; returns its fake result."""
        out = self.fake_result(func, args, kwargs)
        made = [leaf for leaf in pytree.tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        if out is not None and not made:
            return out  # a question about a size, a device, ...: answered, not recorded
        if any(t.layout != torch.strided for t in made):
            raise CannotTrace(f"{func} makes a tensor that is not strided")
        recorded = aten.lift_fresh_copy.default if func in LIFT else func
        node = self.graph.call_function(recorded, *self.nodes_of((tuple(args), dict(kwargs))))
        node.meta.update(self.meta, recording=torch.is_grad_enabled())
        self.bind_output(out, node)
        if func._schema.is_mutable:
            self.note_writes(func, *of_tensors((args, kwargs), self.to_fake))
        if is_view(recorded):
            self.share_view(out, recorded, args, kwargs)
        return out

    def share_view(self, out: Any, func: Op, args: tuple, kwargs: dict[str, Any]) -> None:
        """`out`, one view or several, is what this op made of its first argument."""
        source = self.to_fake(args[0])
        if isinstance(out, (tuple, list)):
            for number, piece in enumerate(out):
                self.share(piece, out, operator.getitem, (number,))
        if out is not source:
            self.share(out, source, func, args[1:], kwargs)

    def bind_output(self, out: Any, node: Node) -> None:
        if isinstance(out, torch.Tensor) and (
            id(out) not in self._node_of
            or node.target is operator.getitem
            or not node.target._schema.is_mutable
        ):
            return self.bind(out, node)
        node.meta["val"] = (
            out  # an in-place op returns its argument; later reads go to the argument's node
        )
        for i, item in enumerate(out if isinstance(out, (tuple, list)) else ()):
            if isinstance(item, (torch.Tensor, tuple, list)):
                child = self.graph.call_function(operator.getitem, (node, i))
                child.meta.update(self.meta)
                self.bind_output(item, child)


def lies_otherwise(have: torch.Tensor, want: torch.Tensor) -> bool:
    """Have two tensors of one shape different strides?  Those of a size of 1 say nothing."""
    steps = zip(sizes(have.shape), have.stride(), want.stride())
    differ = [n not in (0, 1) and not same(a, b) for n, a, b in steps]
    return same_sizes(have.shape, want.shape) and any(differ)


def gives_what_it_is_given(func: Op) -> bool:
    """Does it return its arguments, or views of them?"""
    return any(result.alias_info for result in func._schema.returns)


def of_tensors(tree: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """Nested arguments of an op with change(t) in place of each tensor."""
    return fx.node.map_aggregate(
        tree, lambda leaf: change(leaf) if isinstance(leaf, torch.Tensor) else leaf
    )


@functools.cache
def functional_of(func: Op) -> Op | None:
    """aten.silu_ -> aten.silu, for ops that write their first argument and return it; else None."""
    arguments, returns = func._schema.arguments, func._schema.returns
    name = func._schema.name.split("::")[1]
    if (
        func.namespace != "aten"
        or not name.endswith("_")
        or len(returns) != 1
        or torch.Tag.inplace_view in func.tags
    ):
        return None
    if [a.name for a in arguments if a.alias_info and a.alias_info.is_write] != [arguments[0].name]:
        return None
    try:
        return functional_form(func)[0]
    except CannotFunctionalize:
        return None


@functools.cache
def is_composite(func: Op) -> bool:
    """Does ATen define `func` purely in terms of other ops (CompositeImplicitAutograd)?"""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return (
        func.namespace != "prim"
        and has(func.name(), "CompositeImplicitAutograd")
        and not has(func.name(), "CPU")
    )  # (prim: no kernels)


def new_fake_mode() -> FakeMode:
    return FakeMode(allow_non_fake_inputs=True, static_shapes=True)


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

    with torch.no_grad():
        return [fake(value) for value in values]


def input_name(function: Any, position: int, value: Any, prefix: str) -> str:
    """A placeholder of the traced graph: a size keeps the name of its symbol, which recorded
    arguments print."""
    return (
        function.graph.find_nodes(op="placeholder")[position].target
        if isinstance(value, torch.SymInt)
        else f"{prefix}{position}"
    )


class OriginInterpreter(fx.Interpreter):
    """Runs the captured graph under a tracer, so that each ATen node knows the FX node and user
    line it came from."""

    def __init__(self, gm: fx.GraphModule, tracer: Tracer) -> None:
        super().__init__(gm)
        self.extra_traceback = False  # what is raised keeps its own words
        self.tracer = tracer
        self.ends: list[
            Callable
        ] = []  # functions that leave what the program has entered (inference mode)

    def run(self, *args: Any, **options: Any) -> Any:
        try:
            return super().run(*args, **options)
        except BaseException:
            # now: a mode that is left after the tracer's own would bring them back
            while self.ends:
                self.ends.pop()()
            raise

    def run_node(self, node: fx.Node) -> Any:
        self.tracer.meta = {"origins": frozenset([node.name])} | {
            key: node.meta[key]
            for key in ("source_line", "stack_trace", "module_path")
            if key in node.meta
        }
        return super().run_node(node)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if hasattr(target, "ended_by"):
            super().call_function(target, args, kwargs)
            return self.ends.append(target.ended_by)
        if self.ends and target is self.ends[-1]:
            self.ends.pop()
        rule = CALLS.get(target, OriginInterpreter.plain_call)
        return rule(self, target, args, kwargs)

    def plain_call(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The call as torch's own rules take it apart."""
        out = super().call_function(target, args, kwargs)
        if target is getattr and args[1] == "data":
            self.tracer.share(out, self.tracer.to_fake(args[0]), data_of)
        return out

    def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
        rule = CALLS.get(target, OriginInterpreter.plain_method)
        return rule(self, target, args, kwargs)

    def plain_method(self, target: Any, args: Any, kwargs: Any) -> Any:
        return super().call_method(target, args, kwargs)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        tensor = self.fetch_attr(target)
        if not isinstance(tensor, torch.Tensor):
            return tensor
        self.tracer.constant(tensor, target)
        return self.tracer.to_fake(tensor)


def run_traced(
    function: Callable,
    args: Any,
    decompositions: Decompositions | None = None,
    as_program: Callable[..., Sequence[Any]] = lambda mode, args, fakes: fakes,
) -> tuple[Tracer, Sequence[Any], Any]:
    """(tracer, fake arguments, what `function` gave for them): one placeholder per tensor or
    symbolic size among `args`.

    as_program(fake_mode, args, fakes): what the function is called with in place of the plain
    fakes. Raises CannotTrace: DataDependent where a size or branch depends on data, or where one
    tensor is passed twice.  Gradients are recorded or not as where it is called: derivatives are
    the joint trace's matter.
    """
    tracer = Tracer(new_fake_mode(), decompositions)
    fakes = as_program(tracer.fake_mode, args, fake_inputs(tracer.fake_mode, args))
    for i, fake in enumerate(fakes):
        if isinstance(fake, (torch.Tensor, torch.SymInt)):
            tracer.placeholder(input_name(function, i, fake, "arg"), fake)
    run = (
        OriginInterpreter(function, tracer).run
        if isinstance(function, fx.GraphModule)
        else function
    )
    with (
        torch.set_grad_enabled(torch.is_grad_enabled()),  # as it was, when the program has ended
        ambient_autocast(),
        enable_python_dispatcher(),
        tracer.fake_mode,
        tracer,
    ):
        return tracer, fakes, run(*fakes)


def trace(
    function: Callable, args: Any, decompositions: Decompositions | None = None
) -> fx.GraphModule:
    """function(*args) as an fx.GraphModule of ATen ops whose output has the structure that
    `function` returned.  Raises as `run_traced`."""
    coverage.load()
    with torch.no_grad():
        tracer, _, out = run_traced(function, args, decompositions)
    tracer.graph.output(tracer.nodes_of(out))
    return tracer.module("AtenGraph")
