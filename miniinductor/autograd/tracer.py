"""Run a program on fake tensors and record every ATen call as an FX node.

In:   a callable or an `fx.GraphModule`, and its arguments.  Out: `Traced`: a GraphModule of ATen ops whose placeholders
are the tensor arguments, with parameters and other outside tensors as `get_attr` nodes under their own names.

    >>> traced = trace(lambda x: torch.softmax(x * 2, -1), [torch.randn(3, 5)])
    >>> [n.target for n in traced.gm.graph.nodes if n.op == "call_function"]
    [aten.mul.Tensor, aten.amax.default, aten.sub.Tensor, aten.exp.default, aten.sum.dim_IntList, aten.div.Tensor]

`ATenTracer` is a TorchDispatchMode: it sits *below* autograd, so by the time a call arrives there the composite ops
have been split into their parts.  Fake tensors have a shape, dtype, strides and device but no data, which is all that
a trace needs; a program that asks for a tensor's *value* raises `DataDependent`.

Each node's meta: `val` (the fake result), `origin` (names of the front end's FX nodes it came from), and what the front
end's node carries of `stack_trace`, `source_line`, `module_path`.

Mirrors torch/fx/experimental/proxy_tensor.py (make_fx; paper section 3.10).  Left out: symbolic ints (issue 7), tracing
of subclasses, pre-dispatch tracing.
"""
import contextlib
import functools
import operator
from dataclasses import dataclass, field

import torch
import torch.utils._pytree as pytree
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import (
    DataDependentOutputException, DynamicOutputShapeException, FakeTensor, FakeTensorMode)
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

aten = torch.ops.aten

# Questions about a tensor, not computations: answered from the fake tensor, not recorded.
METADATA_OPS = {
    aten.sym_size.default, aten.sym_size.int, aten.sym_stride.default, aten.sym_stride.int,
    aten.sym_storage_offset.default, aten.sym_numel.default, aten.size.default, aten.stride.default,
    aten.storage_offset.default, aten.numel.default, aten.is_contiguous.default, aten.is_contiguous.memory_format,
    aten.is_strides_like_format.default, aten.is_non_overlapping_and_dense.default,
    torch.ops.prim.device.default, torch.ops.prim.layout.default,
}
SAME_VALUE = (aten.detach.default, aten.alias.default)      # a new tensor object, the same node
COPIED_META = ("stack_trace", "source_line", "module_path", "nn_module_stack")


class DataDependent(Exception):
    """The program asks for the value (or a value-dependent shape) of a tensor: not traceable as one graph."""


class ATenTracer(TorchDispatchMode):
    @classmethod
    def _should_skip_dynamo(cls):       # else torch wraps the handler in torch._dynamo.disable
        return False

    def __init__(self, fake_mode, decompositions=None, names=None):
        super().__init__()
        self.fake_mode = fake_mode
        self.decompositions = decompositions or {}
        self.graph = fx.Graph()
        self.constants = {}             # get_attr name -> real tensor
        self.names = names or {}        # id(real tensor) -> its qualified name in the module
        self.meta = {}                  # put on every node that is recorded (origin, user line, module path)
        self._node_of = {}              # id(tensor) -> fx.Node
        self._alive = []                # those tensors, so that ids stay unique
        self._fake_of = {}              # id(real tensor) -> its fake

    # -- tensors and nodes
    def bind(self, tensor, node):
        self._node_of[id(tensor)] = node
        self._alive.append(tensor)
        node.meta.setdefault("val", tensor)

    def placeholder(self, name, fake):
        node = self.graph.placeholder(name)
        node.meta["origin"] = frozenset([name])
        self.bind(fake, node)
        return node

    def node_of(self, tensor):
        node = self._node_of.get(id(tensor))
        if node is None:                # a tensor from outside becomes a constant of the graph
            if isinstance(tensor, FakeTensor):
                raise RuntimeError(f"a fake tensor that no recorded op made: {tensor}")
            name = self.names.get(id(tensor), f"constant{len(self.constants)}")
            name = "".join(c if c.isalnum() else "_" for c in name)
            while name in self.constants:
                name += "_"
            self.constants[name] = tensor
            node = self.graph.get_attr(name)
            node.meta["val"] = self.to_fake(tensor)
            node.meta["origin"] = frozenset([name])
            self.bind(tensor, node)
        return node

    def to_fake(self, tensor):
        if isinstance(tensor, FakeTensor):
            return tensor
        if id(tensor) not in self._fake_of:
            with _disable_current_modes():
                self._fake_of[id(tensor)] = self.fake_mode.from_tensor(tensor, static_shapes=True)
            self._alive.append(tensor)
        return self._fake_of[id(tensor)]

    # -- one call
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in METADATA_OPS:
            with self.fake_mode:
                return func(*args, **kwargs)
        rule = self.decompositions.get(func)
        if rule is not None:
            with self:
                out = rule(*args, **kwargs)
            if out is not NotImplemented:
                return out
        elif is_composite(func):
            with self:                  # arrives whole only where autograd is off, for example inside a rule
                return func.decompose(*args, **kwargs)
        if func in SAME_VALUE:
            with self.fake_mode:
                out = func(self.to_fake(args[0]))
            self.bind(out, self.node_of(args[0]))
            return out
        return self.record(func, args, kwargs)

    def record(self, func, args, kwargs):
        node_args, node_kwargs = pytree.tree_map_only(torch.Tensor, self.node_of, (tuple(args), dict(kwargs)))
        try:
            with self.fake_mode:
                if func in (aten.lift_fresh.default, aten.lift_fresh_copy.default):
                    func = aten.lift_fresh_copy.default         # torch.tensor(3.): a fresh copy at each run
                    out = aten.lift_fresh.default(*args)        # given the real tensor, the fake remembers its value
                else:
                    fake_args, fake_kwargs = pytree.tree_map_only(torch.Tensor, self.to_fake, (args, kwargs))
                    out = func(*fake_args, **fake_kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            raise DataDependent(f"{func} needs the value of a tensor") from error
        if isinstance(out, (int, float, bool)):     # .item() of a known constant
            return out
        node = self.graph.call_function(func, node_args, node_kwargs)
        node.meta.update(self.meta)
        self.bind_output(out, node)
        return out

    def bind_output(self, out, node):
        node.meta["val"] = out
        if isinstance(out, torch.Tensor):
            if id(out) in self._node_of:            # an in-place op returns its argument: it keeps its first node,
                node.meta["returns"] = self._node_of[id(out)]       # which functionalization keeps up to date
            else:
                self.bind(out, node)
        elif isinstance(out, (tuple, list)):
            for i, item in enumerate(out):
                if isinstance(item, (torch.Tensor, tuple, list)):
                    child = self.graph.call_function(operator.getitem, (node, i))
                    child.meta.update(self.meta)
                    self.bind_output(item, child)


@functools.cache
def is_composite(func):
    """Does ATen define `func` only in terms of other ops (CompositeImplicitAutograd)?"""
    has, name = torch._C._dispatch_has_kernel_for_dispatch_key, func.name()
    return has(name, "CompositeImplicitAutograd") and not has(name, "CPU")


class OriginInterpreter(fx.Interpreter):
    """Runs the front end's graph, telling the tracer which of its nodes is at work."""

    def __init__(self, gm, tracer):
        super().__init__(gm)
        self.tracer = tracer

    def run_node(self, node):
        if node.op in ("call_function", "call_method", "call_module"):
            self.tracer.meta = {"origin": frozenset([node.name]),
                                **{key: node.meta[key] for key in COPIED_META if node.meta.get(key)}}
        return super().run_node(node)


@dataclass
class Traced:
    """gm: the ATen graph; its output node holds a flat list.  spec: how the program nested its outputs.
    identities: output number -> ("input", position) or ("constant", name) where the program returned that very object.
    """
    gm: fx.GraphModule
    spec: object
    fake_mode: FakeTensorMode
    input_positions: list = field(default_factory=list)    # which flat arguments are placeholders
    identities: dict = field(default_factory=dict)


def trace(program, args, decompositions=None, fake_mode=None):
    """Record `program(*args)`; args may be nested, tensors in them become placeholders in order."""
    fake_mode = fake_mode or FakeTensorMode(allow_non_fake_inputs=True)
    leaves, spec = pytree.tree_flatten(tuple(args))
    names = tensor_names(program)
    tracer = ATenTracer(fake_mode, decompositions, names)
    if isinstance(program, fx.GraphModule):
        wanted = [n.target for n in program.graph.nodes if n.op == "placeholder"]
        run = OriginInterpreter(program, tracer).run
    else:
        wanted, run = [], program
    fakes, positions, node_position = [], [], {}
    for i, leaf in enumerate(leaves):
        if not isinstance(leaf, torch.Tensor):
            fakes.append(leaf)
            continue
        fake = tracer.to_fake(leaf)
        fakes.append(fake)
        if id(fake) not in node_position:       # one tensor passed twice is one input: its first position counts
            name = wanted[i] if len(wanted) == len(leaves) else f"arg{i}"
            tracer.placeholder(name.replace(".", "_"), fake)
            node_position[id(fake)] = i
            positions.append(i)
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(enable_python_dispatcher())     # without it C++ composites hide mutation from us
        stack.enter_context(fake_mode)
        stack.enter_context(tracer)
        out = run(*pytree.tree_unflatten(fakes, spec))
    flat, out_spec = pytree.tree_flatten(out)
    traced = Traced(None, out_spec, fake_mode, positions)
    nodes = []
    for number, item in enumerate(flat):
        if not isinstance(item, torch.Tensor):
            nodes.append(item)
            continue
        node = tracer.node_of(item)
        nodes.append(node)
        if node.op == "placeholder" and id(item) in node_position:
            traced.identities[number] = ("input", node_position[id(item)])
        elif node.op == "get_attr" and not isinstance(item, FakeTensor):
            traced.identities[number] = ("constant", node.target)
    tracer.graph.output(nodes)
    root = torch.nn.Module()
    for name, tensor in tracer.constants.items():
        root.register_buffer(name, tensor)
    traced.gm = fx.GraphModule(root, tracer.graph)
    return traced


def tensor_names(program):
    """id(tensor) -> qualified name, for parameters and buffers of the module that `program` is or is a method of."""
    module = program if isinstance(program, torch.nn.Module) else getattr(program, "__self__", None)
    if not isinstance(module, torch.nn.Module):
        return {}
    return {id(t): name for name, t in [*module.named_parameters(), *module.named_buffers()]}
